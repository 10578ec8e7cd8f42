"""Routing of questions: what the classifier sees and says, and that routed answers are scored as one system."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from prismem_core.clients.offline.chat import OfflineChat
from prismem_core.evaluation.evaluate import Evaluator
from prismem_core.evaluation.judge import LexicalJudge
from prismem_core.evaluation.routing import (
    Routes,
    classify,
    evaluate_routed,
    read_capability,
    routing_request,
    routing_summary,
    with_classification,
)
from prismem_core.evaluation.scoring import OfflineScoring
from prismem_core.pipeline.pipeline import Pipeline, PipelineResult
from prismem_core.pipeline.structured import Unusable
from prismem_core.pipeline.trace import Failure, StageUsage, Trace
from prismem_core.program.program import Program
from prismem_core.roles.ledger import Ledger
from prismem_core.roles.protocols import ChatReply, ChatRequest
from prismem_core.tasks.capability import MEANINGS, Capability
from prismem_core.tasks.history import History, Session, Turn
from prismem_core.tasks.task import Dataset, Task

F, T, P, M, A = Capability


class Says:
    """A chat that gives the replies of a question in turn, the last one for ever."""

    identity = "says"

    def __init__(self, replies: Mapping[str, Sequence[str]]) -> None:
        self.replies = {question: list(texts) for question, texts in replies.items()}
        self.requests: list[ChatRequest] = []

    def complete(self, requests: Sequence[ChatRequest], salt: str = "") -> list[ChatReply]:
        self.requests += requests
        texts = [self.replies[str(request.inputs["question"])] for request in requests]
        return [ChatReply(own.pop(0) if len(own) > 1 else own[0], 7, 3) for own in texts]


def test_the_classifier_sees_the_question_the_five_capabilities_and_no_more() -> None:
    request = routing_request("When did Ana paint?")
    assert request.purpose == "route" and request.temperature == 0.0
    assert request.inputs == {"question": "When did Ana paint?"}
    for capability, meaning in MEANINGS.items():
        assert f"`{capability}`: {meaning}" in request.prompt
    assert request.schema is not None
    assert request.schema["properties"]["capability"]["enum"] == [str(c) for c in Capability]


@pytest.mark.parametrize("capability", Capability)
def test_each_identifier_is_read(capability: Capability) -> None:
    assert read_capability(json.dumps({"capability": capability})) is capability


@pytest.mark.parametrize(
    "text",
    [
        *("", "temporal", '"temporal"', "[]", "{}", "nul", "3", "NaN"),
        *('{"capability": "time"}', '{"capability": "Temporal"}', '{"capability": null}'),
        *('{"capability": ["temporal"]}', '{"capability": "temporal", "why": "when"}'),
        pytest.param("[" * 2000, id="deep"),
        pytest.param('{"capability": ' * 2000, id="deep object"),
    ],
)
def test_anything_else_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(Unusable, match=r"capability|JSON object"):
        read_capability(text)


def test_an_invalid_reply_is_asked_again_with_the_reason_and_given_up_at_last() -> None:
    good, bad = '{"capability": "temporal"}', '{"capability": "time"}'
    chat = Says({"q": [bad, f"It is:\n```json\n{good}\n```"], "r": [bad]})
    answered = classify(chat, ["q", "r"], retries=2, max_tokens=64)
    assert [one.value for one in answered] == [T, None]
    assert [one.calls for one in answered] == [2, 3]
    again = chat.requests[2]
    assert again.sample == 1 and '"time" is no capability; expected one of: factual_retrieval' in again.prompt


@pytest.mark.parametrize(
    ("question", "capability"),
    [
        ("What colour is Ana's kayak?", F),
        ("When did Ana paint the lake?", T),
        ("How many days passed between the two trips?", T),
        ("Can you list the order in which I brought up the ideas?", T),
        ("What did John attend in March 2023?", T),
        ("What was I doing in the summer of 2021?", T),
        ("Have I ever enrolled in a course?", A),
        ("Can you recommend a film for tonight?", P),
        ("I'm planning a trip. How should I pack?", P),
        ("What events has John taken part in?", M),
        ("Can you summarize my plans?", M),
        ("", F),
    ],
)
def test_the_embedded_model_classifies_by_rules(question: str, capability: Capability) -> None:
    [reply] = OfflineChat().complete([routing_request(question)])
    assert read_capability(reply.text) is capability


# Whole evaluations over a pipeline whose answers are written down by program and question.

HISTORY = History("h", (Session("1", "", (Turn("1", "Ana", "I adopted a grey kitten."),)),))
ADOPTED = Task("q0", "h", "What did Ana adopt?", "a grey kitten", (), "", F)
WHEN = Task("q1", "h", "When?", "in May", (), "", T)
TWIN = Task("q2", "h", "What did Ben adopt?", "", (), "", A, (), "abstention", twin="q0")
DATASET = Dataset("small", {"h": HISTORY}, (ADOPTED, WHEN, TWIN), "0" * 64, {}, 4)
NOTHING = "No information available"


class Scripted:
    """A pipeline by program source and question; it keeps which program was asked what."""

    def __init__(self, answers: Mapping[tuple[str, str], str | Failure], ledger: Ledger) -> None:
        self.answers = answers
        self.asked: list[tuple[str, list[str]]] = []
        self._ledger = ledger

    def run(
        self, program: Program, histories: Mapping[str, History], questions: Sequence[tuple[str, str]], *, every: bool
    ) -> PipelineResult:
        self.asked.append((program.source, [question for _, question in questions]))
        self._ledger.record("chat", "answer", "k", 1, 1)
        usage = StageUsage()
        usage.add("answer", len(questions), 10, 1)
        return PipelineResult(tuple(self._trace(program.source, question) for _, question in questions), {}, usage)

    def _trace(self, source: str, question: str) -> Trace:
        found = self.answers[source, question]
        return Trace(question, failure=found) if isinstance(found, Failure) else Trace(question, {}, found, found)


SOURCES = {"n00": "x = 0\n", "n01": "x = 1\n", "n02": "x = 2\n"}
ROUTES = Routes({F: "n01", T: "n02", P: "n00", M: "n00", A: "n00"}, "n00")


def answers(**given: str | Failure) -> dict[tuple[str, str], str | Failure]:
    """By `program_question`; whatever is not given says that nothing is known."""
    tasks = {task.id: task.question for task in DATASET.tasks}
    whole: dict[tuple[str, str], str | Failure] = {(s, q): NOTHING for s in SOURCES.values() for q in tasks.values()}
    for name, text in given.items():
        program, question = name.split("_")
        whole[SOURCES[program], tasks[question]] = text
    return whole


def routed(
    said: Mapping[tuple[str, str], str | Failure], chosen: Mapping[str, Capability | None], *wanted: str
) -> tuple[Any, Scripted, Ledger]:
    ledger = Ledger()
    pipeline = Scripted(said, ledger)
    evaluator = Evaluator(cast(Pipeline, pipeline), DATASET, LexicalJudge(), OfflineScoring(DATASET))
    programs = {name: Program(source) for name, source in SOURCES.items()}
    ids = wanted or tuple(task.id for task in DATASET.tasks)
    return evaluate_routed(evaluator, ids, chosen, ROUTES, programs, ledger), pipeline, ledger


NATIVE: Mapping[str, Capability | None] = {task.id: task.primary for task in DATASET.tasks}


def test_each_question_goes_to_the_program_of_its_capability_and_no_other() -> None:
    done, pipeline, ledger = routed(answers(n01_q0="a grey kitten", n02_q1="in May"), NATIVE)
    assert pipeline.asked == [
        (SOURCES["n01"], [ADOPTED.question]),
        (SOURCES["n02"], [WHEN.question]),
        (SOURCES["n00"], [TWIN.question]),
    ]
    assert done.evaluation.scores == {"q0": 1.0, "q1": 1.0, "q2": 1.0}
    assert list(done.evaluation.outcomes) == ["q0", "q1", "q2"]
    assert done.evaluation.usage.to_dict()["stages"]["answer"] == {
        "calls": 3,
        "input_tokens": 30,
        "output_tokens": 3,
    }
    assert [(part.program, part.tasks) for part in done.parts] == [("n01", ("q0",)), ("n02", ("q1",)), ("n00", ("q2",))]
    assert {program for program, _, _ in ledger.by_purpose()} == {"n00", "n01", "n02"}


def test_a_question_without_a_valid_prediction_goes_to_the_best_program() -> None:
    said = answers(n00_q0="a grey kitten", n00_q1="in May")
    done, pipeline, _ = routed(said, {"q0": None, "q1": None, "q2": None})
    assert pipeline.asked == [(SOURCES["n00"], [task.question for task in DATASET.tasks])]
    assert done.evaluation.scores == {"q0": 1.0, "q1": 1.0, "q2": 1.0}


def test_declining_counts_only_where_the_twin_is_answered_by_its_own_program() -> None:
    # The program of the abstention knows the twin's answer, but the twin is routed to one that does not.
    done, _, _ = routed(answers(n00_q0="a grey kitten"), NATIVE, "q2")
    assert done.evaluation.scores == {"q2": 0.0}
    done, _, _ = routed(answers(n01_q0="a grey kitten"), NATIVE, "q2")
    assert done.evaluation.scores == {"q2": 1.0}
    assert [(part.program, part.tasks) for part in done.parts] == [("n00", ("q2",)), ("n01", ())]


def test_a_program_that_fails_on_a_question_leaves_the_others_their_scores() -> None:
    broken = Failure("retrieve", "error", "no such key", 3)
    done, _, _ = routed(answers(n01_q0="a grey kitten", n02_q1=broken), NATIVE)
    assert done.evaluation.failure == ("q1", broken)
    assert set(done.evaluation.scores) == {"q0", "q2"}


def test_the_summary_counts_what_went_where_and_what_agrees() -> None:
    chosen = {**NATIVE, "q1": F, "q2": None}
    done, _, _ = routed(answers(), chosen)
    summary = routing_summary("question", DATASET.tasks, chosen, ROUTES, done.parts)
    assert summary["sent"] == {"n01": 2, "n00": 1}
    assert (summary["questions"], summary["agreeing"]) == (3, 1)
    assert summary["predicted"] == {"q0": "factual_retrieval", "q1": "factual_retrieval", "q2": None}
    rows = {row["capability"]: row for row in summary["by_capability"]}
    assert {k: rows["factual_retrieval"][k] for k in ("program", "questions", "agreeing", "native")} == {
        "program": "n01",
        "questions": 2,
        "agreeing": 1,
        "native": 1,
    }
    assert rows[None]["questions"] == 1 and rows[None]["program"] == "n00" and rows[None]["native"] == 0
    assert summary == json.loads(json.dumps(summary))


def test_classification_is_a_stage_of_the_cost() -> None:
    done, _, _ = routed(answers(), NATIVE)
    answered = classify(Says({"q": ['{"capability": "temporal"}']}), ["q"], retries=0, max_tokens=64)
    usage = with_classification(done.evaluation, answered).usage.to_dict()
    assert usage["stages"]["route"] == {"calls": 1, "input_tokens": 7, "output_tokens": 3}
    assert usage["stages"]["answer"] == done.evaluation.usage.to_dict()["stages"]["answer"]
    assert "route" not in done.evaluation.usage.to_dict()["stages"]


def test_the_native_type_is_that_of_the_task_whatever_was_predicted() -> None:
    tasks = [replace(task, secondary=()) for task in DATASET.tasks]
    summary = routing_summary("oracle", tasks, NATIVE, ROUTES, ())
    assert summary["agreeing"] == summary["questions"] == 3
    assert [row["native"] for row in summary["by_capability"]] == [1, 1, 0, 0, 1, 0]
