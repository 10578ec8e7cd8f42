"""Replies that are valid where they come from and awkward everywhere else end in no traceback and no mangled file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prismem_core.errors import RoleError
from prismem_core.jobs.evaluation_job import evaluation_tables
from prismem_core.roles.protocols import ChatRequest
from tests.faults.conftest import Chats, Evaluate, one_clear_line
from tests.scripted_server.fixture import ScriptedServer

USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


def completion(content: Any, usage: Any = USAGE, finish: Any = "stop") -> str:
    """The body of a whole reply."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}
    return json.dumps({"id": "x", "model": "m", "choices": [choice], "usage": usage})


def ask(chats: Chats, **settings: Any) -> Any:
    request = ChatRequest("ask", "", "A private matter.", max_tokens=50)
    return chats.client(retries=1, **settings).complete([request])[0]


@pytest.mark.parametrize(
    ("purpose", "content"),
    [
        ("extract", {"memory_units": [{"memory_text": "half \ud800 a pair"}]}),
        ("extract", {"memory_units": [{"memory_text": "a \0 in it"}]}),
        ("extract", {"memory_units": [{"memory_text": "x", "\ud800\x1b[31m" + "y" * 500: 1}]}),
        ("extract", {"memory_units": [{"memory_text": f"unit {number}"} for number in range(5000)]}),
        ("plan", {"query_text": "half \ud800 a pair"}),
        ("answer", "half \ud800 a pair"),
    ],
    ids=["surrogate", "zero", "field", "many", "query", "answer"],
)
def test_odd_characters_pass_through_a_whole_evaluation(
    evaluate: Evaluate, scripted_server: ScriptedServer, tmp_path: Path, purpose: str, content: Any
) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    scripted_server.play({"purpose": purpose, "do": {"text": text}})
    questions = tmp_path / "questions.jsonl"
    result = evaluate("naive_rag", judge=scripted_server.model("judge"), questions=questions)
    assert result["programs"]["naive_rag"]["scored"] == 4
    rows = [json.loads(line) for line in questions.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 4
    shown = json.dumps([[table.rows, table.note] for table in evaluation_tables(result)], ensure_ascii=False)
    assert "\x1b" not in shown and "y" * 100 not in shown
    shown.encode("utf-8")


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {"prompt_tokens": None, "completion_tokens": None},
        {"prompt_tokens": -5, "completion_tokens": "7"},
        {"prompt_tokens": 5.5, "completion_tokens": float("nan")},
    ],
    ids=str,
)
def test_counts_that_are_none_are_estimated(chats: Chats, usage: Any) -> None:
    chats.server.play(default={"body": completion("four", usage)})
    reply = ask(chats)
    assert (reply.text, reply.input_tokens, reply.output_tokens) == ("four", 5, 1)


@pytest.mark.parametrize(
    ("finish", "seen"),
    [
        ("stop", "stop"),
        (None, "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("max_output_tokens", "length"),
    ],
)
def test_reasons_for_the_end(chats: Chats, finish: Any, seen: str) -> None:
    chats.server.play(default={"body": completion("four", finish=finish)})
    assert ask(chats).finish_reason == seen


@pytest.mark.parametrize(
    "body",
    [
        '{"choices": [{"index": 0, "finish_reason": "stop"}]}',
        '{"choices": [null]}',
        '{"choices": {"0": 1}}',
        '{"error": "out of memory"}',
        '{"error": {"message": "overloaded", "code": 503}}',
        "[" * 200_000,
    ],
    ids=lambda body: body[:30],
)
def test_bodies_that_hold_no_reply(chats: Chats, body: str) -> None:
    chats.server.play(default={"body": body})
    with pytest.raises(RoleError) as caught:
        ask(chats)
    one_clear_line(str(caught.value))
    assert "private matter" not in str(caught.value)


def chunk(text: str | None, finish: str | None = None, **more: Any) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}], **more})


END = chunk(None, "stop")
COUNTS = json.dumps({"choices": [], "usage": USAGE})


def stream(chats: Chats, text: str) -> Any:
    chats.server.play(default={"body": text, "headers": {"content-type": "text/event-stream"}})
    return ask(chats, stream=True)


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"data: {event}\n\n" for event in (chunk("fo"), chunk("\u00fcr"), END, COUNTS, "[DONE]")),
        "".join(f"data: {event}\r\n\r\n" for event in (chunk("fo"), chunk("\u00fcr"), END, COUNTS, "[DONE]")),
        "".join(f"data:{event}\n\n" for event in (chunk("fo"), chunk("\u00fcr"), END, COUNTS, "[DONE]")),
        "".join(
            f": ping\n\nevent: message\nid: 1\ndata: {e}\n\n" for e in (chunk("fo"), chunk("\u00fcr"), END, COUNTS)
        ),
        "".join(f"data: {event}\n\n" for event in (chunk("fo\u00fcr"), chunk(None, "stop", usage=USAGE), "[DONE]")),
    ],
    ids=["plain", "crlf", "no blank", "comments", "counts with the end"],
)
def test_streams_of_all_spellings(chats: Chats, text: str) -> None:
    reply = stream(chats, text)
    assert (reply.text, reply.input_tokens, reply.output_tokens) == ("fo\u00fcr", 5, 3)


@pytest.mark.parametrize(
    "events",
    [
        (),
        (chunk("four"),),
        (chunk("four"), "[DONE]"),
        (chunk("four"), '{"error": {"message": "CUDA error"}}'),
        (chunk("four"), "{nope"),
    ],
    ids=["nothing", "no end", "no reason", "error", "no JSON"],
)
def test_streams_that_break_off_are_no_replies(chats: Chats, events: tuple[str, ...]) -> None:
    with pytest.raises(RoleError) as caught:
        stream(chats, "".join(f"data: {event}\n\n" for event in events))
    one_clear_line(str(caught.value))


@pytest.mark.parametrize("status", [301, 307])
def test_a_redirect_takes_the_key_nowhere(chats: Chats, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-mine-and-nobodys")
    elsewhere = f"http://127.0.0.1:{chats.server.port}/v1/embeddings"
    chats.server.play({"do": {"status": status, "headers": {"location": elsewhere}}})
    with pytest.raises(RoleError) as caught:
        ask(chats, key_env="MY_KEY")
    one_clear_line(str(caught.value))
    assert [entry["endpoint"] for entry in chats.server.log] == ["chat"]
