"""Jobs whose score is a model's verdict: whole answers in one batch, and what happens where none can be read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from prismem_core.clients.model_settings import ModelSettings, ModelSpec
from prismem_core.errors import JudgeError
from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.jobs.evaluation_job import evaluate_programs, evaluation_tables
from prismem_core.jobs.evolution_job import EvolutionJob, resume_run, start_run
from prismem_core.jobs.reports import load_report
from prismem_core.jobs.settings import build_job_settings
from prismem_core.roles.protocols import ChatReply, ChatRequest
from prismem_core.runs.events import RunFinished
from prismem_core.runs.report.markdown import markdown
from prismem_core.runs.run import read_run
from prismem_core.tasks.datasets import load

Make = Callable[..., EvolutionJob]
JUDGE = "openai:judge@http://localhost:1/v1"
OFFLINE = {"embedder": "hashing", "reranker": False}


class Judge:
    """Grades by the length of the answer; says nothing of use about questions in `silent`."""

    silent: ClassVar[set[str]] = set()
    seen: ClassVar[list[ChatRequest]] = []
    batches: ClassVar[list[int]] = []

    def __init__(self, spec: ModelSpec, settings: ModelSettings, engines: object) -> None:
        self.identity = settings.identity_of(spec)

    def complete(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        Judge.seen += requests
        Judge.batches.append(len(requests))
        return [ChatReply(self._reply(request), 10, 2) for request in requests]

    def _reply(self, request: ChatRequest) -> str:
        if request.inputs["question"] in Judge.silent:
            return "I cannot say."
        assert request.schema is not None
        if "verdict" in request.schema["properties"]:
            return json.dumps({"verdict": "yes" if len(request.inputs["prediction"]) % 2 else "no"})
        return json.dumps({"score": len(request.inputs["prediction"]) % 5 / 4})

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def judge(monkeypatch: pytest.MonkeyPatch) -> None:
    Judge.silent, Judge.seen, Judge.batches = set(), [], []  # type: ignore[misc]
    monkeypatch.setattr("prismem_core.jobs.models.make_chat", Judge)


def test_an_evaluation_by_a_judge_leaves_out_what_it_could_not_read(small_data: Path, tmp_path: Path) -> None:
    tasks = load(str(small_data)).tasks
    Judge.silent = {tasks[0].question}  # type: ignore[misc]
    silent = [task.id for task in tasks if task.question in Judge.silent]
    settings = build_job_settings({**OFFLINE, "judge": JUDGE})
    rows = tmp_path / "rows.jsonl"
    result = evaluate_programs(["bm25_rag"], str(small_data), None, "all", settings, questions=rows)
    assert result["failed"] == {} and result["score"].startswith("judge score (model judge 1: openai:judge@")
    summary = result["programs"]["bm25_rag"]
    assert (summary["questions"], summary["scored"]) == (len(tasks), len(tasks) - len(silent))
    assert summary["left_out"] == {"provider": 0, "judge": len(silent), "candidate": 0, "limit": 0}
    kept = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    scores = [row["score"] for row in kept if row["score"] is not None]
    assert summary["score"] == pytest.approx(sum(scores) / len(scores)) and len(scores) == summary["scored"]
    assert [row["task"] for row in kept if row["score"] is None] == silent
    assert all(row["official"] is not None and row["scored_by"] == result["score"] for row in kept)
    [table, *_] = evaluation_tables(result)
    assert f"{summary['scored']} of {len(tasks)} questions scored" in table.note
    assert f"{len(silent)} judge (no verdict of the judge could be read)" in table.note
    assert table.rows[0][1] == f"{summary['scored']} of {len(tasks)}"
    # All first calls as one batch, then those that could not be read, twice.
    assert Judge.batches == [len(tasks), len(silent), len(silent)]
    assert result["calls"]["judge/judge"]["calls"] == len(Judge.seen)


def test_a_judge_sees_whole_answers_and_nothing_that_was_retrieved(small_data: Path) -> None:
    settings = build_job_settings({**OFFLINE, "judge": JUDGE})
    dataset = load(str(small_data))
    evaluate_programs(["full_context"], str(small_data), None, "all", settings)
    evidence = {snippet for task in dataset.tasks for snippet in task.evidence}
    for request in Judge.seen:
        shown = request.system + request.prompt.replace(request.inputs["prediction"], "")
        assert not any(snippet in shown for snippet in evidence)
        assert set(request.inputs) == {"question", "reference", "prediction"}


def test_a_run_whose_judge_cannot_be_read_pauses_and_asks_again_on_resume(tmp_path: Path, make_job: Make) -> None:
    job = make_job(job={"judge": JUDGE, "output_retries": 1}, evolution={"T1": 0, "T2": 0, "T3": 0})
    dataset = load(job.data)
    first = dataset.task(dataset.split(job.parts).valid[0])
    Judge.silent = {first.question}  # type: ignore[misc]
    run = tmp_path / "run"
    with pytest.raises(JudgeError, match=first.id) as caught:
        start_run(run, job, SilentObserver())
    assert "could not be read" in str(caught.value) and "\n" not in str(caught.value)
    assert first.question not in str(caught.value)
    asked = [request.sample for request in Judge.seen if request.inputs["question"] == first.question]
    assert asked == [0, 1]
    with pytest.raises(JudgeError):
        resume_run(run, SilentObserver())
    asked = [request.sample for request in Judge.seen if request.inputs["question"] == first.question]
    assert asked == [0, 1, 2, 3], "what is stored is not paid again, and it is asked beyond it"
    Judge.silent = set()  # type: ignore[misc]
    resume_run(run, SilentObserver())
    assert any(isinstance(event, RunFinished) for event in read_run(run).events)
    keys = [request.digest for request in Judge.seen]
    assert len(keys) == len(set(keys)), "no call is made twice"


def test_the_same_run_without_trouble_has_the_same_history(tmp_path: Path, make_job: Make) -> None:
    job = make_job(job={"judge": JUDGE, "output_retries": 1}, evolution={"T1": 1, "T2": 1, "T3": 0})
    whole = start_run(tmp_path / "whole", job, SilentObserver())
    dataset = load(job.data)
    first = dataset.task(dataset.split(job.parts).valid[0])
    Judge.silent = {first.question}  # type: ignore[misc]
    with pytest.raises(JudgeError):
        start_run(tmp_path / "paused", job, SilentObserver())
    Judge.silent = set()  # type: ignore[misc]
    resume_run(tmp_path / "paused", SilentObserver())
    histories = []
    for run in (whole, tmp_path / "paused"):
        events = [json.loads(line) for line in (run / "journal.jsonl").read_bytes().splitlines()]
        histories.append([{k: v for k, v in event.items() if k != "time"} for event in events])
    assert histories[0] == histories[1]


def test_an_empty_answer_is_asked_for_again_then_counted(
    small_data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from prismem_core.clients.offline.chat import OfflineChat

    real = OfflineChat.complete
    asked: list[ChatRequest] = []
    tasks = load(str(small_data)).tasks
    empty, cut = tasks[0].question, tasks[1].question

    def complete(self: OfflineChat, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        replies = real(self, requests)
        for i, request in enumerate(requests):
            if request.purpose == "answer" and request.inputs["question"] in (empty, cut):
                asked.append(request)
                spoilt = {"text": "<think>well"} if request.inputs["question"] == empty else {"finish_reason": "length"}
                replies[i] = replace(replies[i], **spoilt)  # type: ignore[arg-type]
        return replies

    monkeypatch.setattr(OfflineChat, "complete", complete)
    rows = tmp_path / "rows.jsonl"
    settings = build_job_settings(OFFLINE)
    result = evaluate_programs(["bm25_rag"], str(small_data), None, "all", settings, questions=rows)
    summary = result["programs"]["bm25_rag"]
    assert (summary["unread_answers"], summary["cut_answers"], summary["scored"]) == (1, 1, summary["questions"])
    kept = {row["task"]: row for row in map(json.loads, rows.read_text(encoding="utf-8").splitlines())}
    assert kept[tasks[0].id]["answer"] == "" and kept[tasks[0].id]["defect"] == "empty"
    assert kept[tasks[0].id]["score"] == 0.0
    assert kept[tasks[1].id]["defect"] == "cut" and kept[tasks[1].id]["answer"]
    assert sorted(request.sample for request in asked) == [0, 0, 1, 1, 2, 2]
    assert "1 with an empty answer, 1 with an answer cut" in evaluation_tables(result)[0].note


def test_test_questions_without_a_verdict_are_left_out_of_the_report_and_counted(
    tmp_path: Path, make_job: Make
) -> None:
    job = make_job(job={"judge": JUDGE, "output_retries": 0}, evolution={"T1": 0, "T2": 0, "T3": 0})
    dataset = load(job.data)
    test = [dataset.task(i).question for i in dataset.split(job.parts).test]
    Judge.silent = set(test)  # type: ignore[misc]
    run = tmp_path / "run"
    with pytest.raises(JudgeError, match="test questions"):
        start_run(run, job, SilentObserver())
    Judge.silent = {test[0]}  # type: ignore[misc]
    resume_run(run, SilentObserver())
    [summary] = load_report(run).data["scores"]["test"].values()
    assert (summary["questions"], summary["scored"], summary["left_out"]["judge"]) == (len(test), len(test) - 1, 1)
    said = "Left out of the means, n00: 1 judge (no verdict of the judge could be read); "
    assert f"{said}{len(test) - 1} of {len(test)} questions scored." in markdown(load_report(run))
