"""Structured replies: where the JSON is found, what counts as a failure, and what asking again costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from prismem_core.pipeline.extract import Extraction, extract
from prismem_core.pipeline.plan import plan
from prismem_core.pipeline.segment import Segment
from prismem_core.pipeline.structured import MOST_SAMPLES, Unusable, ask_structured, extract_json
from prismem_core.program.interface import FieldSpec, ProgramInterface, Schema
from prismem_core.roles.protocols import ChatReply, ChatRequest

INTERFACE = ProgramInterface(
    Schema((FieldSpec("text", "str"), FieldSpec("weight", "float"))),
    Schema((FieldSpec("query", "str"),)),
    "Extract.",
    "Plan.",
    "Answer.",
)
UNIT = {"text": "Ana rows", "weight": 0.5}


class Scripted:
    """Replies in the order of `replies`, whatever is asked; the last one for ever. Tells what it was asked."""

    identity = "scripted"

    def __init__(self, *replies: str, finish: Callable[[int], str] = lambda number: "stop") -> None:
        self.replies = list(replies)
        self.finish = finish
        self.seen: list[ChatRequest] = []

    def complete(self, requests: Sequence[ChatRequest], salt: str = "") -> list[ChatReply]:
        found = []
        for request in requests:
            text = self.replies[min(len(self.seen), len(self.replies) - 1)]
            found.append(ChatReply(text, 10, 2, self.finish(len(self.seen))))
            self.seen.append(request)
        return found


def units(*items: Any) -> str:
    return json.dumps({"memory_units": list(items)})


def extracted(chat: Scripted, retries: int = 2) -> Extraction:
    (found,) = extract(chat, INTERFACE, [Segment("Ana: I row.", ("1",))], retries=retries, max_tokens=100)
    return found


@pytest.mark.parametrize(
    "reply",
    [
        '{"a": {"b": 1}}',
        '```json\n{"a": {"b": 1}}\n```',
        'Here it is:\n```json\n{"a": {"b": 1}}\n```\nI hope it helps.',
        '{"a": {"b": 1}}\n\nI hope it helps.',
        'In the form {field}, as asked: {"a": {"b": 1}} and no more.',
        '<think>Perhaps {"a": 0}? No.</think>\n{"a": {"b": 1}}',
        '\n<THINK>hm</THINK> Sure: {"a": {"b": 1}}',
        '{"a": {"b": 1}} Once more: {"a":{"b":1}}',
        '{} no, this: {"a": {"b": 1}}',
    ],
)
def test_json_is_found_in_what_models_put_around_it(reply: str) -> None:
    assert json.loads(extract_json(reply)) == {"a": {"b": 1}}


@pytest.mark.parametrize(
    "reply",
    [
        '{"verdict": "yes"}{"verdict": "no"}',
        'Sure: {"verdict": "no"} wait, actually {"verdict": "yes"}',
        '```json\n{"verdict": "yes"}\n```\nor\n```json\n{"verdict": "no"}\n```',
    ],
)
def test_a_reply_that_contradicts_itself_is_none(reply: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting|Extra data"):
        json.loads(extract_json(reply))


def test_a_tag_inside_a_value_is_part_of_the_value() -> None:
    reply = json.dumps({"text": "she wrote <think>twice</think> and <think> again"})
    assert extract_json(reply) == reply


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "  \n",
        "I cannot do that.",
        '<think>The units are {"memory_units": []}</think>',
        '<think>The units are {"memory_units": []}',
        '{"memory_units": [{"memory_units": []}',
        '[{"text": "a"}]',
    ],
)
def test_a_reply_without_the_object_is_a_failure_that_is_asked_again(reply: str) -> None:
    chat = Scripted(reply)
    found = extracted(chat)
    assert found.units == () and found.problem
    assert (found.calls, found.input_tokens, found.output_tokens) == (3, 30, 6)
    assert [request.sample for request in chat.seen] == [0, 1, 2]
    assert found.problem in chat.seen[-1].prompt and found.problem not in chat.seen[0].prompt


def test_no_unit_at_all_is_an_answer() -> None:
    chat = Scripted(units())
    found = extracted(chat)
    assert (found.units, found.dropped, found.problem, found.calls) == ((), 0, "", 1)


def test_a_failure_is_mended_by_the_next_reply() -> None:
    found = extracted(Scripted("no", units(UNIT)))
    assert found.units == (UNIT,) and found.problem == "" and found.calls == 2
    assert extracted(Scripted("no", units(UNIT)), retries=0).units == ()


def test_a_reply_cut_by_the_output_limit_is_no_answer_even_if_it_parses() -> None:
    chat = Scripted(units(), units(UNIT), finish=lambda number: "length" if number == 0 else "stop")
    found = extracted(chat)
    assert found.units == (UNIT,) and found.calls == 2
    assert "output limit" in chat.seen[1].prompt


def test_units_out_of_form_are_dropped_and_counted_and_the_others_kept() -> None:
    wrong = [{"text": "x"}, {"text": 1, "weight": 0.5}, {"text": "x", "weight": float("nan")}, "x", None]
    found = extracted(Scripted(units(wrong[0], UNIT, *wrong[1:], UNIT)))
    assert found.units == (UNIT, UNIT)
    assert (found.dropped, found.problem, found.calls) == (len(wrong), "", 1)
    assert found.faults == (
        "unit 1: missing_field weight",
        "unit 3: wrong_type text",
        "unit 4: nonfinite weight",
        "unit 5: not_object",
        "unit 6: not_object",
    )


def test_a_query_is_valid_as_a_whole_or_asked_again() -> None:
    chat = Scripted(json.dumps({"query": 3}), json.dumps({"query": "rowing"}))
    (found,) = plan(chat, INTERFACE, ["What does Ana do?"], retries=1, max_tokens=100)
    assert found.value == {"query": "rowing"} and found.calls == 2
    assert "wrong_type query" in chat.seen[1].prompt


def test_only_what_failed_is_asked_again() -> None:
    chat = Scripted(json.dumps({"query": "one"}), "no", json.dumps({"query": "two"}))
    found = plan(chat, INTERFACE, ["first?", "second?"], retries=1, max_tokens=100)
    assert [state.value for state in found] == [{"query": "one"}, {"query": "two"}]
    assert [request.inputs["question"] for request in chat.seen] == ["first?", "second?", "second?"]


def test_a_try_after_a_cut_has_twice_the_room_up_to_a_ceiling() -> None:
    chat = Scripted(units(UNIT), finish=lambda number: "length" if number < 3 else "stop")
    (found,) = extract(chat, INTERFACE, [Segment("Ana: I row.", ("1",))], retries=3, max_tokens=20_000)
    assert found.units == (UNIT,)
    assert [request.max_tokens for request in chat.seen] == [20_000, 40_000, 65_536, 65_536]
    wide = Scripted(units(UNIT), finish=lambda number: "length" if number == 0 else "stop")
    extract(wide, INTERFACE, [Segment("Ana: I row.", ("1",))], retries=1, max_tokens=70_000)
    assert [request.max_tokens for request in wide.seen] == [70_000, 70_000], "a setting above the ceiling stays"
    assert [request.max_tokens for request in asked_again("no", "no", units(UNIT)).seen] == [100, 100, 100]


def asked_again(*replies: str) -> Scripted:
    chat = Scripted(*replies)
    extracted(chat)
    return chat


class Stored(Scripted):
    """The first `stored` replies come from the cache."""

    def __init__(self, *replies: str, stored: int) -> None:
        super().__init__(*replies)
        self.stored = stored

    def complete(self, requests: Sequence[ChatRequest], salt: str = "") -> list[ChatReply]:
        before = len(self.seen)
        found = super().complete(requests, salt)
        return [replace(reply, cached=before + i < self.stored) for i, reply in enumerate(found)]


def number(i: int, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Unusable("it is no number") from None


@pytest.mark.parametrize("stored", [0, 1, 3, 7])
def test_stored_replies_do_not_use_up_fresh_tries(stored: int) -> None:
    chat = Stored(*["no"] * (stored + 2), "7", stored=stored)
    request = ChatRequest("judge", "", "")
    (found,) = ask_structured(chat, lambda i, problem: request, 1, number, 2, fresh=True)
    assert found.value == 7 and found.calls == stored + 3
    assert [request.sample for request in chat.seen] == list(range(stored + 3))


def test_without_fresh_tries_a_stored_reply_is_a_try() -> None:
    chat = Stored("no", "no", "no", "7", stored=3)
    (found,) = ask_structured(chat, lambda i, problem: ChatRequest("plan", "", ""), 1, number, 2)
    assert found.value is None and found.calls == 3


def test_a_chat_that_says_that_all_is_stored_ends() -> None:
    chat = Stored("no", stored=10**9)
    (found,) = ask_structured(chat, lambda i, problem: ChatRequest("judge", "", ""), 1, number, 2, fresh=True)
    assert found.value is None and found.calls == MOST_SAMPLES
