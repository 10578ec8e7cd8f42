"""What a server cannot do or does not take: found out once, told once, and done without from then on."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

import pytest

from prismem_core.clients.model_settings import ModelSettings, parse_model
from prismem_core.errors import RoleError, SettingsError
from prismem_core.jobs.settings import build_job_settings
from prismem_core.roles.account import Account
from prismem_core.roles.protocols import ChatRequest
from tests.faults.conftest import Chats, one_clear_line

SCHEMA = {
    "type": "object",
    "properties": {"town": {"type": "string"}},
    "required": ["town"],
    "additionalProperties": False,
}


def plain(number: int = 0, **more: Any) -> ChatRequest:
    return ChatRequest("ask", "You are brief.", f"Say {number}.", max_tokens=500, **more)


def structured(number: int = 0) -> ChatRequest:
    return ChatRequest("ask", "Reply in JSON.", f"Which town is number {number}?", schema=SCHEMA, max_tokens=500)


ADAPTED = [
    ("max_tokens", {}),
    ("temperature", {}),
    ("seed", {"seed": 7}),
    ("reasoning_effort", {"reasoning_effort": "low"}),
]


@pytest.mark.parametrize(("name", "settings"), ADAPTED)
def test_a_parameter_that_is_refused_is_left_out_once_for_all(
    chats: Chats, name: str, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    chats.server.play(default={"refuse": [name]})
    client = chats.client(concurrency=1, **settings)
    with caplog.at_level(logging.INFO, "prismem_core"):
        replies = client.complete([plain(number) for number in range(5)])
    assert len(replies) == 5
    sent = [entry["body"] for entry in chats.server.requests()]
    assert len(sent) == 6, "the refused call once, then one a request"
    assert [name in body for body in sent] == [True] + [False] * 5
    if name == "max_tokens":
        assert all(body["max_completion_tokens"] == 500 for body in sent[1:])
    told = {"max_tokens": "max_completion_tokens"}.get(name, name)
    assert sum(told in record.getMessage() for record in caplog.records) == 1


def test_several_parameters_are_adapted_together(chats: Chats) -> None:
    chats.server.play(default={"refuse": ["max_tokens", "temperature", "seed"]})
    client = chats.client(concurrency=1, seed=3)
    assert len(client.complete([plain(number) for number in range(3)])) == 3
    assert len(chats.server.requests()) <= 3 + 3


def test_a_parameter_that_stays_refused_ends_the_call(chats: Chats) -> None:
    chats.server.play(default={"refuse": ["max_tokens", "max_completion_tokens"]})
    with pytest.raises(RoleError) as caught:
        chats.client(concurrency=1).complete([plain()])
    one_clear_line(str(caught.value))
    assert len(chats.server.requests()) <= 5


def test_calls_that_are_refused_together_adapt_once(chats: Chats, caplog: pytest.LogCaptureFixture) -> None:
    chats.server.play(default={"refuse": ["max_tokens"], "latency": 0.05})
    with caplog.at_level(logging.INFO, "prismem_core"):
        replies = chats.client(concurrency=16).complete([plain(number) for number in range(32)])
    assert len(replies) == 32
    assert sum("max_completion_tokens" in record.getMessage() for record in caplog.records) == 1


DIALECTS: list[tuple[str, dict[str, str]]] = [
    ("json_schema", {}),
    ("json_object_schema", {"json_schema": "refuse", "json_object_schema": "enforce"}),
    ("json_object", {"json_schema": "refuse", "json_object_schema": "ignore", "json_object": "enforce"}),
    ("text", {"json_schema": "refuse", "json_object_schema": "refuse", "json_object": "refuse"}),
    ("text", {"json_schema": "ignore", "json_object_schema": "ignore", "json_object": "ignore"}),
]


@pytest.mark.parametrize(("dialect", "forms"), DIALECTS, ids=[f"{d}-{len(f)}" for d, f in DIALECTS])
def test_the_way_to_ask_for_json_is_found_by_a_probe(
    chats: Chats, dialect: str, forms: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    chats.server.play(default={"forms": forms})
    client = chats.client(concurrency=4)
    with caplog.at_level(logging.INFO, "prismem_core"):
        replies = client.complete([structured(number) for number in range(6)])
    assert [list(json.loads(reply.text)) for reply in replies] == [["town"]] * 6
    sent = [e["body"].get("response_format") for e in chats.server.requests() if "Which town" in str(e["body"])]
    kinds = {"text" if given is None else given["type"] + "_schema" * ("schema" in given) for given in sent}
    assert kinds == {dialect}
    assert len(sent) == 6
    told = [record for record in caplog.records if "is asked for" in record.getMessage()]
    assert len(told) == 1
    assert (told[0].levelno >= logging.WARNING) == (dialect != "json_schema")


def test_threads_probe_once(chats: Chats) -> None:
    chats.server.play(default={"latency": 0.1})
    client = chats.client(concurrency=8)
    threads = [threading.Thread(target=client.complete, args=([structured(number)],)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    one = len(chats.server.requests()) - 6
    chats.server.clear()
    chats.client().complete([structured()])
    assert one == len(chats.server.requests()) - 1


def test_what_the_probe_costs_is_counted(chats: Chats) -> None:
    chats.server.play(default={"forms": {"json_schema": "ignore", "json_object_schema": "ignore"}})
    client = chats.client()
    client.account = Account("task", chats.ledger)
    reply = client.complete([structured()])[0]
    usage, totals = chats.usage(), chats.server.totals
    assert usage.input_tokens + reply.input_tokens == totals["prompt_tokens"]
    assert usage.output_tokens + reply.output_tokens == totals["completion_tokens"]
    assert {stage for _, stage in chats.ledger.totals()} == {"probe"}


def test_a_named_way_needs_no_probe(chats: Chats) -> None:
    chats.client(structured="json_object").complete([structured()])
    assert [e["body"]["response_format"] for e in chats.server.requests()] == [{"type": "json_object"}]


def test_a_limit_above_the_context_is_lowered(chats: Chats) -> None:
    chats.server.play(default={"context": 400})
    reply = chats.client().complete([plain()])[0]
    assert reply.finish_reason == "stop"
    limits = [e["body"].get("max_tokens", e["body"].get("max_completion_tokens")) for e in chats.server.requests()]
    assert limits[0] == 500 and limits[-1] < 400 and len(limits) == 2


def test_a_prompt_above_the_context_is_refused_with_sizes(chats: Chats) -> None:
    chats.server.play(default={"context": 1000})
    long = ChatRequest("extract", "Note.", "word " * 100_000, max_tokens=100)
    with pytest.raises(RoleError) as caught:
        chats.client().complete([long])
    text = str(caught.value)
    one_clear_line(text)
    assert "1000" in text.replace(",", "") and "segment_chars" in text and "word word" not in text
    assert len(chats.server.requests()) <= 2


def test_a_prompt_that_was_cut_in_silence_is_found(chats: Chats) -> None:
    chats.server.play(default={"cut_prompt": 200})
    with pytest.raises(RoleError) as caught:
        chats.client().complete([ChatRequest("extract", "Note.", "word " * 20_000, max_tokens=100)])
    one_clear_line(str(caught.value))


def test_the_url_and_model_are_those_of_the_settings(chats: Chats, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-somebody")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-somebody")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    chats.client("org/model-7").complete([plain()])
    entry = chats.server.requests()[0]
    assert entry["body"]["model"] == "org/model-7"
    assert "of-somebody" not in str(entry["headers"])


def test_a_local_server_needs_no_key(chats: Chats) -> None:
    assert chats.client().complete([plain()])[0].text
    assert "sk-" not in str(chats.server.requests()[0]["headers"])


def test_a_key_comes_from_the_variable_that_is_named(chats: Chats, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-mine")
    chats.server.play(default={"key": "sk-mine"})
    assert chats.client(key_env="MY_KEY").complete([plain()])[0].text


def test_unknown_settings_are_errors() -> None:
    with pytest.raises(SettingsError, match="temprature"):
        build_job_settings({"models": {"task": {"model": "openai:m@http://localhost:1/v1", "temprature": 0.5}}})
    with pytest.raises(SettingsError, match="tasks"):
        build_job_settings({"models": {"tasks": {"model": "offline"}}})
    with pytest.raises(SettingsError, match="url"):
        build_job_settings({"url": "http://localhost:1/v1"})


def test_further_fields_of_the_body_are_sent(chats: Chats) -> None:
    chats.client(extra_body={"top_k": 20, "chat_template_kwargs": {"enable_thinking": False}}).complete([plain()])
    body = chats.server.requests()[0]["body"]
    assert (body["top_k"], body["chat_template_kwargs"]) == (20, {"enable_thinking": False})


def test_nothing_is_contacted_before_the_first_call(chats: Chats) -> None:
    threads = set(threading.enumerate())
    chats.client()
    chats.embedder()
    assert set(threading.enumerate()) == threads
    assert chats.server.state["arrived"] == 0


def test_identities_name_the_model_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-mine")
    spec = parse_model("openai:m@http://localhost:1/v1")
    assert ModelSettings(model=str(spec), key_env="MY_KEY").identity_of(spec) == str(spec)
