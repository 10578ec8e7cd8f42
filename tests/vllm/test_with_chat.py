"""A real vLLM plays the task model, behind a server and in this process: both meet the same tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from prismem_core.cache import ExecutionCache
from prismem_core.errors import BudgetError, RoleError
from prismem_core.pipeline.answer import answer
from prismem_core.pipeline.extract import extract
from prismem_core.pipeline.plan import plan
from prismem_core.pipeline.segment import Segment
from prismem_core.program.interface import FieldSpec, ProgramInterface, Schema
from prismem_core.roles.account import Account
from prismem_core.roles.budget import Allowance, Budget
from prismem_core.roles.cached import CachedChat
from prismem_core.roles.ledger import Ledger
from prismem_core.roles.protocols import ChatReply, ChatRequest
from tests.vllm.conftest import Place, make_chat

INTERFACE = ProgramInterface(
    Schema(
        (
            FieldSpec("text", "str"),
            FieldSpec("day", "str", optional=True),
            FieldSpec("certain", "bool"),
            FieldSpec("people", "list[str]"),
        )
    ),
    Schema((FieldSpec("query", "str"), FieldSpec("count", "int"), FieldSpec("recent", "bool"))),
    "One unit for each thing that was said.",
    "Name what to look for.",
    "Answer in a few words.",
)
SEGMENTS = [
    Segment(f"[{i} May 2023] Ana: I rowed {i} miles. Ben: The rain kept me at home.", (f"D{i}:1",)) for i in range(24)
]
QUESTIONS = [f"How many miles did Ana row on {i} May?" for i in range(8)]
SCHEMA = {
    "type": "object",
    "properties": {"place": {"type": "string"}, "sure": {"type": "boolean"}},
    "required": ["place", "sure"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def chat(chat_place: Place) -> Iterator[Any]:
    """A client that lives for the module: an engine in this process takes a while to start."""
    client = make_chat(chat_place, temperature=1.0, concurrency=64)
    yield client
    client.close()


@pytest.fixture(autouse=True)
def fresh_account(chat: Any) -> None:
    chat.account = Account("task")


# Without a seed and above temperature 0 the random model says something else each time, empty lists among it.
def ask(text: str, *, schema: Any = None, max_tokens: int = 400, temperature: float = 0.0) -> ChatRequest:
    return ChatRequest("ask", "Reply briefly.", text, {}, schema, max_tokens, temperature)


def test_extraction_planning_and_answering_hold_their_schemas(chat: Any) -> None:
    ledger = Ledger()
    cached = CachedChat(chat, ExecutionCache(None), ledger)
    extractions = extract(cached, INTERFACE, SEGMENTS, retries=2, max_tokens=1500)
    assert [e.problem for e in extractions] == [""] * len(SEGMENTS)
    units = [unit for e in extractions for unit in e.units]
    assert units and sum(e.dropped for e in extractions) == 0
    assert all(type(unit["certain"]) is bool and isinstance(unit["people"], list | tuple) for unit in units)
    plans = plan(cached, INTERFACE, QUESTIONS, retries=2, max_tokens=1500)
    assert [p.problem for p in plans] == [""] * len(QUESTIONS)
    assert all(p.value is not None and type(p.value["recent"]) is bool for p in plans)
    replies = answer(cached, INTERFACE, QUESTIONS, ["Ana rowed."] * len(QUESTIONS), max_tokens=40)
    assert len(replies) == len(QUESTIONS) and any(reply.text for reply in replies)
    assert all(0 < reply.output_tokens <= 40 for reply in replies)
    stages = {stage: usage for (_, stage), usage in ledger.totals().items()}
    assert stages["extract"].calls >= len(SEGMENTS) and stages["plan"].calls >= len(QUESTIONS)
    assert stages["answer"].output_tokens == sum(reply.output_tokens for reply in replies)


def test_tokens_are_those_that_the_server_counts(chat: Any, chat_place: Place) -> None:
    if chat_place.server is None:
        pytest.skip("an engine in this process has no counters of its own")
    read, written = chat_place.server.tokens()
    budget = Budget()
    chat.account = Account("task", budget=budget)
    chat.complete([ask(f"Where is number {i}?", schema=SCHEMA) for i in range(10)])
    spent = budget.spent()["task"]
    after = chat_place.server.tokens()
    assert (spent.input_tokens, spent.output_tokens) == (after[0] - read, after[1] - written)


def test_64_calls_are_in_flight_and_keep_their_order(chat_place: Place, chat: Any) -> None:
    client = make_chat(chat_place, concurrency=64, extra_body={"ignore_eos": True})
    try:
        requests = [ask(f"Say number {i}.", max_tokens=150 + i) for i in range(64)]
        seen = []
        replies: list[ChatReply | None] = [None] * 64
        for position, reply in client.complete_each(requests):
            seen.append(client.meter.under_way)
            replies[position] = reply
        # With the end of a reply ignored each is as long as it may be, which tells it from the others.
        assert [reply.output_tokens for reply in replies if reply] == [150 + i for i in range(64)]
        assert all(reply is not None and reply.finish_reason == "length" for reply in replies)
        assert max(seen) >= 56 and client.meter.read().calls == 64
    finally:
        client.close()


def test_replies_are_handed_over_as_they_are_finished(chat: Any) -> None:
    requests = [ask("A long one.", max_tokens=600), ask("A short one.", max_tokens=3)]
    order = [position for position, _ in chat.complete_each(requests)]
    assert sorted(order) == [0, 1]
    assert order[0] == 1


def test_a_cut_reply_says_so(chat: Any) -> None:
    (reply,) = chat.complete([ask("Where?", schema=SCHEMA, max_tokens=4)])
    assert reply.finish_reason == "length" and reply.output_tokens == 4
    (whole,) = chat.complete([ask("Where?", schema=SCHEMA)])
    assert whole.finish_reason == "stop" and set(json.loads(whole.text)) == {"place", "sure"}


def test_a_prompt_longer_than_the_context_is_one_clear_line(chat: Any) -> None:
    request = ChatRequest("extract", "Reply briefly.", "word " * 100_000, {}, SCHEMA, 400)
    with pytest.raises(RoleError) as caught:
        chat.complete([request])
    assert "4,096" in str(caught.value) or "4096" in str(caught.value)
    assert "segment_chars" in str(caught.value) and "\n" not in str(caught.value)
    assert "word word" not in str(caught.value)


def test_a_budget_ends_a_batch_with_the_calls_under_way(chat: Any) -> None:
    budget = Budget(Allowance(calls=5))
    chat.account = Account("task", budget=budget)
    got = []
    with pytest.raises(BudgetError, match="budget of calls"):
        for position, _ in chat.complete_each([ask(f"Number {i}?", max_tokens=20) for i in range(300)]):
            got.append(position)
    assert 5 <= len(got) <= 5 + 64
    assert budget.spent()["task"].calls == len(got)


def test_threads_that_ask_at_once_get_their_own_replies(chat_place: Place, chat: Any) -> None:
    client = make_chat(chat_place, concurrency=64, extra_body={"ignore_eos": True})
    lengths: dict[int, list[int]] = {}

    def work(thread: int) -> None:
        replies = client.complete([ask(f"Thread {thread}, {i}", max_tokens=10 * thread + i) for i in range(1, 9)])
        lengths[thread] = [reply.output_tokens for reply in replies]

    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert lengths == {number: [10 * number + i for i in range(1, 9)] for number in (1, 2, 3)}
    finally:
        client.close()


def test_streams_say_what_whole_replies_say(chat_place: Place, chat: Any) -> None:
    if chat_place.server is None:
        pytest.skip("an engine in this process hands over whole replies")
    whole, streamed = make_chat(chat_place), make_chat(chat_place, stream=True)
    try:
        for request in (ask("Where is it?", max_tokens=30), ask("Where is it?", schema=SCHEMA, max_tokens=400)):
            assert streamed.complete([request]) == whole.complete([request])
    finally:
        whole.close()
        streamed.close()
