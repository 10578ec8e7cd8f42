"""What a task's benchmark has its judge asked, and how the grades become one verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from prismem_core.evaluation.judge import LexicalJudge
from prismem_core.evaluation.judge_request import Form, judge_request, order_request
from prismem_core.evaluation.judges.event_order import order_score
from prismem_core.evaluation.judges.readings import read_grade, read_nugget, read_order, read_verdict
from prismem_core.evaluation.means import mean
from prismem_core.roles.protocols import ChatRequest, Verdict
from prismem_core.tasks.task import Task

_LONGMEMEVAL: dict[str, Form] = {
    "single-session-user": "longmemeval",
    "single-session-assistant": "longmemeval",
    "multi-session": "longmemeval",
    "temporal-reasoning": "temporal",
    "knowledge-update": "update",
    "single-session-preference": "preference",
}


@dataclass(frozen=True)
class Call:
    """One question to the judge: `request(problem, max_tokens)` renders it, `read` takes the grade from the reply."""

    request: Callable[[str, int], ChatRequest]
    read: Callable[[str], Any]


@dataclass(frozen=True)
class Grading:
    """The calls for one answer and the verdict that their grades make."""

    calls: tuple[Call, ...]
    verdict: Callable[[Sequence[Any]], Verdict]


def grading(task: Task, answer: str) -> Grading:
    """How the answer is graded: by the rules of `Task.benchmark`, by its rubric or whether to abstain, else by its
    reference.
    """
    if task.rubric and (task.benchmark == "beam" or (not task.benchmark and task.metric == "rubric")):
        return _by_order(task, answer) if task.native_type == "event_ordering" else _by_rubric(task, answer)
    form = _form(task)
    read = read_grade if form == "general" else read_verdict
    verdict = partial(_beside_the_metrics, task, answer) if task.benchmark == "locomo" else _single
    return Grading((_call(form, task.question, task.reference, answer, read),), verdict)


def _form(task: Task) -> Form:
    if task.expects_abstention or (task.benchmark == "longmemeval" and task.id.endswith("_abs")):
        return "abstention"
    match task.benchmark:
        case "longmemeval":
            return _LONGMEMEVAL.get(task.native_type, "longmemeval")
        case "locomo":
            return "locomo"
        case "perltqa":
            return "perltqa"
    return "general"


def _call(form: Form, question: str, reference: str, answer: str, read: Callable[[str], Any]) -> Call:
    return Call(
        lambda problem, max_tokens: judge_request(
            question, reference, answer, form=form, problem=problem, max_tokens=max_tokens
        ),
        read,
    )


def _single(grades: Sequence[float]) -> Verdict:
    return Verdict(grades[0])


def _beside_the_metrics(task: Task, answer: str, grades: Sequence[float]) -> Verdict:
    return Verdict(grades[0], LexicalJudge().score(task, answer).parts)


def _nuggets(task: Task, answer: str) -> tuple[Call, ...]:
    return tuple(_call("nugget", task.question, item, answer, read_nugget) for item in task.rubric)


def _by_rubric(task: Task, answer: str) -> Grading:
    return Grading(_nuggets(task, answer), _nugget_verdict)


def _nugget_verdict(grades: Sequence[float]) -> Verdict:
    """The mean of the grades: half a nugget counts half."""
    parts = {"nuggets": len(grades), "met": grades.count(1.0), "met_in_part": grades.count(0.5)}
    return Verdict(mean(grades), {name: float(count) for name, count in parts.items()})


def _by_order(task: Task, answer: str) -> Grading:
    """The order decides; what the nuggets alone would give is shown beside it."""
    events = task.rubric
    order = Call(
        lambda problem, max_tokens: order_request(
            task.question, events, answer, problem=problem, max_tokens=max_tokens
        ),
        partial(read_order, events=len(events)),
    )

    def verdict(grades: Sequence[Any]) -> Verdict:
        found = order_score(grades[0], len(events))
        nuggets = _nugget_verdict(grades[1:])
        parts = {"precision": found.precision, "recall": found.recall, "f1": found.f1, "tau": found.tau}
        return Verdict(found.score, {**parts, "nugget_score": nuggets.score or 0.0, **nuggets.parts})

    return Grading((order, *_nuggets(task, answer)), verdict)
