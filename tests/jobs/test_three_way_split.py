"""What drove selection never decides the report, and what is reported never drove selection."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prismem_core.evolution.archive import Archive
from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.jobs.evolution_job import EvolutionJob, start_run
from prismem_core.runs.events import Evaluated, RunFinished
from prismem_core.runs.run import read_run
from prismem_core.tasks.datasets import load, write_jsonl

Make = Callable[..., EvolutionJob]


def journal(run: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (run / "journal.jsonl").read_bytes().splitlines()]
    return [{key: value for key, value in event.items() if key != "time"} for event in events]


def decisions(run: Path) -> list[dict[str, Any]]:
    """All that was journalled until the result stood."""
    events = journal(run)
    end = [event["event"] for event in events].index(RunFinished.name)
    return events[: end + 1]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, make_job: Make) -> Path:
    return start_run(tmp_path_factory.mktemp("runs") / "whole", make_job(), SilentObserver())


def test_other_test_questions_and_answers_change_no_decision(finished: Path, tmp_path: Path, make_job: Make) -> None:
    job = make_job()
    dataset = load(job.data)
    test = set(dataset.split(job.parts).test)
    tasks = tuple(
        replace(
            task, question=f"Of {task.id}, what is said?", reference="nothing", evidence=(), evidence_ids=(), twin=None
        )
        if task.id in test
        else task
        for task in dataset.tasks
    )
    other = tmp_path / "other.jsonl"
    write_jsonl(replace(dataset, tasks=tasks), other)
    run = start_run(tmp_path / "run", replace(job, data=str(other)), SilentObserver())
    assert decisions(run) == decisions(finished)
    assert journal(run) != journal(finished), "the test questions were put to other effect"


def test_no_test_question_is_asked_before_the_result_stands(finished: Path, make_job: Make) -> None:
    job = make_job()
    split = load(job.data).split(job.parts)
    asked = [set(event["scores"]) for event in decisions(finished) if event["event"] == Evaluated.name]
    assert asked and all(ids <= {*split.train, *split.valid} for ids in asked)
    after = [event for event in journal(finished)[len(decisions(finished)) :] if event["event"] == Evaluated.name]
    assert {event["purpose"] for event in after} == {"test"}
    assert all(set(event["scores"]) == set(split.test) for event in after)
    measured = [event["program"] for event in after]
    end = decisions(finished)[-1]
    assert measured == list(dict.fromkeys(["n00", end["base"], end["final"]]))


def test_scores_of_test_questions_reach_no_decision_of_the_archive(finished: Path) -> None:
    events = read_run(finished).events
    plain = Archive(events)
    scores = dict.fromkeys((*plain.train_ids, *plain.valid_ids), 1.0)
    spoilt: list[Any] = []
    for event in events:
        spoilt.append(event)
        if isinstance(event, Evaluated):
            # As good as can be, and on the very ids of the tasks that do decide.
            spoilt.append(Evaluated(event.iteration, event.program, "test", scores))
    found = Archive(spoilt)
    assert found.programs.keys() == plain.programs.keys()
    for program in plain.programs:
        assert found.program(program).scores == plain.program(program).scores
        assert found.program(program).full == plain.program(program).full
        assert found.accuracy(program) == plain.accuracy(program)
    assert found.choose_specialists() == plain.choose_specialists()
    assert (found.specialists, found.best, found.retained) == (plain.specialists, plain.best, plain.retained)
