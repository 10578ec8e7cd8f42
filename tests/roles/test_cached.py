"""Cached roles: one call a request, whoever asks and however often."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from prismem_core.cache import ExecutionCache
from prismem_core.errors import RoleError, RunError
from prismem_core.roles.cached import CachedChat, CachedEmbedder
from prismem_core.roles.ledger import Ledger
from prismem_core.roles.protocols import ChatReply, ChatRequest


class Echo:
    """Replies with the prompt in capitals; `slow` seconds a call; fails on the prompts in `broken`."""

    identity = "echo"
    batch = 1

    def __init__(self, slow: float = 0.0, broken: Sequence[str] = (), finish: str = "stop") -> None:
        self.seen: list[str] = []
        self.slow = slow
        self.broken = set(broken)
        self.finish = finish

    def complete(self, requests: Sequence[ChatRequest]) -> Sequence[ChatReply]:
        time.sleep(self.slow)
        for request in requests:
            if request.prompt in self.broken:
                raise RoleError("the provider is down")
        self.seen += [request.prompt for request in requests]
        return [ChatReply(r.prompt.upper(), len(r.prompt), 1, self.finish) for r in requests]


def request(prompt: str, **changes: object) -> ChatRequest:
    return ChatRequest("ask", "system", prompt, **changes)  # type: ignore[arg-type]


def test_replies_keep_order_and_equal_requests_are_sent_once() -> None:
    chat, ledger = Echo(), Ledger()
    cached = CachedChat(chat, ExecutionCache(), ledger, workers=3)
    prompts = ["b", "a", "b", "c"]
    assert [r.text for r in cached.complete([request(p) for p in prompts])] == ["B", "A", "B", "C"]
    assert sorted(chat.seen) == ["a", "b", "c"]
    assert [r.text for r in cached.complete([request("c"), request("a")])] == ["C", "A"]
    assert len(chat.seen) == 3
    assert ledger.totals()["chat", "ask"].calls == 3


def test_everything_that_can_change_a_reply_is_in_the_key() -> None:
    chat = Echo()
    cached = CachedChat(chat, ExecutionCache(), Ledger())
    base = request("a")
    variants = [
        base,
        request("a", max_tokens=5),
        request("a", temperature=0.5),
        request("a", sample=1),
        request("a", schema={"type": "object"}),
        request("a", inputs={"x": 1}),
        ChatRequest("ask", "other system", "a"),
        ChatRequest("plan", "system", "a"),
    ]
    for variant in variants:
        cached.complete([variant])
    cached.complete([base], salt="other")
    assert len(chat.seen) == len(variants) + 1
    other = Echo()
    other.identity = "echo 2"
    CachedChat(other, cached._cache, Ledger()).complete([base])
    assert other.seen == ["a"]


def test_threads_that_ask_the_same_at_once_pay_once() -> None:
    chat, ledger = Echo(slow=0.05), Ledger()
    cached = CachedChat(chat, ExecutionCache(), ledger)
    gate = threading.Barrier(6)

    def ask(_: int) -> list[str]:
        gate.wait()
        return [r.text for r in cached.complete([request("same"), request("too")])]

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(ask, range(6))) == [["SAME", "TOO"]] * 6
    assert sorted(chat.seen) == ["same", "too"]
    assert ledger.totals()["chat", "ask"].calls == 2


def test_a_failure_is_not_stored_and_what_came_before_it_is() -> None:
    chat = Echo(broken=["bad"])
    cached = CachedChat(chat, ExecutionCache(), Ledger())
    with pytest.raises(RoleError, match="provider is down"):
        cached.complete([request("good"), request("bad")])
    chat.broken.clear()
    assert [r.text for r in cached.complete([request("good"), request("bad")])] == ["GOOD", "BAD"]
    assert chat.seen == ["good", "bad"]


def test_a_reply_cut_by_the_limit_is_not_stored_but_is_counted() -> None:
    chat, ledger = Echo(finish="length"), Ledger()
    cached = CachedChat(chat, ExecutionCache(), ledger)
    for _ in range(2):
        assert cached.complete([request("a")])[0].finish_reason == "length"
    assert chat.seen == ["a", "a"]
    assert ledger.totals()["chat", "ask"].calls == 2


def test_threads_that_wait_for_a_reply_that_is_cut_get_it() -> None:
    chat, ledger = Echo(slow=0.1, finish="length"), Ledger()
    cached = CachedChat(chat, ExecutionCache(), ledger)
    gate = threading.Barrier(6)

    def ask(_: int) -> ChatReply:
        gate.wait()
        return cached.complete([request("a")])[0]

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(ask, range(6))) == [ChatReply("A", 1, 1, "length")] * 6
    assert chat.seen == ["a"]
    assert ledger.totals()["chat", "ask"].calls == 1
    cached.complete([request("a")])
    assert chat.seen == ["a", "a"], "it is kept for nobody else"
    assert not cached._unstored._replies and not cached._unstored._asking


def test_requests_of_several_purposes_keep_their_order() -> None:
    chat, cache = Echo(), ExecutionCache()
    chat.batch = 4
    requests = [ChatRequest(purpose, "", f"{purpose}{i}") for i in range(3) for purpose in ("plan", "ask")]
    replies = CachedChat(chat, cache, Ledger(), workers=2).complete([*requests, requests[0]])
    assert [r.text for r in replies] == [r.prompt.upper() for r in [*requests, requests[0]]]
    assert sorted(chat.seen) == sorted(r.prompt for r in requests)
    assert {stage: counted.stores for stage, counted in cache.counters().items()} == {"ask": 3, "plan": 3}


def test_a_call_costs_its_tokens() -> None:
    cache = ExecutionCache()
    CachedChat(Echo(), cache, Ledger()).complete([request("12345")])
    CachedEmbedder(Letters(), cache, Ledger()).embed(["abcde", "ab"])
    assert sorted((e.stage, e.cost) for e in cache.entries()) == [("ask", 6.0), ("embed", 1.0), ("embed", 2.0)]


def test_a_stored_reply_that_is_evicted_at_once_is_still_the_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = Echo()
    cached = CachedChat(chat, ExecutionCache(), Ledger())
    found = b'{"input_tokens":1,"output_tokens":1,"text":"stored"}'
    # Missed, then stored by another thread, then evicted.
    answers = iter([None, found, None, None])
    monkeypatch.setattr(cached._cache, "get_many", lambda stage, keys: [next(answers) for _ in keys])
    assert [r.text for r in cached.complete([request("a")])] == ["stored"]
    assert chat.seen == []


class Letters:
    """Embeds a text by its first two letters."""

    identity = "letters"
    dimension = 2

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.result: np.ndarray | None = None

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        time.sleep(0.01)
        self.seen += texts
        rows = np.array([[ord(t[0]), ord(t[1])] for t in texts], np.float32)
        return rows if self.result is None else self.result


def test_embeddings_are_paid_once_and_isolated() -> None:
    embedder, ledger = Letters(), Ledger()
    cached = CachedEmbedder(embedder, ExecutionCache(), ledger)
    first = cached.embed(["ab", "cd", "ab"])
    assert first.dtype == np.float32
    assert first.tolist() == [[97, 98], [99, 100], [97, 98]]
    first[:] = 0
    assert cached.embed(["cd"]).tolist() == [[99, 100]]
    assert embedder.seen == ["ab", "cd"]
    assert cached.embed([]).shape == (0, 2)
    texts = [f"{a}{b}" for a in "abcdefgh" for b in "abcdefgh"]
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(cached.embed, [texts] * 4))
    assert all(np.array_equal(r, rows[0]) for r in rows)
    assert sorted(embedder.seen) == sorted({*texts, "ab", "cd"})


@pytest.mark.parametrize("result", [np.zeros((2, 2), np.float32), np.full((1, 2), np.nan, np.float32)])
def test_a_malformed_embedding_is_the_embedders_failure(result: np.ndarray) -> None:
    embedder = Letters()
    embedder.result = result
    with pytest.raises(RoleError, match="'letters'"):
        CachedEmbedder(embedder, ExecutionCache(), Ledger()).embed(["xy"])


def test_a_ledger_goes_on_where_another_process_stopped(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    ledger = Ledger(path)
    with ledger.scope(program="n01"):
        ledger.record("chat", "plan", "k1", 10, 2)
        with ledger.scope(purpose="diagnostics"):
            ledger.record("chat", "plan", "k2", 5, 1)
    ledger.record("embedder", "embed", "k3", 7, 0)
    ledger.close()
    with path.open("ab") as file:
        file.write(b'{"role":"chat","sta')
    again = Ledger(path)
    assert again.totals() == ledger.totals()
    assert again.by_purpose() == ledger.by_purpose()
    assert list(again.by_purpose()) == [("", "embed", ""), ("n01", "plan", ""), ("n01", "plan", "diagnostics")]
    assert again.for_purpose("diagnostics").input_tokens == 5
    again.record("chat", "plan", "k4", 1, 1)
    again.close()
    assert path.read_bytes().count(b'"stage"') == 4
    assert Ledger(path, read_only=True).totals()["chat", "plan"].calls == 3


def test_launches_are_counted_apart_from_calls(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    ledger = Ledger(path)
    ledger.record("embedder", "embed", "k1", 7, 0)
    ledger.record_launches(1, {"embed": 1, "top_k": 1})
    ledger.record_launches(5, {"top_k": 2})
    ledger.close()
    expected = {"calls": 6, "batches": 2, "merged": 5, "launches": {"embed": 1, "top_k": 3}}
    for one in (ledger, Ledger(path, read_only=True)):
        assert one.launches().to_dict() == expected
        assert list(one.totals()) == [("embedder", "embed")]
    ledger.launches().add(9, {"top_k": 9})
    assert ledger.launches().to_dict() == expected, "what is given out is a copy"


def test_a_ledger_on_a_full_disk_says_so_and_keeps_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "calls.jsonl"
    ledger = Ledger(path)
    ledger.record("chat", "plan", "k1", 10, 2)
    whole = path.read_bytes()
    write = os.write
    monkeypatch.setattr("prismem_core.roles.ledger.os.write", lambda file, data: write(file, data[:7]))
    with pytest.raises(RunError, match="free some space and resume"):
        ledger.record("chat", "plan", "k2", 10, 2)
    monkeypatch.undo()
    assert path.read_bytes() == whole
    ledger.record("chat", "plan", "k2", 10, 2)
    ledger.close()
    assert Ledger(path, read_only=True).totals()["chat", "plan"].calls == 2


def test_a_ledger_says_in_which_iteration_a_call_was_made(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    ledger = Ledger(path)
    ledger.record("chat", "plan", "k1", 1, 1)
    ledger.begin_iteration(0)
    with ledger.scope(program="n00"):
        ledger.record("chat", "plan", "k2", 2, 2)
        ledger.begin_iteration(1)
        ledger.record("chat", "plan", "k3", 3, 3)
    with ledger.scope(purpose="test"):
        ledger.record("chat", "plan", "k4", 4, 4)
    ledger.close()
    expected = {(None, "plan", ""): 1, (0, "plan", ""): 2, (1, "plan", ""): 3, (1, "plan", "test"): 4}
    for one in (ledger, Ledger(path, read_only=True)):
        assert {key: usage.input_tokens for key, usage in one.by_iteration().items()} == expected


def test_a_salt_keeps_equal_texts_apart() -> None:
    ledger = Ledger()
    embedder = CachedEmbedder(Letters(), ExecutionCache(), ledger)
    rows = [embedder.embed(["xy"], salt) for salt in ("", "a", "b", "a", "")]
    assert all(np.array_equal(row, rows[0]) for row in rows)
    assert ledger.totals()["embedder", "embed"].calls == 3
