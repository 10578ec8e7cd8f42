"""The process of an outside system: silence, interrupts, and who is left afterwards."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismem_core.errors import RoleError
from prismem_core.integrations import process as process_module
from prismem_core.integrations.mem0_system import pieces
from prismem_core.integrations.outside import OutsideSystem
from prismem_core.integrations.systems import system_spec
from prismem_core.jobs.settings import build_job_settings
from prismem_core.jobs.workbench import Workbench
from prismem_core.program import library
from prismem_core.program.program import Program
from prismem_core.tasks.datasets import load
from prismem_core.tasks.history import History, Turn
from tests.integrations.talks import write_talks


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that are begun."""
    begun: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def begin(*words: Any, **more: Any) -> subprocess.Popen[bytes]:
        begun.append(real(*words, **more))
        return begun[-1]

    monkeypatch.setattr(process_module.subprocess, "Popen", begin)
    return begun


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    dataset = load(str(write_talks(tmp_path / "talks.jsonl")))
    with Workbench(dataset, build_job_settings({"embedder": "hashing", "reranker": False})) as bench:
        yield bench


def outside(bench: Workbench, name: str, embedder: Any = None, **more: Any) -> OutsideSystem:
    spec = system_spec(f"python:tests.integrations.toy_systems:{name}")
    assert spec is not None
    parts = (bench.chat, embedder or bench.embedder, bench.cache, bench.settings.pipeline())
    return OutsideSystem(spec, *parts, **more)


def run(bench: Workbench, system: OutsideSystem, histories: Any = None) -> Any:
    interface = bench.pipeline.interface(Program(library.source("full_context")))
    questions = [(task.history_id, task.question) for task in bench.dataset.tasks]
    return system.run(interface, histories or bench.dataset.histories, questions)


def test_a_system_that_is_silent_is_ended(bench: Workbench, started: list[subprocess.Popen[bytes]]) -> None:
    with outside(bench, "Sleeps", seconds=1.0) as system:
        result = run(bench, system)
    kinds = [trace.failure.kind for trace in result.traces]
    # The second question of each history finds its process gone.
    assert kinds == ["limit:wall", "died"] * 3
    assert "said nothing for 1 seconds" in result.traces[0].failure.message
    assert all(process.poll() is not None for process in started)


def test_processes_serve_one_history_after_another(bench: Workbench, started: list[subprocess.Popen[bytes]]) -> None:
    with outside(bench, "Turns") as system:
        result = run(bench, system)
        assert [trace.failure for trace in result.traces] == [None] * 6
        assert len(started) <= bench.settings.workers
    assert all(process.poll() is not None for process in started)


class Interrupted:
    """An embedder during whose calls the user or the provider ends it all."""

    identity = "interrupted"
    dimension = 4

    def __init__(self, cause: BaseException) -> None:
        self.cause = cause

    def embed(self, texts: Sequence[str], salt: str = "") -> Any:
        if any("lake number 3" in text for text in texts):
            raise self.cause
        return np.ones((len(texts), 4), np.float32) / 2


@pytest.mark.parametrize("cause", [KeyboardInterrupt(), RoleError("the server is gone")], ids=["ctrl-c", "provider"])
def test_no_process_outlives_what_ends_the_job(
    bench: Workbench, started: list[subprocess.Popen[bytes]], cause: BaseException
) -> None:
    with outside(bench, "SwallowsFailures", Interrupted(cause)) as system, pytest.raises(type(cause)):
        run(bench, system)
    assert started
    assert all(process.poll() is not None for process in started)


def test_a_history_without_sessions_is_an_empty_memory(bench: Workbench) -> None:
    empty = {name: History(name, ()) for name in bench.dataset.histories}
    with outside(bench, "Turns") as system:
        result = run(bench, system, empty)
    assert [trace.retrieved for trace in result.traces] == [""] * 6
    assert all(trace.failure is None for trace in result.traces)


def test_pieces_hold_whole_turns() -> None:
    turns = [Turn(str(i), "ada", "x" * size) for i, size in enumerate([10, 10, 50, 10, 0])]
    found = list(pieces(turns, 40))
    assert [[turn.id for turn in piece] for piece in found] == [["0", "1"], ["2"], ["3", "4"]]
    assert list(pieces([], 40)) == []
