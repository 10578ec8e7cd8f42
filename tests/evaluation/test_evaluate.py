"""Evaluation of a program on tasks: what counts as a failure, and that no failure becomes a score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from prismem_core.errors import DataError
from prismem_core.evaluation.evaluate import Evaluator
from prismem_core.evaluation.judge import LexicalJudge
from prismem_core.evaluation.scoring import JudgeScoring, OfflineScoring, Scoring
from prismem_core.pipeline.pipeline import Pipeline, PipelineResult
from prismem_core.pipeline.trace import Failure, StageUsage, Trace
from prismem_core.program.program import Program
from prismem_core.roles.protocols import Verdict
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.history import History, Session, Turn
from prismem_core.tasks.task import Dataset, Task

SAID = "I adopted a grey kitten."
ABSTENTION = "No information available"


def task(task_id: str, question: str, reference: str, **changes: Any) -> Task:
    primary = Capability.FACTUAL_RETRIEVAL if reference else Capability.ADVERSARIAL
    metric = "f1" if reference else "abstention"
    return Task(task_id, "h", question, reference, (SAID,), "", primary, (), metric, **changes)


ASKED = task("q0", "What did Ana adopt?", "a grey kitten")
TWIN = task("q1", "What did Ben adopt?", "", twin="q0")
HISTORY = History("h", (Session("1", "", (Turn("1", "Ana", SAID),)),))
DATASET = Dataset("small", {"h": HISTORY}, (ASKED, TWIN), "0" * 64, {}, 4)


class Scripted:
    """A pipeline whose answers are written down by question; it tells which questions it was given."""

    def __init__(self, answers: Mapping[str, str | Failure]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str]] = []

    def run(
        self,
        program: Program,
        histories: Mapping[str, History],
        questions: Sequence[tuple[str, str]],
        *,
        every: bool,
    ) -> PipelineResult:
        self.asked = list(questions)
        return PipelineResult(tuple(self._trace(question) for _, question in questions), {}, StageUsage())

    def _trace(self, question: str) -> Trace:
        found = self.answers[question]
        if isinstance(found, Failure):
            return Trace(question, failure=found)
        return Trace(question, {}, f"Ana: {SAID}", found)


class Unreadable:
    """A judge whose replies make no sense."""

    identity = "unreadable"

    def score(self, task: Task, answer: str) -> Verdict:
        return Verdict(None)


def evaluator(answers: Mapping[str, str | Failure], scoring: Scoring | None = None) -> tuple[Evaluator, Scripted]:
    pipeline = Scripted(answers)
    judge = LexicalJudge()
    return Evaluator(cast(Pipeline, pipeline), DATASET, judge, scoring or OfflineScoring(DATASET)), pipeline


def test_scores_of_what_ran() -> None:
    used, pipeline = evaluator({ASKED.question: "a grey kitten", TWIN.question: ABSTENTION})
    found = used.evaluate(Program(""), ["q0", "q1"])
    assert found.failure is None and found.scores == {"q0": 1.0, "q1": 1.0}
    assert pipeline.asked == [("h", ASKED.question), ("h", TWIN.question)]


def test_a_twin_outside_the_set_is_asked_but_gets_no_score() -> None:
    used, pipeline = evaluator({ASKED.question: ABSTENTION, TWIN.question: ABSTENTION})
    found = used.evaluate(Program(""), ["q1"])
    assert pipeline.asked == [("h", TWIN.question), ("h", ASKED.question)]
    assert found.scores == {"q1": 0.0}, "who declines the twin too has not understood the question"


def test_a_failed_task_has_no_score_and_is_named() -> None:
    broken = Failure("retrieve", "error", "it broke", 3)
    used, _ = evaluator({ASKED.question: "a grey kitten", TWIN.question: broken})
    found = used.evaluate(Program(""), ["q0", "q1"])
    assert found.failure == ("q1", broken)
    assert found.scores == {"q0": 1.0}
    assert found.outcomes["q1"].official.score is None


def test_a_failed_twin_fails_the_task_that_rests_on_it() -> None:
    broken = Failure("index", "limit:cpu", "too slow")
    used, _ = evaluator({ASKED.question: broken, TWIN.question: ABSTENTION})
    assert used.evaluate(Program(""), ["q1"]).failure == ("q1", broken)


def test_an_unreadable_judge_is_no_zero() -> None:
    used, _ = evaluator({ASKED.question: "a grey kitten", TWIN.question: ABSTENTION}, JudgeScoring(Unreadable()))
    found = used.evaluate(Program(""), ["q0"])
    assert found.scores == {} and found.outcomes["q0"].scored.score is None
    assert found.unscored == ("q0",) and found.failure is None, "the candidate is not to blame"
    assert found.outcomes["q0"].official.score == 1.0


def test_replies_are_cut_before_they_are_judged() -> None:
    used, _ = evaluator({ASKED.question: "one two  three four a grey kitten", TWIN.question: ABSTENTION})
    outcome = used.evaluate(Program(""), ["q0"]).outcomes["q0"]
    assert outcome.trace.answer == "one two three four"
    assert outcome.official.score == 0.0


def test_an_unknown_task_is_refused() -> None:
    used, pipeline = evaluator({})
    with pytest.raises(DataError, match="'q9'"):
        used.evaluate(Program(""), ["q0", "q9"])
    assert pipeline.asked == []


class ModelLike:
    """A judge of many answers at once that keeps what it was given."""

    identity = "model-like"

    def __init__(self) -> None:
        self.batches: list[list[tuple[str, str]]] = []

    def score_all(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        self.batches.append([(task.id, answer) for task, answer in pairs])
        return [Verdict(float("kitten" in answer), {"seen": 1.0}) for _, answer in pairs]


def test_a_model_judges_whole_answers_as_one_batch_and_the_official_metric_their_first_words() -> None:
    judge = ModelLike()
    long = "<think>Ana: I adopted a dog.</think> I think that she adopted a grey kitten"
    used, _ = evaluator({ASKED.question: long, TWIN.question: "no kitten"}, JudgeScoring(judge))
    found = used.evaluate(Program(""), ["q0", "q1"])
    assert judge.batches == [[("q0", "I think that she adopted a grey kitten"), ("q1", "no kitten")]]
    assert found.scores == {"q0": 1.0, "q1": 1.0} and found.unscored == ()
    outcome = found.outcomes["q0"]
    assert outcome.scored.parts == {"seen": 1.0} and outcome.trace.answer.endswith("grey kitten")
    assert outcome.official == LexicalJudge().score(ASKED, "I think that she")


def test_a_broken_task_is_not_judged_and_is_not_unscored() -> None:
    judge = ModelLike()
    broken = Failure("retrieve", "error", "it broke")
    used, _ = evaluator({ASKED.question: "a kitten", TWIN.question: broken}, JudgeScoring(judge))
    found = used.evaluate(Program(""), ["q0", "q1"])
    assert judge.batches == [[("q0", "a kitten")]]
    assert found.failure == ("q1", broken) and found.unscored == ()


@pytest.mark.parametrize(("kind", "counted"), [("error", "candidate"), ("limit:cpu", "limit")])
def test_a_question_whose_twin_broke_is_left_out_and_no_zero(kind: str, counted: str) -> None:
    broken = Failure("retrieve", kind, "it broke")
    used, _ = evaluator({ASKED.question: broken, TWIN.question: ABSTENTION})
    found = used.evaluate(Program(""), ["q1"])
    assert found.scores == {} and found.failure == ("q1", broken) and found.unscored == ()
    outcome = found.outcomes["q1"]
    assert (outcome.left_out, outcome.recall, outcome.official.score) == (counted, None, None)
    row = outcome.to_dict()
    assert row["left_out"] == counted and row["failure"] == {"stage": "retrieve", "kind": kind, "message": "it broke"}


def test_a_judge_that_looks_at_no_twin_scores_the_question_whose_twin_broke() -> None:
    judge = ModelLike()
    used, _ = evaluator({ASKED.question: Failure("retrieve", "error", "x"), TWIN.question: "b"}, JudgeScoring(judge))
    found = used.evaluate(Program(""), ["q0", "q1"])
    assert found.scores == {"q1": 0.0} and found.outcomes["q1"].left_out is None
