"""Annotation by a model: what it is shown, which replies are labels, and what counts where none are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismem_core.evaluation.annotation import Annotation, annotate_tasks, annotation_request, read_annotation
from prismem_core.pipeline.structured import Unusable
from prismem_core.roles.protocols import ChatReply, ChatRequest
from prismem_core.tasks.capability import CAPABILITIES, MEANINGS, Capability
from prismem_core.tasks.task import Task

F, T, P, M, A = Capability
TASK = Task("h/1", "h", "When did Ana move?", "in May 2023", ('I moved "last week".', "Zoë helped"), "temporal", T)


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


def reply(primary: object, secondary: object) -> str:
    return json.dumps({"primary": primary, "secondary": secondary})


def test_the_annotator_sees_question_evidence_answer_rules_and_no_more() -> None:
    request = annotation_request(TASK)
    assert request.purpose == "annotate" and request.temperature == 0.0
    assert set(request.inputs) == {"question", "evidence", "reference"}
    assert json.loads(request.inputs["evidence"]) == list(TASK.evidence)
    for text in (TASK.question, request.inputs["evidence"], TASK.reference):
        assert text in request.prompt
    for capability, meaning in MEANINGS.items():
        assert f"`{capability}`: {meaning}" in request.prompt
    for part in ("## Your task", "would most directly prevent a correct answer", "none, one or two", "Examples:"):
        assert part in request.prompt
    assert '{"primary": string, "secondary": [string]}' in request.prompt
    assert "expert in long-term memory systems" in request.system


def test_labels_that_a_task_has_and_its_type_do_not_reach_the_annotator() -> None:
    other = replace(TASK, id="z", native_type="multi_hop", primary=M, secondary=(A,), labelled=True, benchmark="locomo")
    assert annotation_request(other).digest == annotation_request(TASK).digest


def test_a_question_without_an_answer_is_shown_as_one() -> None:
    bare = replace(TASK, reference="", evidence=())
    prompt = annotation_request(bare).prompt
    assert "the conversations hold no answer" in prompt and "\n[]\n" in prompt
    assert "the conversations hold no answer" not in annotation_request(TASK).prompt


@given(st.permutations(CAPABILITIES), st.integers(0, 2))
def test_every_valid_pair_is_read_in_canonical_order(order: list[Capability], count: int) -> None:
    primary, secondary = order[0], order[1 : 1 + count]
    found = read_annotation(reply(primary, secondary))
    assert found == Annotation(primary, tuple(c for c in CAPABILITIES if c in secondary))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("temporal", "no JSON object"),
        pytest.param("[" * 2000, "no JSON object", id="deep"),
        pytest.param('{"primary": ' * 2000, "no JSON object", id="deep object"),
        ("[]", "expected an object"),
        ("{}", 'field "primary" is missing; field "secondary" is missing'),
        (json.dumps({"primary": "temporal"}), 'field "secondary" is missing'),
        (json.dumps({"primary": "temporal", "secondary": [], "why": ""}), 'field "why" is not asked for'),
        (reply("time", []), '"primary" is "time"; expected one of: factual_retrieval, temporal'),
        (reply(None, []), '"primary" is null'),
        (reply(["temporal"], []), '"primary" is \\["temporal"\\]'),
        (reply("temporal", "adversarial"), '"secondary" is "adversarial"; expected a list'),
        (reply("temporal", None), '"secondary" is null; expected a list'),
        (reply("temporal", {"a": 1}), "expected a list"),
        (reply("temporal", ["time"]), '"secondary" holds "time"'),
        (reply("temporal", [["adversarial"]]), '"secondary" holds \\["adversarial"\\]'),
        (reply("temporal", ["temporal"]), "repeats the primary"),
        (reply("temporal", ["adversarial", "adversarial"]), "names a capability twice"),
        (reply("temporal", ["adversarial", "preference_extraction", "factual_retrieval"]), "has 3 items"),
        (reply("x", ["x", "x"]), '"primary" is "x".*holds "x".*twice'),
    ],
)
def test_every_broken_rule_is_named(text: str, problem: str) -> None:
    with pytest.raises(Unusable, match=problem):
        read_annotation(text)


def test_a_broken_reply_is_asked_again_and_the_native_type_counts_at_last() -> None:
    second = replace(TASK, id="h/2", question="Who?", primary=M, secondary=(A,))
    chat = Says(
        {
            TASK.question: [reply("temporal", ["temporal"]), f"```json\n{reply('adversarial', ['temporal'])}\n```"],
            second.question: [reply("none", [])],
        }
    )
    found = annotate_tasks(chat, [TASK, second], retries=2, max_tokens=64)
    assert found[0] == Annotation(A, (T,))
    assert (found[1].primary, found[1].secondary) == (M, ())
    assert '"primary" is "none"' in found[1].problem
    assert [request.sample for request in chat.requests] == [0, 0, 1, 1, 2]
    assert "repeats the primary" in chat.requests[2].prompt


def test_no_try_more_than_allowed_and_none_for_no_task() -> None:
    chat = Says({TASK.question: ["nothing"]})
    assert annotate_tasks(chat, [TASK], retries=0, max_tokens=64)[0].problem
    assert len(chat.requests) == 1
    assert annotate_tasks(chat, [], retries=0, max_tokens=64) == []
