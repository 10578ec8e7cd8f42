"""The main job: repeatable, resumable, paid once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prismem_core.cache import ExecutionCache
from prismem_core.errors import DataError, ProgramError, RunError
from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.jobs.evolution_job import EvolutionJob, resume_run, start_run
from prismem_core.jobs.reports import load_report, write_markdown
from prismem_core.jobs.workbench import Workbench
from prismem_core.runs.events import Evaluated, Event

Make = Callable[..., EvolutionJob]


def history(run: Path) -> list[dict[str, Any]]:
    """The journal without times."""
    events = [json.loads(line) for line in (run / "journal.jsonl").read_bytes().splitlines()]
    return [{key: value for key, value in event.items() if key != "time"} for event in events]


def calls(run: Path) -> list[str]:
    lines = [json.loads(line) for line in (run / "calls.jsonl").read_bytes().splitlines()]
    return [line["key"] for line in lines if line["role"] != "time"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, make_job: Make) -> Path:
    return start_run(tmp_path_factory.mktemp("runs") / "whole", make_job(), SilentObserver())


def test_the_job_improves_the_program_and_pays_no_call_twice(finished: Path) -> None:
    report = load_report(finished)
    assert report.data["finished"]
    valid = report.data["scores"]["valid"]
    assert valid[report.best]["score"] > valid["n00"]["score"]
    assert set(report.data["scores"]["test"]) == {"n00", report.data["base"], report.final}
    keys = calls(finished)
    assert len(keys) == len(set(keys)) > 0
    total = report.data["calls"]["total"]
    assert 0 < total["made"]["calls"] < total["without_reuse"]["calls"]


def test_the_cache_knows_what_the_run_and_each_program_used(finished: Path) -> None:
    added = {event["program"]: event["digest"] for event in history(finished) if event["event"] == "program_added"}
    with ExecutionCache(finished / "cache", read_only=True) as cache:
        assert list(cache.runs()) == [finished.name]
        everything = {(entry.stage, entry.key) for entry in cache.entries()}
        assert {(entry.stage, entry.key) for entry in cache.entries(run=finished.name)} == everything
        assert set(calls(finished)) <= {key for _, key in everything}
        by_program = {
            program: {(entry.stage, entry.key) for entry in cache.entries(program=digest)}
            for program, digest in added.items()
        }
        costs = {entry.stage: entry.cost for entry in cache.entries()}
    assert len(by_program) > 1
    assert all({stage for stage, _ in used} >= {"interface", "extract", "answer"} for used in by_program.values())
    assert by_program["n00"] & by_program["n01"], "what they share was put once and is noted for both"
    assert all(costs[stage] > 0 for stage in ("extract", "answer", "retrieve", "index"))


def test_the_report_names_every_program_and_no_place_of_the_machine(finished: Path, tmp_path: Path) -> None:
    report = load_report(finished)
    text = write_markdown(finished, report).read_text(encoding="utf-8")
    for entry in report.data["lineage"]:
        assert entry["program"] in text
    assert str(tmp_path.parent) not in text
    assert "evidence recall" in text


@pytest.mark.parametrize("workers", [1, 3])
def test_the_same_seed_gives_the_same_history_whatever_the_workers(
    finished: Path, tmp_path: Path, make_job: Make, workers: int
) -> None:
    other = start_run(tmp_path / "again", make_job({"workers": workers}), SilentObserver())
    assert history(other) == history(finished)
    assert sorted(calls(other)) == sorted(calls(finished))


def used_by_program(run: Path) -> dict[str, set[tuple[str, str]]]:
    added = {event["program"]: event["digest"] for event in history(run) if event["event"] == "program_added"}
    with ExecutionCache(run / "cache", read_only=True) as cache:
        return {
            program: {(entry.stage, entry.key) for entry in cache.entries(program=digest)}
            for program, digest in added.items()
        }


@pytest.mark.parametrize("settings", [{"frozen_mib": 0}, {"frozen_mib": 6}, {"verify_reuse": 1.0}], ids=str)
def test_memories_that_are_kept_leave_no_trace(
    finished: Path, tmp_path: Path, make_job: Make, settings: dict[str, object]
) -> None:
    other = start_run(tmp_path / "other", make_job(settings), SilentObserver())
    assert history(other) == history(finished)
    assert sorted(calls(other)) == sorted(calls(finished))
    assert used_by_program(other) == used_by_program(finished)
    checked = load_report(other).data["reuse_check"]
    if "verify_reuse" in settings:
        assert checked["memories"] > 0
        assert checked["texts"] > checked["differing"] == 0
        assert "built again to compare" in write_markdown(other, load_report(other)).read_text(encoding="utf-8")
    else:
        assert checked is None


def test_reuse_off_gives_the_same_scores_for_more_calls(finished: Path, tmp_path: Path, make_job: Make) -> None:
    off = start_run(tmp_path / "off", make_job({"reuse": "off"}), SilentObserver())

    def scores(run: Path) -> list[Any]:
        return [(e["program"], e["purpose"], e["scores"]) for e in history(run) if e["event"] == Evaluated.name]

    assert scores(off) == scores(finished)
    assert len(calls(off)) > len(calls(finished))


SCRIPT = """
import sys
from pathlib import Path
from prismem_core.cli.main import main
sys.argv = ["prismem", *sys.argv[1:]]
main()
"""


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", SCRIPT, *words]


def evolve_words(run: Path, data: Path, parts: Path) -> list[str]:
    sets = ["embedder=hashing", "reranker=false", "T1=2", "T2=2", "T3=1"]
    flags = [word for pair in sets for word in ("--set", pair)]
    return command("evolve", "--data", str(data), "--split", str(parts), "--run", str(run), *flags)


@pytest.mark.parametrize("share", [0.15, 0.4, 0.7])
def test_a_killed_run_resumes_to_the_same_history(
    finished: Path, tmp_path: Path, small_data: Path, small_parts: dict[str, Any], share: float
) -> None:
    parts = tmp_path / "split.json"
    parts.write_text(json.dumps(small_parts), encoding="utf-8")
    run = tmp_path / "killed"
    wanted = int(share * len((finished / "calls.jsonl").read_bytes()))
    process = subprocess.Popen(evolve_words(run, small_data, parts), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    ledger = run / "calls.jsonl"
    while process.poll() is None and not (ledger.exists() and ledger.stat().st_size > wanted):
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL, "the run ended before it could be killed"
    subprocess.run(command("resume", str(run)), check=True, stdout=subprocess.DEVNULL, timeout=300)
    assert history(run) == history(finished)
    keys = calls(run)
    assert len(keys) == len(set(keys))


def test_one_process_a_run_directory(finished: Path, tmp_path: Path, make_job: Make) -> None:
    from prismem_core.runs.run import Run

    with Run.open(finished), pytest.raises(RunError, match="in use by another process"):
        resume_run(finished, SilentObserver())
    with pytest.raises(RunError, match="already holds a run"):
        start_run(finished, make_job(), SilentObserver())


def test_resuming_a_finished_run_changes_nothing(finished: Path) -> None:
    before = (finished / "journal.jsonl").read_bytes()
    resume_run(finished, SilentObserver())
    assert (finished / "journal.jsonl").read_bytes() == before


def test_other_data_is_refused(tmp_path: Path, make_job: Make, small_data: Path) -> None:
    job = make_job(evolution={"T1": 0, "T2": 0, "T3": 0})
    data = tmp_path / "data.jsonl"
    data.write_bytes(small_data.read_bytes())
    moved = EvolutionJob(str(data), job.parts, job.job, job.evolution, job.start)
    run = start_run(tmp_path / "run", moved, SilentObserver())
    data.write_bytes(small_data.read_bytes().replace(b"?", b"??", 1))
    with pytest.raises(RunError, match="data digest"):
        resume_run(run, SilentObserver())


def test_a_run_whose_data_moved_goes_on_when_told_where(tmp_path: Path, make_job: Make, small_data: Path) -> None:
    job = make_job(evolution={"T1": 0, "T2": 0, "T3": 0})
    data = tmp_path / "data.jsonl"
    data.write_bytes(small_data.read_bytes())
    run = start_run(tmp_path / "run", replace(job, data=str(data)), SilentObserver())
    before = history(run)
    data.rename(tmp_path / "elsewhere.jsonl")
    with pytest.raises(DataError, match=r"data\.jsonl"):
        resume_run(run, SilentObserver())
    resume_run(run, SilentObserver(), data=str(tmp_path / "elsewhere.jsonl"))
    assert history(run) == before


def test_a_watcher_sees_calls_and_what_the_cache_answered(tmp_path: Path, make_job: Make) -> None:
    seen: list[tuple[int, int, int]] = []

    class Watching(SilentObserver):
        def on_event(self, event: Event) -> None:
            seen.append(self.bench.usage())

        def watch(self, bench: Workbench) -> None:
            self.bench = bench

    observer = Watching()
    start_run(tmp_path / "run", make_job(), observer, watch=observer.watch)
    made, asked, answered = seen[-1]
    assert made == len(calls(tmp_path / "run"))
    assert asked == made + answered
    assert 0 < answered < asked
    assert [count for count, _, _ in seen] == sorted(count for count, _, _ in seen)


def test_what_stands_in_is_said_once(
    tmp_path: Path,
    make_job: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("prismem_core.clients.offline.roles.why_missing", lambda: "package 'x' is not installed")
    job = replace(make_job({"embedder": "auto"}), start="no program\n")
    with caplog.at_level("WARNING", logger="prismem_core"), pytest.raises(ProgramError):
        start_run(tmp_path / "run", job, SilentObserver())
    assert [record.getMessage().count("package 'x' is not installed") for record in caplog.records] == [1]
