"""The scripted server itself: what it answers, counts and plays, seen through plain HTTP."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from tests.scripted_server.answers import count_tokens, vector
from tests.scripted_server.fixture import ScriptedServer, own_server, scripted_server, server_process
from tests.scripted_server.shapes import SHAPES

__all__ = ["own_server", "scripted_server", "server_process"]

UNIT = {"type": "object", "properties": {"t": {"type": "string"}}}
UNITS = {"type": "object", "properties": {"memory_units": {"type": "array", "items": UNIT}}}
SEGMENT = "<segment-0123456789ab>\n[Session 1]\nAna: I row.\nBob: I ski.\n</segment-0123456789ab>"
FORMAT = {"type": "json_schema", "json_schema": {"name": "units", "schema": UNITS}}


def post(server: ScriptedServer, path: str, body: Any, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("POST", path, json.dumps(body), headers)
        reply = connection.getresponse()
        return reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read()
    finally:
        connection.close()


def chat(server: ScriptedServer, text: str = SEGMENT, **more: Any) -> tuple[int, Any]:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
    status, _, content = post(server, "/v1/chat/completions", body)
    return status, json.loads(content)


def content(reply: Any) -> Any:
    return reply["choices"][0]["message"]["content"]


def test_it_answers_well_and_counts(scripted_server: ScriptedServer) -> None:
    _, reply = chat(scripted_server, response_format=FORMAT)
    assert json.loads(content(reply)) == {"memory_units": [{"t": "Ana: I row."}, {"t": "Bob: I ski."}]}
    assert reply["choices"][0]["finish_reason"] == "stop"
    used = {"prompt_tokens": count_tokens(SEGMENT) + 4, "completion_tokens": count_tokens(content(reply))}
    assert reply["usage"] == {**used, "total_tokens": sum(used.values())}
    assert scripted_server.metrics()["vllm:prompt_tokens_total"] == used["prompt_tokens"]
    delivered = {f"delivered_{name}": count for name, count in used.items()}
    assert scripted_server.totals == {"requests": 1, "replies": 1, **used, **delivered}
    assert [e["purpose"] for e in scripted_server.log] == ["extract"]


def test_answers_come_from_the_memory(scripted_server: ScriptedServer) -> None:
    prompt = (
        "<memory-0123456789ab>\nBob likes skis.\nAna lives in Oslo.\n</memory-0123456789ab>\n"
        "<question-0123456789ab>\nWhere does Ana live in?\n</question-0123456789ab>"
    )
    assert content(chat(scripted_server, prompt)[1]) == "Ana lives in Oslo."


@pytest.mark.parametrize("prediction", ["Ana lives in Oslo", "no idea"])
def test_verdicts_follow_the_overlap(scripted_server: ScriptedServer, prediction: str) -> None:
    prompt = (
        f"<reference-0123456789ab>\nOslo\n</reference-0123456789ab>\n"
        f"<prediction-0123456789ab>\n{prediction}\n</prediction-0123456789ab>"
    )
    schema = {"type": "object", "properties": {"score": {"type": "number"}, "said": {"enum": ["yes", "no"]}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": schema}}
    verdict = json.loads(content(chat(scripted_server, prompt, response_format=wanted)[1]))
    right = "Oslo" in prediction
    assert verdict == {"score": float(right), "said": "yes" if right else "no"}


def test_a_limit_cuts_and_a_stream_says_the_same(scripted_server: ScriptedServer) -> None:
    whole = content(chat(scripted_server, response_format=FORMAT)[1])
    _, cut = chat(scripted_server, response_format=FORMAT, max_tokens=3)
    assert (content(cut), cut["choices"][0]["finish_reason"]) == (whole[:12], "length")
    body = {"model": "m", "messages": [{"role": "user", "content": SEGMENT}], "response_format": FORMAT}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    _, headers, raw = post(scripted_server, "/v1/chat/completions", body)
    assert headers["content-type"] == "text/event-stream"
    events = [line[6:] for line in raw.decode().splitlines() if line]
    assert events.pop() == "[DONE]"
    parsed = [json.loads(event) for event in events]
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in parsed if e["choices"]) == whole
    assert parsed[-1]["usage"]["completion_tokens"] == count_tokens(whole)


def test_rules_take_their_turns(scripted_server: ScriptedServer) -> None:
    scripted_server.play(
        {"purpose": "extract", "skip": 1, "times": 1, "do": {"status": 429, "headers": {"retry-after": "2"}}},
        {"contains": "ski", "do": {"text": "seen"}},
    )
    assert [chat(scripted_server)[0] for _ in range(3)] == [200, 429, 200]
    assert content(chat(scripted_server)[1]) == "seen"
    assert content(chat(scripted_server, "other")[1]) != "seen"
    with pytest.raises(AssertionError, match="no \\['stauts'\\]"):
        scripted_server.play({"do": {"stauts": 500}})


@pytest.mark.parametrize("where", ["before", "head", "body"])
@pytest.mark.parametrize("reset", [False, True])
def test_connections_are_dropped(scripted_server: ScriptedServer, where: str, reset: bool) -> None:
    scripted_server.play(default={"close": where, "reset": reset})
    with pytest.raises((http.client.HTTPException, OSError)):
        chat(scripted_server)
    totals = scripted_server.totals
    assert totals["delivered_prompt_tokens"] == 0
    assert (totals["prompt_tokens"] > 0) == (where != "before")


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_every_shape_is_a_reply(scripted_server: ScriptedServer, shape: str) -> None:
    scripted_server.play(default={"shape": shape})
    status, reply = chat(scripted_server, response_format=FORMAT)
    assert status == 200
    assert reply["choices"][0]["message"]["role"] == "assistant"
    if shape in ("half", "whitespace"):
        assert reply["choices"][0]["finish_reason"] == "length"


def test_it_refuses_what_it_is_told_to(scripted_server: ScriptedServer) -> None:
    scripted_server.play(default={"context": 30})
    status, reply = chat(scripted_server, max_tokens=20)
    assert status == 400 and "maximum context length is 30 tokens" in reply["error"]["message"]
    scripted_server.play(default={"key": "sk-right"})
    assert chat(scripted_server)[0] == 401
    scripted_server.play(default={"models": ["other"]})
    assert chat(scripted_server)[0] == 404
    scripted_server.play(default={"refuse": ["max_tokens"], "forms": {"json_schema": "refuse"}})
    assert chat(scripted_server, max_tokens=4)[0] == 400
    assert chat(scripted_server, response_format=FORMAT)[0] == 500
    scripted_server.play(rate={"per_second": 0.001, "burst": 1})
    assert [chat(scripted_server)[0] for _ in range(2)] == [200, 429]
    scripted_server.play(outage={"seconds": 1000})
    assert chat(scripted_server)[0] == 503


def test_embeddings_and_their_faults(scripted_server: ScriptedServer) -> None:
    def rows(**behaviour: Any) -> tuple[list[Any], int]:
        scripted_server.play({"endpoint": "embeddings", "do": behaviour})
        _, _, raw = post(scripted_server, "/v1/embeddings", {"model": "e", "input": ["a b", "c" * 40]})
        reply = json.loads(raw)
        return [row["embedding"] for row in reply["data"]], reply["usage"]["prompt_tokens"]

    good = [vector("a b", 32), vector("c" * 40, 32)]
    assert rows() == (good, 11)
    assert rows(shuffle=True)[0] in (good, good[::-1])
    assert rows(cut_text=4) == ([vector("a b", 32), vector("c" * 16, 32)], 5)
    assert rows(values="null", dimension=2)[0] == [[None, None]] * 2
    assert len(rows(rows=-1)[0]) == 1 and len(rows(rows=1)[0]) == 3


def test_it_is_killed_and_starts_again_where_it_was(own_server: ScriptedServer) -> None:
    chat(own_server)
    port = own_server.port
    own_server.kill()
    with pytest.raises(OSError, match="refused"):
        chat(own_server)
    own_server.start()
    assert own_server.port == port
    chat(own_server)
    assert own_server.totals["replies"] == 1
    assert [e["delivered"] for e in own_server.logged_on_disk()] == [True, True]
