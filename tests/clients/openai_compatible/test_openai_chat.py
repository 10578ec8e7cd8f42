"""The chat client against the scripted server: order, slots, accounts, failures in the middle, ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from prismem_core.errors import BudgetError, RoleError
from prismem_core.roles.account import Account
from prismem_core.roles.budget import Allowance, Budget
from prismem_core.roles.ledger import Ledger
from prismem_core.roles.protocols import Chat, ChatRequest, CompletesEach

SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "number"}},
    "required": ["score"],
    "additionalProperties": False,
}


def questions(count: int, **more: Any) -> list[ChatRequest]:
    return [ChatRequest("ask", "Be brief.", f"Say {'word ' * (i % 7)}number{i}.", **more) for i in range(count)]


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def bind(client: Any, budget: Budget | None = None) -> Ledger:
    ledger = Ledger()
    client.account = Account("task", ledger, budget)
    return ledger


def test_replies_keep_the_order_of_the_requests_and_say_what_was_used(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"latency": 0.0, "jitter": 0.05})
    chat = make.chat(scripted_server, concurrency=8)
    assert isinstance(chat, Chat)
    assert isinstance(chat, CompletesEach)
    requests = questions(40)
    replies = chat.complete(requests)
    alone = [chat.complete([request])[0] for request in requests[:5]]
    assert [reply.text for reply in replies[:5]] == [reply.text for reply in alone]
    sent = {e["body"]["messages"][-1]["content"]: e for e in scripted_server.requests()}
    assert set(sent) == {request.prompt for request in requests}
    assert sum(reply.input_tokens for reply in replies + alone) == scripted_server.totals["prompt_tokens"]
    assert sum(reply.output_tokens for reply in replies + alone) == scripted_server.totals["completion_tokens"]


@pytest.mark.parametrize("stream", [False, True])
def test_streams_and_whole_answers_say_the_same(make: Any, scripted_server: Any, stream: bool) -> None:
    chat = make.chat(scripted_server, stream=stream, structured="json_schema")
    other = make.chat(scripted_server, stream=not stream, structured="json_schema")
    requests = [*questions(3), *questions(2, schema=SCHEMA)]
    assert chat.complete(requests) == other.complete(requests)
    assert {e["body"].get("stream", False) for e in scripted_server.requests()} == {True, False}


def test_no_more_calls_are_under_way_than_slots_whoever_asks(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"hold": True})
    chat = make.chat(scripted_server, concurrency=3)
    threads = [threading.Thread(target=chat.complete, args=(questions(4),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    scripted_server.wait(under_way=3)
    assert chat.meter.under_way == 3
    scripted_server.release()
    for thread in threads:
        thread.join()
    assert scripted_server.state["peak"] == 3
    assert chat.meter.read().calls == 12
    assert chat.meter.under_way == 0


def test_each_reply_is_handed_over_while_others_are_under_way(make: Any, scripted_server: Any) -> None:
    scripted_server.play({"contains": "number1.", "do": {"hold": True}})
    each = make.chat(scripted_server).complete_each(questions(3))
    first = {next(each)[0], next(each)[0]}
    assert first == {0, 2}
    scripted_server.release()
    assert [position for position, _ in each] == [1]


def test_a_failure_starts_no_further_call_and_loses_none_under_way(make: Any, scripted_server: Any) -> None:
    scripted_server.play(
        {"contains": "number0.", "do": {"hold": True}}, {"contains": "number1.", "do": {"status": 400}}
    )
    chat = make.chat(scripted_server, concurrency=2)
    found: list[int] = []
    failed: list[str] = []

    def run() -> None:
        try:
            for position, _ in chat.complete_each(questions(20)):
                found.append(position)
        except RoleError as error:
            failed.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    # What was to fail has failed before the other one is released.
    scripted_server.wait(arrived=2)
    until(lambda: chat.meter.under_way == 1)
    scripted_server.release()
    thread.join()
    assert found == [0]
    assert "answered 400" in failed[0]
    assert len(scripted_server.requests()) == 2


def test_a_spent_budget_hands_over_what_was_paid_for(make: Any, scripted_server: Any) -> None:
    chat = make.chat(scripted_server, concurrency=4)
    ledger = bind(chat, Budget(Allowance(calls=10)))
    found = []
    with pytest.raises(BudgetError, match="budget of calls"):
        for position, _ in chat.complete_each(questions(50)):
            found.append(position)
    sent = len(scripted_server.requests())
    assert 10 <= sent <= 13
    assert len(found) == sent
    assert not ledger.totals()


def test_every_try_is_admitted(make: Any, scripted_server: Any) -> None:
    scripted_server.play({"times": 3, "do": {"status": 503}})
    chat = make.chat(scripted_server)
    admitted = []

    class Counting(Account):
        def admit(self) -> None:
            admitted.append(1)

    chat.account = Counting("task")
    chat.complete(questions(1))
    assert len(admitted) == len(scripted_server.requests()) == 4
    assert chat.meter.read().calls == 4


def test_equal_clients_share_nothing_and_a_closed_one_opens_anew(make: Any, scripted_server: Any) -> None:
    before = threading.active_count()
    chat = make.chat(scripted_server)
    assert threading.active_count() == before
    first = chat.complete(questions(2))
    assert threading.active_count() > before
    chat.close()
    chat.close()
    assert threading.active_count() == before
    assert chat.complete(questions(2)) == first


def test_a_batch_whose_client_is_closed_fails_at_once(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"hold": True})
    chat = make.chat(scripted_server)
    each = chat.complete_each(questions(2))
    failed: list[BaseException] = []

    def run() -> None:
        try:
            list(each)
        except RoleError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    scripted_server.wait(under_way=2)
    chat.close()
    thread.join(30)
    assert "closed" in str(failed[0])
    scripted_server.release()


def test_an_iterator_that_is_left_ends_its_calls(make: Any, scripted_server: Any) -> None:
    scripted_server.play({"contains": "number0.", "do": {"hold": False}}, default={"hold": True})
    chat = make.chat(scripted_server, concurrency=4)
    each = chat.complete_each(questions(9))
    assert next(each)[0] == 0
    each.close()
    scripted_server.play()
    assert len(chat.complete(questions(8))) == 8
    assert chat.meter.under_way == 0


def test_a_batch_keeps_no_more_tasks_than_slots(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"hold": True})
    chat = make.chat(scripted_server, concurrency=4)
    thread = threading.Thread(target=chat.complete, args=(questions(300),))
    thread.start()
    scripted_server.wait(under_way=4)
    assert len(asyncio.all_tasks(chat._loop.start())) <= 4 + 1
    scripted_server.release()
    thread.join()
    assert chat.meter.read().calls == 300


INTERRUPTED = """
import os, signal, sys, threading
from prismem_core.clients.model_settings import ModelSettings, parse_model
from prismem_core.clients.openai_compatible import OpenAIChat
from prismem_core.roles.protocols import ChatRequest
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have had its background jobs ignore it
chat = OpenAIChat(parse_model(sys.argv[1]), ModelSettings())
def interrupt():
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    chat.complete([ChatRequest("ask", "", f"word {i}") for i in range(100)])
except KeyboardInterrupt:
    chat.close()
    print("interrupted", threading.active_count())
