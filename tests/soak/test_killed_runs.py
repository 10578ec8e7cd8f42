"""Runs whose processes are killed at random moments: they go on or resume, and end with the same results."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import prismem_core

SCRIPT = "import sys; from prismem_core.cli.main import main; sys.argv = ['prismem', *sys.argv[1:]]; main()"
FAST = ["--set", "embedder=hashing", "--set", "reranker=false", "--set", "T3=0"]
SHORT, LONG = ["--set", "T1=1", "--set", "T2=0"], ["--set", "T1=2", "--set", "T2=3"]
SECONDS = 1800

LENGTHS = pytest.mark.parametrize(
    ("length", "kills"),
    [(SHORT, 6), pytest.param(LONG, 40, marks=pytest.mark.soak)],
    ids=["short", "long"],
    scope="module",
)


def levels(pid: int) -> list[list[int]]:
    """The processes below `pid` by how far below: zygote, its inner half, workers, copies."""
    found, parents = [], [pid]
    while parents:
        parents = [child for parent in parents for child in _children(parent)]
        found.append(parents)
    return found[:-1]


def _children(pid: int) -> list[int]:
    found: list[int] = []
    # It may end meanwhile; a process that a thread started is the child of that thread.
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def has_started(zygote: int) -> bool:
    """Whether a zygote takes orders: while it starts it may still tell on standard error why it cannot."""
    try:
        return os.readlink(f"/proc/{zygote}/fd/2") == os.devnull
    except OSError:
        return False


def gone(pids: set[int]) -> bool:
    """Whether all have ended, some seconds given."""
    deadline = time.monotonic() + 20
    while any(_runs(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@contextlib.contextmanager
def engine(*words: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(Path(prismem_core.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def results(run: Path) -> dict[str, Any]:
    """What a run has found: programs, patches, scores, and the course of its journal."""
    found: dict[str, Any] = {
        str(path.relative_to(run)): path.read_text(encoding="utf-8")
        for folder in ("programs", "patches", "evaluations")
        for path in sorted((run / folder).iterdir())
    }
    events = map(json.loads, (run / "journal.jsonl").read_text(encoding="utf-8").splitlines())
    found["journal"] = [{name: value for name, value in event.items() if name != "time"} for event in events]
    return found


@pytest.fixture(scope="module")
def undisturbed(length: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    with engine("evolve", "--data", "sample", "--run", str(run), *FAST, *length) as process:
        output = process.communicate(timeout=SECONDS)[0]
        assert process.returncode == 0, output
    return results(run)


@LENGTHS
def test_a_run_goes_on_when_what_it_started_is_killed(
    length: list[str], kills: int, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    run, chosen, hit, family = tmp_path / "run", random.Random(0), set(), set()
    with engine("evolve", "--data", "sample", "--run", str(run), *FAST, *length) as process:
        for number in range(kills):
            # From the innermost outwards, so that a run too short for all of them has seen the likeliest ones.
            wanted = number % 4
            while process.poll() is None:
                time.sleep(0.002)
                found = levels(process.pid)
                if len(found) >= 3 and wanted < len(found) and any(map(has_started, found[1])):
                    family.update(pid for level in found for pid in level)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(chosen.choice(found[-1 - wanted]), signal.SIGKILL)
                        hit.add(len(found) - 1 - wanted)
                        break
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(chosen.uniform(0.3, 1.5))
        output = process.communicate(timeout=SECONDS)[0]
        assert process.returncode == 0, output
    assert len(hit) >= 2, "the run ended before anything was killed"
    assert results(run) == undisturbed
    assert gone(family)


@LENGTHS
def test_a_run_whose_engine_is_killed_resumes_to_the_same_results(
    length: list[str], kills: int, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    run, chosen = tmp_path / "run", random.Random(1)
    for _ in range(max(2, kills // 4)):
        with engine(*_next(run, length)) as process:
            while process.poll() is None and not levels(process.pid):
                time.sleep(0.01)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(chosen.uniform(0.0, 4.0))
            # Stopped, it makes no further process between the look and the kill.
            process.send_signal(signal.SIGSTOP)
            family = {pid for level in levels(process.pid) for pid in level}
            process.kill()
            process.wait()
            assert gone(family)
    with engine(*_next(run, length)) as process:
        output = process.communicate(timeout=SECONDS)[0]
        assert process.returncode == 0, output
    assert results(run) == undisturbed


def _next(run: Path, length: list[str]) -> list[str]:
    """How to begin a run, or go on with it."""
    if (run / "run.json").exists():
        return ["resume", str(run)]
    return ["evolve", "--data", "sample", "--run", str(run), *FAST, *length]
