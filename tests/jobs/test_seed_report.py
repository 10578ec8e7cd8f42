"""Several runs that differ in their seed: their means and spread, and what is refused to be averaged."""

from __future__ import annotations

import json
import os
import shutil
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from prismem_core.cli.report import report_command
from prismem_core.errors import RunError
from prismem_core.evaluation.intervals import interval
from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.jobs import seed_report as module
from prismem_core.jobs.evolution_job import EvolutionJob, start_run
from prismem_core.jobs.reports import load_report
from prismem_core.jobs.seed_report import seed_report
from prismem_core.runs.report.markdown import seeds_markdown
from prismem_core.runs.report.tables import NO_INTERVALS

Make = Callable[..., EvolutionJob]
NONE = {"T1": 0, "T2": 0, "T3": 0}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, make_job: Make) -> list[Path]:
    """Three runs of one small job; random cases let the seed matter."""
    folder = tmp_path_factory.mktemp("seeds")
    settings = {"strategy": "random-case", "K": 2}
    return [
        start_run(folder / f"s{seed}", make_job(evolution={**settings, "seed": seed}), SilentObserver())
        for seed in range(3)
    ]


def measure(report: dict[str, Any], part: str, label: str) -> dict[str, Any]:
    [found] = [m for m in report["measures"] if (m["part"], m["measure"]) == (part, label)]
    return found


def test_means_and_spread_are_those_of_the_runs_own_reports(runs: Sequence[Path]) -> None:
    report = seed_report(runs)
    own = [load_report(run) for run in runs]
    assert [row["seed"] for row in report["runs"]] == [0, 1, 2] and [row["run"] for row in report["runs"]] == [
        run.name for run in runs
    ]
    for part in ("train", "valid", "test"):
        found = measure(report, part, "result, mean over questions")
        values = [r.data["scores"][part][r.best]["score"] for r in own]
        assert found["values"] == values and found["mean"] == pytest.approx(statistics.mean(values))
        assert found["sd"] == statistics.stdev(values) and found["interval"] == interval(values).to_dict()
        gain = measure(report, part, "gain over start")["values"]
        assert gain == [r.data["scores"][part][r.best]["score"] - r.data["scores"][part]["n00"]["score"] for r in own]
        by_question = [r.data["carry_over"]["gains"].get("over_start", {}).get(part) for r in own]
        means = [0.0 if g is None else g["mean"] for g in by_question]
        assert report["by_question"]["over_start"][part]["mean"] == pytest.approx(statistics.mean(means))
    gap = measure(report, "valid", "result, gap to test")["values"]
    assert gap == [r.data["scores"]["valid"][r.best]["score"] - r.data["scores"]["test"][r.best]["score"] for r in own]
    json.dumps(report)


def test_the_command_prints_all_three_faces(runs: Sequence[Path], capsys: pytest.CaptureFixture[str]) -> None:
    report = seed_report(runs)
    value = f"{measure(report, 'test', 'result, mean over questions')['mean']:.3f}"
    report_command(list(runs), as_json=True)
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(report))
    report_command(list(runs), as_markdown=True)
    text = capsys.readouterr().out
    assert text == seeds_markdown(report)
    report_command(list(runs))
    for face in (text, capsys.readouterr().out):
        assert "seeds 0, 1, 2" in face and value in face and "Over runs: test questions" in face
        assert "of 3 runs alone they are too narrow" in " ".join(face.split())
        assert str(runs[0].parent) not in face


@pytest.mark.parametrize(
    ("job", "evolution", "named"),
    [
        ({}, {"K": 3}, "K (2, 3)"),
        ({}, {"strategy": "prismem"}, "strategy (random-case, prismem)"),
        ({"segment_chars": 9000}, {}, "job.segment_chars (12000, 9000)"),
        ({"score": "judge"}, {}, "selection score ("),
    ],
    ids=str,
)
def test_runs_that_differ_in_more_than_the_seed_are_refused_by_name(
    runs: Sequence[Path], tmp_path: Path, make_job: Make, job: dict[str, Any], evolution: dict[str, Any], named: str
) -> None:
    other = make_job(job, {**NONE, "strategy": "random-case", "K": 2, "seed": 9, **evolution})
    # Budgets of iterations are settings, too: the other run differs in those as well, and both are named.
    run = start_run(tmp_path / "other", other, SilentObserver())
    with pytest.raises(RunError) as refused:
        seed_report([runs[0], run])
    assert named in str(refused.value) and "T1 (2, 0)" in str(refused.value)
    assert "differ in more than their seed" in str(refused.value)


