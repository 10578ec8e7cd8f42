"""Servers that are slow, busy, gone or of another kind: tried again within bounds where it can help, else one line."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from prismem_core.errors import RoleError
from prismem_core.roles.protocols import ChatReply, ChatRequest
from tests.faults.conftest import Chats, one_clear_line

PRIVATE = "Ines told nobody but Marek of the harbour plan."


def request(number: int = 0) -> ChatRequest:
    return ChatRequest("ask", "You are brief.", f"{PRIVATE} Say {number}.", max_tokens=500)


def ask(chat: Any, count: int = 1) -> list[ChatReply]:
    return list(chat.complete([request(number) for number in range(count)]))


def refused(chat: Any, *expected: str, count: int = 1) -> str:
    """The one line in which a call ends; none of the prompt is in it."""
    with pytest.raises(RoleError) as caught:
        ask(chat, count)
    text = str(caught.value)
    one_clear_line(text)
    for words in expected:
        assert words in text
    assert "harbour" not in text and PRIVATE[:20] not in text
    return text


PASSING: list[dict[str, Any]] = [
    {"status": 408},
    {"status": 409},
    {"status": 429, "headers": {"retry-after": "0"}},
    {"status": 500},
    {"status": 502, "html": True},
    {"status": 503},
    {"status": 504},
    {"close": "before"},
    {"close": "before", "reset": True},
    {"close": "head"},
    {"close": "body"},
    {"close": "body", "reset": True},
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("failure", PASSING, ids=str)
def test_a_passing_failure_is_tried_again(chats: Chats, failure: dict[str, Any], stream: bool) -> None:
    chats.server.play({"times": 1, "do": failure})
    assert ask(chats.client(stream=stream))[0].text
    assert chats.server.state["arrived"] == 2


@pytest.mark.parametrize("failure", [{"status": 503}, {"close": "body"}, {"status": 429}], ids=str)
def test_tries_are_bounded(chats: Chats, failure: dict[str, Any]) -> None:
    chats.server.play(default=failure)
    refused(chats.client(retries=2))
    assert chats.server.state["arrived"] == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_what_will_not_pass_is_not_tried_again(chats: Chats, status: int) -> None:
    chats.server.play(default={"status": status, "error": "no"})
    refused(chats.client())
    assert len(chats.server.requests()) == 1


def test_the_hint_of_the_server_is_honoured(chats: Chats) -> None:
    chats.server.play({"times": 1, "do": {"status": 429, "headers": {"retry-after": "2"}}})
    ask(chats.client())
    first, second = chats.server.requests()
    assert second["at"] - first["at"] >= 1.9


def test_a_hint_may_be_a_date(chats: Chats) -> None:
    chats.server.play({"times": 1, "do": {"status": 503, "retry_after_date": 3}})
    ask(chats.client())
    first, second = chats.server.requests()
    assert second["at"] - first["at"] >= 1.5  # the date has no fractions of a second


def test_a_hint_beyond_the_deadline_ends_the_call(chats: Chats) -> None:
    chats.server.play(default={"status": 429, "headers": {"retry-after": "86400"}})
    started = time.monotonic()
    refused(chats.client(deadline_seconds=5.0))
    assert time.monotonic() - started < 30


def test_an_exhausted_quota_is_no_passing_limit(chats: Chats) -> None:
    chats.server.play(
        default={"status": 429, "error": "You exceeded your current quota.", "code": "insufficient_quota"}
    )
    refused(chats.client(), "quota")
    assert len(chats.server.requests()) == 1


def test_a_rate_limit_slows_down_and_loses_nothing(chats: Chats) -> None:
    chats.server.play(rate={"per_second": 10, "burst": 3})
    assert len({reply.text for reply in ask(chats.client(retries=30, concurrency=4), 12)}) == 12
    assert chats.server.totals["replies"] == 12


def test_an_outage_is_waited_for(chats: Chats) -> None:
    chats.server.play(outage={"seconds": 1.5})
    assert len(ask(chats.client(retries=20, concurrency=2), 4)) == 4


def test_calls_begun_in_a_minute_are_bounded(chats: Chats) -> None:
    ask(chats.client(requests_per_minute=240.0, concurrency=8), 8)
    at = sorted(entry["at"] for entry in chats.server.requests())
    # Four a second, one after the other.
    assert at[-1] - at[0] >= 7 / 4 - 0.3


@pytest.mark.parametrize("slots", [1, 3])
def test_calls_under_way_are_bounded(chats: Chats, slots: int) -> None:
    chats.server.play(default={"hold": True})
    client = chats.client(concurrency=slots)
    done = threading.Thread(target=ask, args=(client, 7))
    done.start()
    chats.server.wait(under_way=slots)
    assert client.meter.under_way == slots
    chats.server.release()
    done.join(60)
    assert not done.is_alive()
    assert chats.server.state["peak"] == slots


def test_threads_share_the_slots(chats: Chats) -> None:
    client = chats.client(concurrency=2)
    chats.server.play(default={"latency": 0.05})
    threads = [threading.Thread(target=ask, args=(client, 3)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert chats.server.state["peak"] <= 2


def test_order_is_that_of_the_requests(chats: Chats) -> None:
    chats.server.play({"contains": "Say 0.", "do": {"latency": 0.4}}, default={"jitter": 0.1})
    client = chats.client(concurrency=8)
    texts = [reply.text for reply in ask(client, 8)]
    assert texts == [client.complete([request(number)])[0].text for number in range(8)]


def test_what_is_under_way_is_handed_over_before_a_failure(chats: Chats) -> None:
    chats.server.play({"contains": "Say 2.", "do": {"status": 400}}, default={"latency": 0.3})
    client = chats.client(concurrency=4)
    got = []
    with pytest.raises(RoleError):
        for position, _ in client.complete_each([request(number) for number in range(40)]):
            got.append(position)
    state = chats.server.state
    assert len(got) == state["totals"]["replies"]
    assert state["arrived"] <= 8


def test_a_server_that_hangs_is_given_up(chats: Chats) -> None:
    chats.server.play(default={"hang": "head"})
    refused(chats.client(timeout_seconds=0.5, retries=1), "0.5")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_reply_that_stands_still_is_given_up(chats: Chats, stream: bool) -> None:
    chats.server.play({"times": 1, "do": {"hang": "body"}})
    assert ask(chats.client(timeout_seconds=1.0, stream=stream))[0].text
    assert chats.server.state["arrived"] == 2


def test_a_stream_without_an_end_is_no_reply(chats: Chats) -> None:
    chats.server.play({"times": 1, "do": {"close": "body"}})
    reply = ask(chats.client(stream=True))[0]
    chats.server.play()
    assert reply.text == ask(chats.client(stream=True))[0].text


def test_nothing_listens(chats: Chats) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        refused(chats.client(url=url, retries=1), url)


def test_no_such_host(chats: Chats) -> None:
    refused(chats.client(url="http://no-such-host.invalid/v1", retries=0), "no-such-host.invalid")


def test_a_page_in_place_of_a_reply(chats: Chats) -> None:
    chats.server.play(default={"html": True})
    text = refused(chats.client(retries=1), "web page", "URL")
    assert "<h1>" not in text


def test_a_wrong_path(chats: Chats) -> None:
    refused(chats.client(url=chats.server.url.removesuffix("/v1") + "/other", retries=1), "404", "/other")


def test_an_unknown_model_and_what_there_is(chats: Chats) -> None:
    chats.server.play(
        default={"models": ["qwen-small", "qwen-large"]},
    )
    chats.server.play(
        {"endpoint": "models", "do": {"models": ["qwen-small", "qwen-large"]}},
        default={"models": ["qwen-small", "qwen-large"]},
    )
    refused(chats.client("quen"), "quen", "qwen-small", "qwen-large")


def test_a_key_that_is_refused_is_named_not_shown(chats: Chats, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-marked-secret-7391")
    chats.server.play(default={"key": "sk-right"})
    text = refused(chats.client(key_env="MY_KEY"), "MY_KEY")
    assert "7391" not in text and "marked" not in text


def test_a_missing_key_names_its_variable(chats: Chats) -> None:
    chats.server.play(default={"key": "sk-right"})
    refused(chats.client(), "OPENAI_API_KEY")


def test_a_request_that_is_too_large(chats: Chats) -> None:
    chats.server.play(default={"status": 413, "body": "Request Entity Too Large"})
    refused(chats.client(), "413")


def test_echoes_of_the_prompt_stay_out(chats: Chats) -> None:
    chats.server.play(default={"status": 400, "error": f"invalid value: {PRIVATE} Say 0.", "code": None})
    refused(chats.client(), "400")


def test_closing_ends_what_is_under_way(chats: Chats) -> None:
    chats.server.play(default={"hang": "head"})
    client = chats.client(concurrency=2)
    got: list[BaseException] = []

    def work() -> None:
        try:
            ask(client, 4)
        except BaseException as error:
            got.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    chats.server.wait(under_way=2)
    client.close()
    thread.join(30)
    assert not thread.is_alive()
    assert len(got) == 1 and isinstance(got[0], RoleError)
