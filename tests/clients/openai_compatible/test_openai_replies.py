"""Replies that a server broke off, kept back or wrote oddly: none passes for a whole one, and all of them count."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.clients.openai_compatible.asking import ask, failure

from prismem_core.clients.openai_compatible.completion import Completion, read_completion
from prismem_core.clients.openai_compatible.stream import Stream
from prismem_core.roles.account import Account
from prismem_core.roles.ledger import Ledger

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
EVENTS = {"content-type": "text/event-stream"}


def event(**more: Any) -> str:
    return f"data: {json.dumps(more, ensure_ascii=False)}\n\n"


def piece(text: str, finish: str | None = None, **more: Any) -> str:
    return event(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish, **more}])


def whole(text: str, finish: Any = "stop", usage: Any = None, **more: Any) -> str:
    choice = {"index": 0, "message": {"content": text}, "finish_reason": finish, **more}
    return json.dumps({"choices": [choice], "usage": usage or USAGE}, ensure_ascii=False)


def ledger_of(client: Any) -> Ledger:
    ledger = Ledger()
    client.account = Account("task", ledger)
    return ledger


def unusable(ledger: Ledger) -> tuple[int, int, int]:
    found = ledger.totals()[("task", "unusable")]
    return found.calls, found.input_tokens, found.output_tokens


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("finish", ["error", "abort", "insufficient_system_resource"])
def test_a_reply_that_a_server_breaks_off_is_asked_for_again(
    make: Any, scripted_server: Any, finish: str, stream: bool
) -> None:
    plain = make.chat(scripted_server).complete(ask())[0]
    scripted_server.play({"times": 2, "do": {"finish": finish}})
    chat = make.chat(scripted_server, stream=stream)
    ledger = ledger_of(chat)
    assert chat.complete(ask()) == [plain]
    assert unusable(ledger) == (2, 2 * plain.input_tokens, 2 * plain.output_tokens)
    scripted_server.play(default={"finish": finish})
    text = failure(make.chat(scripted_server, stream=stream, retries=1))
    assert f"{scripted_server.url} answered with a reply that it broke off ({finish}) (tried 2 times" in text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("finish", ["content_filter", "SAFETY", "sensitive"])
def test_what_a_filter_cut_off_is_an_empty_reply(make: Any, scripted_server: Any, finish: str, stream: bool) -> None:
    scripted_server.play(default={"finish": finish})
    reply = make.chat(scripted_server, stream=stream).complete(ask())[0]
    assert (reply.text, reply.finish_reason) == ("", "stop")
    assert reply.output_tokens == scripted_server.totals["completion_tokens"] > 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_choice_with_an_error_is_no_reply(make: Any, scripted_server: Any, stream: bool) -> None:
    error = {"code": 502, "message": "upstream"}
    body = piece("par", "error", error=error) + event(choices=[], usage=USAGE) if stream else ""
    do = {"body": body, "headers": EVENTS} if stream else {"body": whole("par", "error", error=error)}
    scripted_server.play({"times": 1, "do": do})
    chat = make.chat(scripted_server, stream=stream)
    assert chat.complete(ask())[0].text != "par"
    assert len(scripted_server.requests()) == 2


def test_an_end_in_unknown_words_is_told_once(
    make: Any, scripted_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    scripted_server.play(default={"finish": "whatever"})
    chat = make.chat(scripted_server)
    assert all(reply.text for reply in chat.complete(ask() * 3))
    told = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert len(told) == 1
    assert "why replies end (whatever)" in told[0]


@pytest.mark.parametrize(("finish", "doubt"), [("stop", ""), ("tool_calls", ""), ("length", ""), (None, "none")])
def test_ends_that_are_known_leave_no_doubt(finish: Any, doubt: str) -> None:
    assert read_completion(json.loads(whole("a", finish))).doubt == doubt


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 510}, (7, 503)),
        ({"prompt_tokens": 7, "total_tokens": 9}, (7, 2)),
        ({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 7}, (7, 3)),
        ({"prompt_tokens": 7.0, "completion_tokens": 3.0, "total_tokens": 10.0}, (7, 3)),
    ],
)
def test_tokens_that_only_the_total_tells_count(usage: dict[str, Any], tokens: tuple[int, int]) -> None:
    found = read_completion(json.loads(whole("a", usage=usage)))
    assert (found.input_tokens, found.output_tokens) == tokens


@pytest.mark.parametrize(
    "do",
    [
        {"body": "\ufeff" + whole("Olá 你好")},
        {"body": whole("Olá 你好"), "headers": {"content-type": "application/json; charset=iso-8859-1"}},
        {"body": "\n \n" + whole("Olá 你好"), "headers": {"content-type": "text/plain"}},
    ],
    ids=["mark", "charset", "blanks"],
)
def test_json_is_utf8_whatever_its_type_says(make: Any, scripted_server: Any, do: dict[str, Any]) -> None:
    scripted_server.play(default=do)
    assert make.chat(scripted_server).complete(ask())[0].text == "Olá 你好"
    assert len(scripted_server.requests()) == 1


LINES = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1eh — 你好 😀"


@pytest.mark.parametrize("kind", ["text/event-stream", "text/plain", "application/octet-stream"])
def test_a_stream_is_cut_into_lines_where_events_end_and_nowhere_else(
    make: Any, scripted_server: Any, kind: str
) -> None:
    body = ": hello\n\n" + piece(LINES[:9]) + piece(LINES[9:], "stop") + event(choices=[], usage=USAGE)
    scripted_server.play(default={"body": body + "data: [DONE]\n\n", "headers": {"content-type": kind}})
    reply = make.chat(scripted_server, stream=True).complete(ask())[0]
    assert (reply.text, reply.input_tokens, reply.output_tokens) == (LINES, 7, 3)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 2, 5, 10_000])
def test_a_stream_may_come_in_any_pieces(end: str, size: int) -> None:
    body = "\ufeff" + piece(LINES) + piece("", "stop") + event(choices=[], usage=USAGE) + "data: [DONE]\n\n"
    content = body.replace("\n", end).encode()

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(content), size):
            yield content[start : start + size]

    found: Completion = asyncio.run(Stream().read(chunks()))
    assert (found.text, found.input_tokens, found.output_tokens, found.problem) == (LINES, 7, 3, "")


BROKEN = {
    "a stream that ended without saying why": piece("par") + event(choices=[], usage=USAGE) + "data: [DONE]\n\n",
    "a stream that broke off": piece("par") + event(choices=[], usage=USAGE),
    "a stream that ended with an error": piece("par") + event(choices=[], usage=USAGE) + event(error={"code": 500}),
    "a stream that ended with an error of": event(choices=[], usage=USAGE) + event(object="error", message="busy"),
    "a stream that holds an event that is no JSON": event(choices=[], usage=USAGE) + "data: {oops\n\n",
}


@pytest.mark.parametrize("what", list(BROKEN))
def test_what_a_broken_stream_has_used_counts_and_its_error_names_the_server(
    make: Any, scripted_server: Any, what: str
) -> None:
    scripted_server.play(default={"body": BROKEN[what], "headers": EVENTS})
    chat = make.chat(scripted_server, stream=True, retries=1)
    ledger = ledger_of(chat)
    assert f"{scripted_server.url} answered with {what}" in failure(chat)
    assert unusable(ledger) == (2, 14, 6)


def test_what_was_told_before_a_connection_was_lost_counts(make: Any, scripted_server: Any) -> None:
    body = event(choices=[], usage=USAGE) + piece("par")
    # The server drops the connection after half of the body.
    scripted_server.play(default={"body": body + " " * len(body.encode()), "headers": EVENTS, "close": "body"})
    chat = make.chat(scripted_server, stream=True, retries=0)
    ledger = ledger_of(chat)
    assert f"the connection to {scripted_server.url} was lost" in failure(chat)
    assert unusable(ledger) == (1, 7, 3)


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_inside_an_answer_is_paid_for(make: Any, scripted_server: Any, stream: bool) -> None:
    body = json.dumps({"error": {"code": 502, "message": "upstream"}, "usage": USAGE})
    scripted_server.play({"times": 2, "do": {"body": body}})
    chat = make.chat(scripted_server, stream=stream)
    ledger = ledger_of(chat)
    assert chat.complete(ask())[0].text
    assert unusable(ledger) == (2, 14, 6)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "cached",
    [{"prompt_tokens_details": {"cached_tokens": 590}}, {"cache_read_input_tokens": 590},
     {"prompt_cache_hit_tokens": 590}],
    ids=str,
)  # fmt: skip
def test_a_prompt_out_of_a_cache_was_not_cut(make: Any, scripted_server: Any, cached: Any, stream: bool) -> None:
    scripted_server.play(default={"usage": {"prompt_tokens": 12, "completion_tokens": 3, **cached}})
    reply = make.chat(scripted_server, stream=stream).complete(ask("word " * 600))[0]
    assert (reply.input_tokens, reply.output_tokens) == (12, 3)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('{"units": ["he asked what </think> does"]}', '{"units": ["he asked what </think> does"]}'),
        ('{"units": ["a\n</think>\nb"]}', '{"units": ["a\n</think>\nb"]}'),
        ("To close it you write </think> in the text.", "To close it you write </think> in the text."),
        ("Let me see.</think>\n\nyes", "yes"),
        ('Let me see. </think> {"a": 1}', '{"a": 1}'),
        ("Let me see.\n</think>", ""),
    ],
)
def test_a_reply_that_speaks_of_the_tag_keeps_its_words(content: str, text: str) -> None:
    assert read_completion(json.loads(whole(content))).text == text
