"""The run directory: what it refuses, whom it locks out, what comes back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from prismem_core.errors import RunError
from prismem_core.runs.events import Evaluated, IterationFinished, ProgramAdded, RunFinished, RunStarted
from prismem_core.runs.run import Manifest, Run, read_run

MANIFEST = Manifest(
    "0.1.0", {"T1": 1}, {"name": "sample", "digest": "d" * 64}, {"chat": "offline"}, {"split": "default"}
)
STARTED = RunStarted(0, "prismem", {}, "designer", "0" * 64, [["t0", "temporal", []]], [["v0", "temporal", []]])
SEED = ProgramAdded(0, "n00", None, "NAME = 'seed'\n", "abcdef0123" + "0" * 54, "", "seed program", [])
CHILD = ProgramAdded(1, "n01", "n00", "NAME = 'ü\u2028'\n", "f" * 64, "@@\n-x\n+y\n", "child", ["NAME"])
SCORED = Evaluated(0, "n00", "full", {"t0": 0.5, "v0": 1.0})


def finished(iteration: int) -> IterationFinished:
    return IterationFinished(iteration, "seed", None, None, "n00", None, True, 0.5, 1.0, {}, "n00")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A run of one finished iteration and the start of another."""
    with Run.create(tmp_path / "run", MANIFEST) as run:
        for event in (STARTED, SEED, SCORED, finished(0), CHILD):
            run.append(event)
    return tmp_path / "run"


def test_a_run_reads_back_what_was_written(directory: Path) -> None:
    record = read_run(directory)
    assert record.manifest == MANIFEST
    assert list(record.events) == [STARTED, SEED, SCORED, finished(0), CHILD]


def test_files_derive_from_the_journal_and_come_back(directory: Path) -> None:
    files = {
        "programs/n00-abcdef01.py": "NAME = 'seed'\n",
        "programs/n01-ffffffff.py": "NAME = 'ü\u2028'\n",
        "patches/n00-n01.diff": "@@\n-x\n+y\n",
        "evaluations/n00.jsonl": '{"score":0.5,"task":"t0"}\n{"score":1.0,"task":"v0"}\n',
    }
    for name, text in files.items():
        assert (directory / name).read_bytes() == text.encode()
        (directory / name).unlink()
    Run.open(directory).close()
    for name, text in files.items():
        assert (directory / name).read_bytes() == text.encode()


def test_rewind_cuts_the_unfinished_iteration_and_its_files(directory: Path) -> None:
    with Run.open(directory) as run:
        run.rewind()
        assert run.events[-1] == finished(0)
        assert not (directory / "programs/n01-ffffffff.py").exists()
        assert not (directory / "patches/n00-n01.diff").exists()
        run.append(CHILD)
    assert read_run(directory).events[-1] == CHILD


def test_what_follows_the_end_of_a_run_is_kept(directory: Path) -> None:
    tested = Evaluated(1, "n00", "test", {"q0": 0.25})
    with Run.open(directory) as run:
        run.rewind()
        assert not run.finished
        run.append(RunFinished(0, "n00", "n00", "done"))
        run.append(tested)
        run.rewind()
        assert run.finished and run.events[-1] == tested
    assert (directory / "evaluations/n00-test.jsonl").read_text() == '{"score":0.25,"task":"q0"}\n'


def test_a_directory_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run directory at"):
        Run.open(tmp_path / "absent")
    with pytest.raises(RunError, match=r"is not a run directory: it has no run\.json"):
        Run.open(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(RunError, match="was not written by prismem"):
        Run.open(tmp_path)
    for text in ("{", "[" * 2000):
        (tmp_path / "run.json").write_text(text)
        with pytest.raises(RunError, match="cannot be read"):
            read_run(tmp_path)
    (tmp_path / "run.json").write_text('{"format": "prismem-run", "format_version": 99}')
    with pytest.raises(RunError, match="has run format 99; this version reads format 1"):
        read_run(tmp_path)


def test_a_run_is_never_overwritten(directory: Path, tmp_path: Path) -> None:
    before = (directory / "journal.jsonl").read_bytes()
    with pytest.raises(RunError, match="already holds a run; go on with `prismem resume"):
        Run.create(directory, MANIFEST)
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"is not empty \(it holds notes.txt\)"):
        Run.create(other, MANIFEST)
    assert (directory / "journal.jsonl").read_bytes() == before
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot make the run directory"):
        Run.create(tmp_path / "file", MANIFEST)


def test_a_creation_that_was_killed_can_be_made_again(tmp_path: Path) -> None:
    (tmp_path / "run.lock").write_text("")
    (tmp_path / "journal.jsonl").write_text("")
    Run.create(tmp_path, MANIFEST).close()
    assert read_run(tmp_path).events == ()


def test_two_processes_do_not_share_a_run(directory: Path) -> None:
    code = (
        "import sys\nfrom prismem_core.runs.run import Run\n"
        f"run = Run.open({str(directory)!r})\nprint('ready', flush=True)\nsys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert other.stdout is not None and other.stdout.readline() == b"ready\n"
        with pytest.raises(RunError, match="is in use by another process"):
            Run.open(directory)
        assert len(read_run(directory).events) == 5
    finally:
        other.kill()
        other.communicate()
    Run.open(directory).close()


def test_a_run_goes_on_only_with_what_it_was_made_of(directory: Path) -> None:
    Run.open(directory, version="0.1.0", data_digest="d" * 64, roles={"chat": "offline"}).close()
    with pytest.raises(RunError, match=r"prismem-core version '0\.1\.0', now it is '0\.2\.0'"):
        Run.open(directory, version="0.2.0")
    with pytest.raises(RunError, match="made with data digest"):
        Run.open(directory, data_digest="e" * 64)
    with pytest.raises(RunError, match="made with chat role 'offline', now it is 'vllm'"):
        Run.open(directory, roles={"chat": "vllm"})


@pytest.mark.parametrize("key", ["api_key", "OPENAI_API_KEY", "password", "client_secret", "Authorization"])
def test_secrets_do_not_enter_the_manifest(tmp_path: Path, key: str) -> None:
    manifest = Manifest("0.1.0", {}, {"digest": ""}, {}, {"client": [{key: "x"}]})
    with pytest.raises(RunError, match="must not hold secrets"):
        Run.create(tmp_path / "run", manifest)
    assert not (tmp_path / "run").exists()


def test_a_derived_file_that_cannot_be_written_leaves_the_journal_whole(directory: Path) -> None:
    (directory / "evaluations" / "n01.jsonl.tmp").mkdir()
    with Run.open(directory) as run:
        scored = Evaluated(1, "n01", "full", {"t0": 1.0})
        with pytest.raises(RunError, match="the journal is whole"):
            run.append(scored)
    assert read_run(directory).events[-1] == scored


def test_the_manifest_is_readable(directory: Path) -> None:
    value = json.loads((directory / "run.json").read_text())
    assert value["format"] == "prismem-run" and value["data"]["digest"] == "d" * 64
