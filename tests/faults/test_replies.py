"""What models do to a reply that should be JSON: read where it can be, else a failure, asked again and counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prismem_core.errors import RoleError
from prismem_core.pipeline.answer import answer
from prismem_core.pipeline.plan import plan
from prismem_core.roles.protocols import ChatRequest
from tests.faults.conftest import INTERFACE, Chats, one_clear_line

SESSIONS = 3
READABLE = ("", "fenced", "prose_around", "think", "reasoning_field", "parts", "list_at_top")
UNREADABLE = (
    "only_reasoning",
    "only_reasoning_field",
    "empty",
    "null",
    "tool_call",
    "refusal",
    "prose",
)
STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@STREAMS
@pytest.mark.parametrize("shape", READABLE)
def test_json_is_found_whatever_stands_around_it(chats: Chats, shape: str, stream: bool) -> None:
    chats.server.play(default={"shape": shape})
    found = chats.extract(SESSIONS, stream=stream)
    assert [len(extraction.units) for extraction in found] == [4] * SESSIONS
    assert found[0].units[0]["memory_text"].startswith("Ines: I adopted a grey cat")
    assert [extraction.calls for extraction in found] == [1] * SESSIONS
    assert len(chats.server.requests("chat", "extract")) == SESSIONS


@STREAMS
@pytest.mark.parametrize("shape", UNREADABLE)
def test_a_reply_without_json_is_asked_again(chats: Chats, shape: str, stream: bool) -> None:
    chats.server.play({"purpose": "extract", "times": 1, "do": {"shape": shape}})
    found = chats.extract(SESSIONS, stream=stream)
    assert [len(extraction.units) for extraction in found] == [4] * SESSIONS
    assert sorted(extraction.calls for extraction in found) == [1] * (SESSIONS - 1) + [2]
    assert (
        "previous reply could not be used"
        in chats.server.requests("chat", "extract")[-1]["body"]["messages"][-1]["content"]
    )


@pytest.mark.parametrize("shape", UNREADABLE)
def test_one_that_never_comes_is_counted_and_named(chats: Chats, shape: str) -> None:
    chats.server.play({"contains": "on day 2", "do": {"shape": shape}})
    found = chats.extract(SESSIONS, retries=2)
    assert [bool(extraction.problem) for extraction in found] == [False, True, False]
    assert [len(extraction.units) for extraction in found] == [4, 0, 4]
    assert [extraction.calls for extraction in found] == [1, 3, 1]


def test_an_empty_list_is_an_answer(chats: Chats) -> None:
    chats.server.play(default={"shape": "empty_list"})
    found = chats.extract(SESSIONS)
    assert [(e.units, e.dropped, e.calls, e.problem) for e in found] == [((), 0, 1, "")] * SESSIONS


@STREAMS
@pytest.mark.parametrize("shape", ["half", "whitespace"])
def test_a_reply_cut_by_the_limit_is_a_failure_and_never_stored(chats: Chats, shape: str, stream: bool) -> None:
    chats.server.play({"purpose": "extract", "do": {"shape": shape}})
    found = chats.extract(SESSIONS, retries=1, stream=stream)
    assert [(e.units, e.calls) for e in found] == [((), 2)] * SESSIONS
    assert all("cut by the output limit" in e.problem for e in found)
    first = len(chats.server.requests())
    chats.server.play()
    # Nothing of the cut replies was kept: the same questions are asked anew, and now they are answered.
    again = chats.extract(SESSIONS, retries=1, stream=stream)
    assert [len(e.units) for e in again] == [4] * SESSIONS
    assert len(chats.server.requests()) == first + SESSIONS


def test_a_valid_object_in_a_cut_reply_is_no_answer(chats: Chats) -> None:
    chats.server.play({"times": 1, "do": {"finish": "length"}})
    found = chats.extract(1)
    assert (len(found[0].units), found[0].calls) == (4, 2)


def test_the_output_limit_is_that_of_the_settings(chats: Chats) -> None:
    chats.extract(1, max_tokens=3000)
    body = chats.server.requests()[0]["body"]
    assert body.get("max_tokens", body.get("max_completion_tokens")) == 3000


@pytest.mark.parametrize("shape", ["missing_field", "extra_field", "wrong_types", "not_finite"])
def test_units_out_of_form_never_reach_an_index(chats: Chats, shape: str) -> None:
    chats.server.play({"contains": "on day 2", "do": {"shape": shape}})
    found = chats.extract(SESSIONS)
    assert [len(extraction.units) for extraction in found] == [4, 0, 4]
    assert [extraction.dropped for extraction in found] == [0, 4, 0]
    words = {
        "missing_field": "memory_text",
        "extra_field": "confidence",
        "wrong_types": "weight",
        "not_finite": "weight",
    }
    code = {"wrong_types": "wrong_type", "not_finite": "nonfinite"}.get(shape, shape)
    faults = found[1].faults
    assert [fault.split(":")[0] for fault in faults] == ["unit 1", "unit 2", "unit 3", "unit 4"]
    assert all(f"{code} {words[shape]}" in fault for fault in faults)


@pytest.mark.parametrize(
    ("shape", "named"),
    [
        ("missing_field", "missing_field query_text"),
        ("extra_field", "extra_field confidence"),
        ("wrong_types", "wrong_type"),
        ("not_finite", "wrong_type query_text"),
    ],
)
def test_a_query_out_of_form_is_asked_again_with_the_field_named(chats: Chats, shape: str, named: str) -> None:
    chats.server.play({"purpose": "plan", "times": 1, "do": {"shape": shape}})
    chat = chats.cached(structured="json_schema")
    answered = plan(chat, INTERFACE, ["Where is the cat?"], retries=2, max_tokens=500)
    assert answered[0].value == {"query_text": "Where is the cat?", "limit": 500}
    assert answered[0].calls == 2
    assert named in chats.server.requests()[-1]["body"]["messages"][-1]["content"]


def test_an_answer_keeps_no_reasoning(chats: Chats) -> None:
    chats.server.play({"purpose": "answer", "do": {"text": "<think>In the memory I see Oslo.</think>\nOslo"}})
    replies = answer(chats.cached(), INTERFACE, ["Where?"], ["Ines lives in Oslo."], max_tokens=500)
    assert replies[0].text == "Oslo"


@STREAMS
@pytest.mark.parametrize(
    "script",
    [
        "\u65e5\u672c\u8a9e\u306e\u8a71",
        "\u0440\u0430\u0437\u0433\u043e\u0432\u043e\u0440 \u0418\u0440\u0438\u043d\u044b",
        "\U0001f408 caf\u00e9",
    ],
)
def test_names_keep_their_script(chats: Chats, script: str, stream: bool) -> None:
    chat = chats.client(stream=stream)
    text = chat.complete([request(f"<memory-0123456789ab>\n{script}\n</memory-0123456789ab>")])[0].text
    assert text == script
    assert script in chats.server.requests()[0]["body"]["messages"][-1]["content"]


def request(prompt: str, **more: Any) -> ChatRequest:
    """A free request."""
    return ChatRequest("ask", "You are brief.", prompt, max_tokens=500, **more)


@STREAMS
def test_tokens_are_those_of_the_server(chats: Chats, stream: bool) -> None:
    replies = chats.client(stream=stream).complete([request("Hello there"), request("Hello again, you")])
    totals = chats.server.totals
    assert sum(reply.input_tokens for reply in replies) == totals["prompt_tokens"]
    assert sum(reply.output_tokens for reply in replies) == totals["completion_tokens"]


@STREAMS
def test_reasoning_is_paid_though_it_is_not_read(chats: Chats, stream: bool) -> None:
    chats.server.play(default={"shape": "reasoning_field"})
    reply = chats.client(stream=stream).complete([request("Hello there")])[0]
    assert reply.output_tokens == chats.server.totals["completion_tokens"]
    assert "Let me see" not in reply.text


def test_without_counts_they_are_estimated(chats: Chats) -> None:
    chats.server.play(default={"usage": "none"})
    prompt = "word " * 100
    reply = chats.client().complete([request(prompt)])[0]
    assert 100 <= reply.input_tokens <= 200
    assert reply.output_tokens > 0


@pytest.mark.parametrize(
    "body",
    [
        '{"id": "x", "object": "chat.completion", "choices": [{"index": 0, "mess',
        '{"id": "x", "object": "chat.completion", "model": "m", "created": 1}',
        '{"id": "x", "object": "chat.completion", "model": "m", "created": 1, "choices": []}',
        '{"detail": "ok"}',
        "[]",
        "null",
        "",
    ],
)
def test_what_is_no_completion_is_the_servers_failure(chats: Chats, body: str) -> None:
    chats.server.play(default={"body": body})
    with pytest.raises(RoleError) as caught:
        chats.client(retries=1).complete([request("a private matter")])
    one_clear_line(str(caught.value))
    assert "private matter" not in str(caught.value)


def test_samples_of_a_call_have_seeds_of_their_own(chats: Chats) -> None:
    first = request("Hello there")
    chats.client(seed=40).complete([first, replace(first, sample=1)])
    assert sorted(e["body"]["seed"] for e in chats.server.requests()) == [40, 41]