def test_what_never_changes_a_result_may_differ(tmp_path: Path, make_job: Make) -> None:
    folder = [tmp_path / "one", tmp_path / "two"]
    jobs = [
        make_job({"workers": 1, "frozen_mib": 0}, {**NONE, "seed": 1}),
        make_job({"workers": 3}, {**NONE, "seed": 2}),
    ]
    for path, job in zip(folder, jobs, strict=True):
        start_run(path, job, SilentObserver())
    report = seed_report(folder)
    assert measure(report, "test", "result, mean over questions")["sd"] == 0.0
    assert report["by_question"]["over_start"]["test"]["mean"] == 0.0


def edited(run: Path, folder: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a run whose manifest is changed."""
    copy = folder / "edited"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("cache", "*.lock"))
    manifest = json.loads((copy / "run.json").read_text(encoding="utf-8"))
    edit(manifest)
    (copy / "run.json").write_text(json.dumps(manifest), encoding="utf-8")
    return copy


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (lambda m: m["data"].update(digest="f" * 64), "data ("),
        (lambda m: m.update(version="0.0.9"), "version (0.1.0, 0.0.9)"),
        (lambda m: m["roles"].update(chat="openai:other@http://x"), "role chat ("),
        (lambda m: m["extra"]["parts"].update(test=["else"]), "name one by a file"),
        (lambda m: m["extra"]["provenance"].update(category_map="0" * 16), "category map ("),
        (lambda m: m["extra"]["job"]["models"].update(task={"max_tokens": 5}), "models.task.max_tokens (none, 5)"),
    ],
    ids=["data", "version", "role", "split", "map", "model"],
)
def test_every_part_of_what_a_run_is_made_of_is_compared(
    runs: Sequence[Path], tmp_path: Path, edit: Callable[[dict[str, Any]], None], named: str
) -> None:
    with pytest.raises(RunError) as refused:
        seed_report([runs[0], edited(runs[1], tmp_path, edit)])
    assert named in str(refused.value)


def test_the_same_run_is_no_second_one(runs: Sequence[Path], tmp_path: Path) -> None:
    with pytest.raises(RunError, match="named twice"):
        seed_report([runs[0], runs[0].parent / "s1" / ".." / "s0"])
    link = tmp_path / "link"
    os.symlink(runs[0], link)
    with pytest.raises(RunError, match="named twice"):
        seed_report([runs[0], link])
    copy = edited(runs[0], tmp_path, lambda manifest: None)
    with pytest.raises(RunError, match="the same seed and the same scores"):
        seed_report([runs[0], copy])


def test_a_run_that_has_not_ended_is_refused(runs: Sequence[Path], tmp_path: Path) -> None:
    copy = edited(runs[1], tmp_path, lambda manifest: None)
    lines = (copy / "journal.jsonl").read_bytes().splitlines(keepends=True)
    names = [json.loads(line)["event"] for line in lines]
    end = names.index("run_finished")
    (copy / "journal.jsonl").write_bytes(b"".join(lines[:end]))
    with pytest.raises(RunError, match="has not ended; go on with `prismem resume"):
        seed_report([runs[0], copy])
    (copy / "journal.jsonl").write_bytes(b"".join(lines[: end + 1]))
    with pytest.raises(RunError, match="has not put the test questions to n00"):
        seed_report([runs[0], copy])


def test_runs_that_route_questions_show_the_router_beside_the_best_program(
    runs: Sequence[Path], tmp_path: Path
) -> None:
    assert not [m for m in seed_report(runs)["measures"] if m["measure"].startswith("router")]
    copies = [edited(run, tmp_path / run.name, lambda manifest: None) for run in runs[:2]]
    scores = []
    for copy in copies:
        lines = (copy / "journal.jsonl").read_bytes().splitlines(keepends=True)
        event = next(e for e in map(json.loads, lines) if e.get("purpose") == "test")
        scores.append(event["details"]["score"])
        event |= {"program": "router", "index": len(lines)}
        del event["details"]["usage"]
        (copy / "journal.jsonl").write_bytes(b"".join(lines) + json.dumps(event).encode() + b"\n")
    found = measure(seed_report(copies), "test", "router, mean over questions")
    assert found["values"] == scores and found["mean"] == pytest.approx(sum(scores) / 2)


def test_without_scipy_there_are_plain_means_and_one_sentence(
    runs: Sequence[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "statistics_installed", lambda: False)
    report = seed_report(runs)
    assert report["intervals"] is False
    assert all(m["interval"]["low"] is None and m["sd"] is not None for m in report["measures"])
    assert seeds_markdown(report).count(NO_INTERVALS) == 1