"""


def test_an_interrupt_ends_quickly_and_cleanly(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"hold": True})
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, scripted_server.model()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    scripted_server.wait(under_way=64)
    out, err = process.communicate("\n", timeout=60)
    assert (out.split()[0], err, process.returncode) == ("interrupted", "", 0)
    scripted_server.release()


def test_settings_reach_the_server(make: Any, scripted_server: Any) -> None:
    chat = make.chat(
        scripted_server,
        model="org/model@v2",
        seed=40,
        temperature=0.7,
        reasoning_effort="low",
        extra_body={"top_k": 5, "chat_template_kwargs": {"enable_thinking": False}},
        max_tokens=None,
    )
    chat.complete([ChatRequest("ask", "", "Say so.", max_tokens=99, sample=2)])
    body = scripted_server.requests()[0]["body"]
    assert body == {
        "model": "org/model@v2",
        "messages": [{"role": "user", "content": "Say so."}],
        "max_tokens": 99,
        "temperature": 0.7,
        "seed": 42,
        "reasoning_effort": "low",
        "top_k": 5,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_the_limit_of_the_client_bounds_that_of_the_requests(make: Any, scripted_server: Any) -> None:
    chat = make.chat(scripted_server, max_tokens=50)
    chat.complete([ChatRequest("ask", "", "Say so.", max_tokens=m) for m in (20, 8192)])
    assert sorted(e["body"]["max_tokens"] for e in scripted_server.requests()) == [20, 50]


def test_requests_a_minute_are_spread(make: Any, scripted_server: Any) -> None:
    chat = make.chat(scripted_server, requests_per_minute=600.0)
    chat.complete(questions(6))
    times = sorted(e["at"] for e in scripted_server.requests())
    assert times[-1] - times[0] > 0.4


def test_a_lone_surrogate_is_replaced(make: Any, scripted_server: Any) -> None:
    make.chat(scripted_server).complete([ChatRequest("ask", "", "Say \ud800 so.")])
    assert scripted_server.requests()[0]["body"]["messages"][0]["content"] == "Say ? so."


def test_nothing_of_the_environment_is_sent(make: Any, scripted_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-private")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-private")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Private: mine")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    make.chat(scripted_server).complete(questions(1))
    headers = dict(scripted_server.requests()[0]["headers"])
    assert set(headers) == {
        "host",
        "accept",
        "accept-encoding",
        "connection",
        "user-agent",
        "content-type",
        "content-length",
    }
    assert headers["user-agent"] == "prismem-core"


def test_the_key_of_the_named_variable_is_sent(
    make: Any, scripted_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-general")
    monkeypatch.setenv("JUDGE_KEY", " sk-judge\n")
    make.chat(scripted_server).complete(questions(1))
    make.chat(scripted_server, key_env="JUDGE_KEY").complete(questions(1))
    sent = [dict(e["headers"])["authorization"] for e in scripted_server.requests()]
    assert sent == ["Bearer sk-general", "Bearer sk-judge"]
    with pytest.raises(RoleError, match="ABSENT_KEY, which is not set"):
        make.chat(scripted_server, key_env="ABSENT_KEY").complete(questions(1))
