"""Programs that break on some of the test questions: what is left out of which mean, in every face."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from prismem_core.evaluation import carry_over
from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.jobs.evaluation_job import evaluate_programs, evaluation_tables
from prismem_core.jobs.evolution_job import EvolutionJob, start_run
from prismem_core.jobs.reports import load_report
from prismem_core.program import library
from prismem_core.runs.events import Evaluated, Rejected
from prismem_core.runs.report.contents import contents
from prismem_core.runs.report.markdown import markdown
from prismem_core.runs.report.tables import NO_INTERVALS
from prismem_core.runs.report.terminal import render
from prismem_core.runs.run import Manifest, RunRecord
from prismem_core.tasks.datasets import load

Make = Callable[..., EvolutionJob]
NONE = {"T1": 0, "T2": 0, "T3": 0}
RETRIEVE = '        return "\\n".join(self.memories)[:OUT_CHAR_BUDGET]\n'
BREAKS = {
    "candidate": "1 / 0",
    "limit": "[self.backend.ask(f'what is {i} of {query.query_text}') for i in range(99)]",
}


def breaking(word: str, how: str) -> str:
    """The seed, which breaks on queries that hold `word`."""
    source = library.source("seed")
    assert source.count(RETRIEVE) == 1
    return source.replace(RETRIEVE, f"        if {word!r} in query.query_text.lower():\n            {how}\n{RETRIEVE}")


@pytest.fixture(scope="module")
def telling(make_job: Make) -> tuple[str, str]:
    """A test question, and a word of it that no other question has."""
    job = make_job()
    dataset = load(job.data)
    test = set(dataset.split(job.parts).test)
    counts = Counter(word for task in dataset.tasks for word in set(task.asked.lower().strip("?.").split()))
    for task in dataset.tasks:
        words = [w for w in task.asked.lower().strip("?.").split() if counts[w] == 1 and len(w) > 5 and w.isalpha()]
        twins = [other for other in dataset.tasks if other.twin == task.id]
        text = " ".join(other.asked.lower() for other in dataset.tasks if other.id != task.id)
        if task.id in test and not twins and any(w not in text for w in words):
            return task.id, next(w for w in words if w not in text)
    raise AssertionError("no question has a word of its own")


@pytest.mark.parametrize("kind", list(BREAKS))
def test_a_run_whose_program_breaks_on_a_test_question_shows_the_others_and_both_counts(
    tmp_path: Path, make_job: Make, telling: tuple[str, str], kind: str
) -> None:
    task_id, word = telling
    job = replace(make_job(evolution=NONE), start=breaking(word, BREAKS[kind]))
    count = len(load(job.data).split(job.parts).test)
    run = start_run(tmp_path / "run", job, SilentObserver())
    report = load_report(run)
    summary = report.data["scores"]["test"]["n00"]
    assert (summary["questions"], summary["scored"]) == (count, count - 1)
    assert summary["left_out"] == {"provider": 0, "judge": 0, "candidate": 0, "limit": 0} | {kind: 1}
    [event] = [
        e for e in map(json.loads, (run / "journal.jsonl").read_bytes().splitlines()) if e.get("purpose") == "test"
    ]
    assert task_id not in event["scores"] and len(event["scores"]) == count - 1
    assert summary["score"] == pytest.approx(sum(event["scores"].values()) / (count - 1))
    assert report.data["carry_over"]["programs"][0]["test"]["n"] == count - 1
    console = Console(file=io.StringIO(), width=240)
    console.print(render(report, 240, short=True))
    assert isinstance(console.file, io.StringIO)
    for text in (" ".join(console.file.getvalue().split()), markdown(report)):
        assert f"Left out of the means, n00: 1 {kind} (the program " in text
        assert f"{count - 1} of {count} questions scored" in text
        assert f"n00 broke on {task_id}: " in text


def test_an_evaluation_shows_what_ran_and_names_what_broke(
    small_data: Path, make_job: Make, tmp_path: Path, telling: tuple[str, str]
) -> None:
    task_id, word = telling
    program = tmp_path / "breaks.py"
    program.write_text(breaking(word, BREAKS["candidate"]), encoding="utf-8")
    rows = tmp_path / "rows.jsonl"
    job = make_job()
    result = evaluate_programs([str(program), "seed"], str(small_data), job.parts, "test", job.job, questions=rows)
    assert list(result["failed"]) == [str(program)] and "ZeroDivisionError" in result["failed"][str(program)]
    broken, whole = result["programs"][str(program)], result["programs"]["seed"]
    count = whole["questions"]
    assert (broken["scored"], whole["scored"]) == (count - 1, count)
    assert broken["left_out"]["candidate"] == 1 and broken["over"]["official"] == count - 1
    kept = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    assert [(row["program"], row["task"]) for row in kept if row["left_out"] == "candidate"] == [
        (str(program), task_id)
    ]
    table, official, *_ = evaluation_tables(result)
    assert [row[1] for row in table.rows] == [f"{count - 1} of {count}", f"{count} of {count}"]
    assert table.note.startswith("Left out of the means, breaks.py: 1 candidate (the program broke)")
    assert any(" of " in row[1] for row in official.rows) and not any(" of " in row[2] for row in official.rows)


def test_without_scipy_a_report_says_so_once(tmp_path: Path, make_job: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start_run(tmp_path / "run", make_job(evolution=NONE), SilentObserver())
    assert NO_INTERVALS not in markdown(load_report(run))
    monkeypatch.setattr(carry_over, "statistics_installed", lambda: False)
    report = load_report(run)
    assert markdown(report).count(NO_INTERVALS) == 1
    row = report.data["carry_over"]["programs"][0]
    assert row["test"]["mean"] == report.data["scores"]["test"]["n00"]["score"] and row["test"]["low"] is None


def test_proposals_that_came_to_nothing_are_counted_by_what_stopped_them(tmp_path: Path) -> None:
    reasons = [
        "execution:limit:cpu",
        "execution:error",
        "execution:died",
        "execution:unscored",
        "gate:target",
        "patch:x",
    ]
    events = (
        Evaluated(0, "n00", "full", {}),
        *(Rejected(1, 0, None, reason, "") for reason in reasons),
    )
    record = RunRecord(tmp_path, Manifest("0.1.0", {}, {}, {}, {"job": {}}), events)
    report = contents(record, None)
    assert report.data["rejections"] == {"limit": 1, "candidate": 2, "judge": 1, "gate": 1, "patch": 1}
