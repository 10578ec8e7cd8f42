"""What the laboratory hands the journal does not depend on what it has kept in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from scripted_laboratory import task

from prismem_core.evaluation.evaluate import Evaluation, Evaluator, Outcome
from prismem_core.evaluation.scoring import Scored
from prismem_core.evolution.task_laboratory import TaskLaboratory
from prismem_core.pipeline.pipeline import PipelineSettings
from prismem_core.pipeline.trace import Failure, StageUsage, Trace
from prismem_core.program.program import Program
from prismem_core.program.sandbox import Sandbox
from prismem_core.roles.ledger import Ledger
from prismem_core.roles.protocols import Verdict
from prismem_core.tasks.task import Task

TASKS = [task("t0", "temporal"), task("t1", "adversarial"), task("v0", "temporal")]
SCORES = {"t0": 0.25, "t1": 0.75, "v0": 1.0}


class Counted:
    """An evaluator whose scores are written down; tasks in `broken` fail. It tells what it was asked for."""

    pipeline = SimpleNamespace(settings=PipelineSettings())

    def __init__(self, broken: Sequence[str] = ()) -> None:
        self.dataset = self
        self.histories: Mapping[str, Any] = {}
        self.broken = broken
        self.asked: list[tuple[str, ...]] = []

    def evaluate(self, program: Program, task_ids: Sequence[str]) -> Evaluation:
        self.asked.append(tuple(task_ids))
        outcomes = {t.id: self._outcome(t) for t in TASKS if t.id in task_ids}
        failure = next(((i, Failure("retrieve", "error", "it broke")) for i in task_ids if i in self.broken), None)
        return Evaluation(outcomes, failure, StageUsage(), 0, 0, {})

    def _outcome(self, asked: Task) -> Outcome:
        score = None if asked.id in self.broken else SCORES[asked.id]
        return Outcome(asked, Scored(score), Verdict(score), None, Trace(asked.question))


def laboratory(evaluator: Counted) -> TaskLaboratory:
    return TaskLaboratory(
        cast(Evaluator, evaluator), TASKS[:2], TASKS[2:], cast(Sandbox, None), Ledger(), cast(Any, None)
    )


def test_a_part_is_measured_as_itself_after_the_whole_was() -> None:
    evaluator = Counted()
    used = laboratory(evaluator)
    whole = used.evaluate("n01", "x = 1\n", ("t0", "t1", "v0"), "full")
    assert whole.details["questions"] == 3
    part = used.evaluate("n02", "x = 1\n", ("t0",), "target")
    fresh = laboratory(Counted()).evaluate("n02", "x = 1\n", ("t0",), "target")
    assert part == fresh
    assert part.details["questions"] == 1 and part.details["score"] == 0.25
    assert evaluator.asked == [("t0", "t1", "v0"), ("t0",)]


def test_a_task_that_was_not_asked_for_fails_nobody() -> None:
    used = laboratory(Counted(broken=["v0"]))
    assert used.evaluate("n01", "x = 1\n", ("t0", "t1", "v0"), "full").failure is not None
    assert used.evaluate("n02", "x = 1\n", ("t0", "t1"), "target").failure is None


def test_the_same_set_is_measured_once() -> None:
    evaluator = Counted()
    used = laboratory(evaluator)
    assert used.evaluate("n01", "x = 1\n", ("t0",), "target") == used.evaluate("n01", "x = 1\n", ("t0",), "target")
    assert evaluator.asked == [("t0",)]
