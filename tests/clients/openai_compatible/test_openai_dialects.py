"""How JSON is asked for: the probe and what it costs, refusals, replies with reasoning, parameters given up."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from prismem_core.clients.openai_compatible.completion import Completion, read_completion
from prismem_core.clients.openai_compatible.dialect import obeys
from prismem_core.errors import RoleError
from prismem_core.roles.account import Account
from prismem_core.roles.budget import Budget
from prismem_core.roles.ledger import Ledger
from prismem_core.roles.protocols import ChatRequest

SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "number"}},
    "required": ["score"],
    "additionalProperties": False,
}
OTHER = {**SCHEMA, "title": "other"}


def ask(count: int = 1, schema: dict[str, Any] | None = SCHEMA, **more: Any) -> list[ChatRequest]:
    return [ChatRequest("judge", "", f"Grade answer {i}.", schema=schema, **more) for i in range(count)]


def forms(server: Any) -> list[str]:
    """What each chat request asked for."""
    found = []
    for entry in server.requests():
        given = entry["body"].get("response_format") or {"type": "text"}
        found.append(given["type"] + ("_schema" if "schema" in given else ""))
    return found


SERVERS = {
    "json_schema": {},
    "json_object_schema": {"forms": {"json_schema": "refuse", "json_object_schema": "enforce"}},
    "json_object": {"forms": {"json_schema": "ignore", "json_object_schema": "refuse"}},
    "text": {"forms": {"json_schema": "ignore", "json_object_schema": "ignore", "json_object": "ignore"}},
}


@pytest.mark.parametrize("form", list(SERVERS))
def test_the_probe_finds_what_the_server_enforces(
    make: Any, scripted_server: Any, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    scripted_server.play(default=SERVERS[form])
    chat = make.chat(scripted_server)
    ledger = Ledger()
    chat.account = Account("task", ledger, Budget())
    with caplog.at_level(logging.INFO, "prismem_core"):
        replies = chat.complete(ask(12))
        replies += chat.complete(ask(1, OTHER))
    used = forms(scripted_server)
    assert used[-13:] == [form] * 13
    assert len(used) - 13 <= 3
    told = [record for record in caplog.records if "is asked for" in record.message]
    assert [record.levelno for record in told] == [logging.INFO if form == "json_schema" else logging.WARNING]
    for reply in replies:
        assert set(json.loads(reply.text)) == {"score"}
    probes = ledger.totals()[("task", "probe")]
    spent = sum(reply.input_tokens for reply in replies) + probes.input_tokens
    assert spent == scripted_server.totals["prompt_tokens"]
    written = sum(reply.output_tokens for reply in replies) + probes.output_tokens
    assert written == scripted_server.totals["completion_tokens"]
    assert chat.account._budget.spent()["task"].input_tokens == spent


def test_a_form_that_the_settings_name_is_not_probed(make: Any, scripted_server: Any) -> None:
    make.chat(scripted_server, structured="json_object").complete(ask(2))
    assert forms(scripted_server) == ["json_object"] * 2
    assert "JSON schema" in scripted_server.requests()[0]["body"]["messages"][0]["content"]
    scripted_server.play(default={"forms": {"json_object": "refuse"}})
    with pytest.raises(RoleError, match="structured = 'json_object' was asked for, 'auto' finds"):
        make.chat(scripted_server, structured="json_object").complete(ask(1))


def test_text_alone_needs_no_probe(make: Any, scripted_server: Any) -> None:
    make.chat(scripted_server).complete(ask(2, None))
    assert forms(scripted_server) == ["text"] * 2


def test_a_probe_that_fails_is_made_again_later(make: Any, scripted_server: Any) -> None:
    scripted_server.play({"times": 1, "do": {"status": 401}})
    chat = make.chat(scripted_server)
    with pytest.raises(RoleError):
        chat.complete(ask(5))
    assert len(scripted_server.requests()) == 1
    assert len(chat.complete(ask(5))) == 5


def test_a_schema_that_is_refused_is_asked_for_in_other_ways(make: Any, scripted_server: Any) -> None:
    refused = {
        "status": 400,
        "error": "Invalid schema for response_format 'reply': 'required' must list every property.",
    }
    scripted_server.play({"contains": "Grade", "times": 2, "do": refused})
    chat = make.chat(scripted_server, concurrency=1)
    assert json.loads(chat.complete(ask(1))[0].text)["score"] is not None
    sent = [e["body"].get("response_format", {}) for e in scripted_server.requests()]
    assert [body.get("type") for body in sent] == ["json_schema"] * 3 + ["json_object"]
    assert [body["json_schema"]["strict"] for body in sent[1:3]] == [True, False]


@pytest.mark.parametrize(
    ("text", "finish", "obeyed"),
    [
        ('{"tide": "ebb"}', "stop", True),
        ('```json\n{"tide": "flood"}\n```', "stop", True),
        ('{ "ti', "length", True),
        ("{\n\n\n\n\n", "length", True),
        ('{ "ti', "stop", False),
        ("The sea is wide.", "stop", False),
        ("The sea is", "length", False),
        ('{"sea": "wide"}', "stop", False),
        ("", "length", None),
        (" \n ", "stop", None),
    ],
)
def test_what_a_reply_to_the_probe_tells(text: str, finish: str, obeyed: bool | None) -> None:
    assert obeys("json_schema", Completion(text, finish)) is obeyed


def test_a_json_object_of_any_kind_shows_json_object() -> None:
    assert obeys("json_object", Completion('{"sea": "wide"}')) is True
    assert obeys("json_object", Completion('{"sea": "wi', "length")) is True
    assert obeys("json_object", Completion("The sea {wide} and deep.")) is False


def test_a_model_that_reasons_gets_a_second_probe(make: Any, scripted_server: Any) -> None:
    scripted_server.play({"contains": "Describe the sea", "times": 1, "do": {"shape": "only_reasoning"}})
    make.chat(scripted_server).complete(ask(1))
    assert [e["body"]["max_tokens"] for e in scripted_server.requests()] == [256, 4096, 8192]
    assert forms(scripted_server) == ["json_schema"] * 3


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("shape", ["think", "reasoning_field", "parts"])
def test_reasoning_is_no_part_of_the_text_but_of_the_usage(
    make: Any, scripted_server: Any, shape: str, stream: bool
) -> None:
    plain = make.chat(scripted_server).complete(ask(1, None))[0]
    scripted_server.play(default={"shape": shape})
    reply = make.chat(scripted_server, stream=stream).complete(ask(1, None))[0]
    assert reply.text == plain.text
    assert reply.output_tokens >= plain.output_tokens


@pytest.mark.parametrize("shape", ["only_reasoning", "only_reasoning_field", "empty", "null", "tool_call", "refusal"])
def test_a_reply_without_text_is_an_empty_reply(make: Any, scripted_server: Any, shape: str) -> None:
    scripted_server.play(default={"shape": shape})
    reply = make.chat(scripted_server).complete(ask(1, None))[0]
    assert reply.text == ""
    assert reply.input_tokens > 0


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<think>no</think>yes", "yes"),
        ("I think so.\n</think>\n\nyes", "yes"),
        ("yes <think>is a tag</think>", "yes <think>is a tag</think>"),
        ("<think>never ends", ""),
    ],
)
def test_reasoning_is_found_with_and_without_its_opening_tag(content: str, text: str) -> None:
    answer = {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}
    assert read_completion(answer).text == text


@pytest.mark.parametrize(
    ("finish", "reason"),
    [("length", "length"), ("max_tokens", "length"), ("MAX_TOKENS", "length"), ("stop", "stop"), ("eos", "stop"),
     ("content_filter", "stop"), ("tool_calls", "stop"), (None, "stop"), (7, "stop")],
)  # fmt: skip
def test_only_a_cut_by_the_limit_is_one(finish: Any, reason: str) -> None:
    answer = {"choices": [{"message": {"content": "a"}, "finish_reason": finish}]}
    assert read_completion(answer).finish_reason == reason


@pytest.mark.parametrize("answer", [[], 7, None, "text", {}, {"choices": []}, {"choices": [7]}, {"choices": [{}]}])
def test_json_that_is_no_completion_has_a_problem(answer: Any) -> None:
    assert read_completion(answer).problem


@pytest.mark.parametrize(
    ("name", "settings"),
    [("temperature", {}), ("seed", {"seed": 3}), ("reasoning_effort", {"reasoning_effort": "low"}),
     ("stream_options", {"stream": True})],
)  # fmt: skip
def test_a_parameter_that_is_refused_is_left_out_for_good(
    make: Any, scripted_server: Any, caplog: pytest.LogCaptureFixture, name: str, settings: dict[str, Any]
) -> None:
    scripted_server.play(default={"refuse": [name]})
    chat = make.chat(scripted_server, concurrency=4, **settings)
    chat.complete(ask(20, None))
    sent = [name in e["body"] for e in scripted_server.requests()]
    assert sent[-16:] == [False] * 16
    assert sum(sent) <= 4
    assert [r.message for r in caplog.records if name in r.message] == [
        f"scripted: the server refuses {name}; calls go without it"
    ]


def test_the_other_name_of_the_output_limit_is_found(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"refuse": ["max_tokens"]})
    chat = make.chat(scripted_server, concurrency=1)
    chat.complete(ask(3, None))
    names = ["max_tokens" if "max_tokens" in e["body"] else "max_completion_tokens" for e in scripted_server.requests()]
    assert names == ["max_tokens"] + ["max_completion_tokens"] * 3


def test_a_server_that_refuses_everything_ends(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"refuse": ["max_tokens", "max_completion_tokens", "temperature", "messages"]})
    with pytest.raises(RoleError, match="answered 400"):
        make.chat(scripted_server).complete(ask(1, None))
    assert len(scripted_server.requests()) <= 5


def test_what_the_user_added_is_never_left_out(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"refuse": ["seed"]})
    with pytest.raises(RoleError, match="seed"):
        make.chat(scripted_server, extra_body={"seed": 3}).complete(ask(1, None))
    assert len(scripted_server.requests()) == 1


def test_a_missing_usage_is_estimated_and_said_once(
    make: Any, scripted_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    scripted_server.play(default={"usage": "none"})
    chat = make.chat(scripted_server)
    replies = chat.complete(ask(3, None))
    assert [reply.input_tokens for reply in replies] == [4, 4, 4]
    assert all(reply.output_tokens == -(-len(reply.text) // 4) for reply in replies)
    assert len([r for r in caplog.records if "estimated" in r.message]) == 1
