"""Which questions of the real benchmarks are judged by which rule, and with how many calls."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from judge_chat import JudgeChat

from prismem_core.evaluation.judge_request import TEMPLATES, judge_request
from prismem_core.evaluation.judges import ModelJudge
from prismem_core.prompts.catalog import render
from prismem_core.roles.protocols import ChatRequest
from prismem_core.tasks.datasets import load
from prismem_core.tasks.native_types import longmemeval_capability
from prismem_core.tasks.task import Task


def rule(request: ChatRequest) -> str:
    """The form of a request, by its prompt."""
    shown = {key: str(value) for key, value in request.inputs.items()}
    return next(n for n, template in TEMPLATES.items() if render(template, problem="", **shown)[1] == request.prompt)


def replies(request: ChatRequest) -> str:
    assert request.schema is not None
    [name] = request.schema["properties"]
    return json.dumps({name: {"verdict": "yes", "score": 1, "order": [1]}[name]})


def test_questions_of_longmemeval(data_dir: Path) -> None:
    path = data_dir / "longmemeval" / "longmemeval_question_index.json"
    tasks = []
    for entry in json.loads(path.read_text(encoding="utf-8")):
        kind, own_id = entry["meta"]["question_type"], entry["id"]
        reference = str(entry["gold_answers"][0])
        primary = longmemeval_capability(own_id, kind)
        tasks.append(Task(own_id, own_id, entry["query"], reference, (), kind, primary, benchmark="longmemeval"))
    chat = JudgeChat(replies)
    assert {verdict.score for verdict in ModelJudge(chat).score_all([(task, task.reference) for task in tasks])} == {
        1.0
    }
    assert chat.batches == [301]
    assert Counter(map(rule, chat.seen)) == {
        "temporal": 76,
        "update": 43,
        "preference": 18,
        "longmemeval": 73 + 38 + 34,
        "abstention": 4 + 7 + 4 + 4,
    }


def test_questions_of_beam(data_dir: Path) -> None:
    dataset = load(data_dir / "beam" / "chats" / "100K" / "4")
    tasks = dataset.tasks
    assert len(tasks) == 20 and all(task.rubric for task in tasks)
    chat = JudgeChat(replies)
    verdicts = ModelJudge(chat).score_all([(task, "All of it.") for task in tasks])
    ordering = [task for task in tasks if task.native_type == "event_ordering"]
    items = sum(len(task.rubric) for task in tasks)
    assert Counter(map(rule, chat.seen)) == {"nugget": items, "order": 2} and chat.batches == [items + 2]
    for task, verdict in zip(tasks, verdicts, strict=True):
        if task in ordering:
            assert verdict.score is not None and 0.0 < verdict.score < 1.0 and verdict.parts["nugget_score"] == 1.0
        else:
            assert verdict.score == 1.0


def test_questions_of_locomo(data_dir: Path) -> None:
    dataset = load(data_dir / "locomo" / "locomo10_first6.json")
    tasks = dataset.tasks
    chat = JudgeChat(replies)
    verdicts = ModelJudge(chat).score_all([(task, "In May.") for task in tasks])
    assert Counter(map(rule, chat.seen)) == {"locomo": 885, "abstention": 272}
    assert all(verdict.score == 1.0 for verdict in verdicts)
    assert all("f1" in v.parts for v, task in zip(verdicts, tasks, strict=True) if not task.expects_abstention)


def test_questions_of_perltqa_and_of_whole_longmemeval_instances(data_dir: Path) -> None:
    for folder, expected in (
        (data_dir / "perltqa", {"perltqa": 41}),
        (data_dir / "longmemeval" / "longmemeval_s_2.json.gz", {"update": 1, "longmemeval": 1}),
        (data_dir / "longmemeval" / "longmemeval_oracle_1.json", {"abstention": 1}),
    ):
        chat = JudgeChat(replies)
        ModelJudge(chat).score_all([(task, "In May.") for task in load(folder).tasks])
        assert Counter(map(rule, chat.seen)) == expected


def test_a_rule_is_told_by_its_prompt() -> None:
    assert rule(judge_request("q", "r", "p", form="update")) == "update"
