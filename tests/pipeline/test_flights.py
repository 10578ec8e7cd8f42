"""Calls under way: few compute, all that wait go out together, and nobody waits for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from prismem_core.errors import RoleError
from prismem_core.pipeline import flights as flights_module
from prismem_core.pipeline.backend import EngineBackend
from prismem_core.pipeline.flights import Flights, SearchBroker
from prismem_core.program.collections.query import EMPTY, CollectionQuery, Hits
from prismem_core.program.collections.store import CollectionStore, Scope
from prismem_core.roles.ledger import Ledger
from prismem_core.roles.protocols import ChatReply, ChatRequest


class Alphabet:
    """Texts embed as their first letter."""

    identity = "alphabet"
    dimension = 26

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[list[str]] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        assert self.gate.wait(30)
        if "!" in texts:
            raise RoleError("the embedder is away")
        self.batches.append(list(texts))
        rows = np.zeros((len(texts), 26), np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[ord(text[0]) - ord("a")] = 1
        return rows


class Bench:
    """A broker over one collection of three texts."""

    def __init__(self, computing: int = 2) -> None:
        self.embedder = Alphabet()
        self.flights = Flights(computing)
        self.ledger = Ledger()
        self.store = CollectionStore(self.embedder)
        self.scope = Scope()
        self.handle = self.store.add(self.scope, EMPTY, ["apple", "banana", "cherry"])
        self.embedder.batches.clear()
        self.broker = SearchBroker(self.store, self.flights, self.ledger)

    def find(self, text: str) -> Hits:
        return self.broker.find(CollectionQuery("search", self.handle, 3, (text,), 1))[0]


def run(works: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


def test_all_that_wait_go_out_as_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights_module, "LINGER_SECONDS", 30.0)
    bench, found = Bench(), {}
    start = threading.Barrier(8)

    def one(number: int) -> Callable[[], None]:
        def work() -> None:
            text = "abc"[number % 3]
            start.wait(30)
            with bench.flights.flight():
                found[number] = bench.find(text)

        return work

    # None may reach the broker before all are under way.
    with bench.flights.flight():
        threads = [threading.Thread(target=one(number), daemon=True) for number in range(8)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 30
        while bench.flights.engaged > 1 or len(bench.broker._waiting) < 8:
            assert time.monotonic() < deadline
            time.sleep(0.001)
    for thread in threads:
        thread.join(30)
    assert found == {number: ([number % 3], [1.0]) for number in range(8)}
    assert [sorted(batch) for batch in bench.embedder.batches] == [["a", "b", "c"]]
    launches = {"embed": 1, "top_k": 1}
    assert bench.ledger.launches().to_dict() == {"calls": 8, "batches": 1, "merged": 8, "launches": launches}


def test_a_search_alone_waits_for_nobody() -> None:
    bench = Bench()
    with bench.flights.flight():
        assert bench.find("b") == ([1], [1.0])
    assert bench.ledger.launches().merged == 0


def test_a_search_does_not_wait_for_a_call_that_computes_on() -> None:
    bench, done = Bench(), threading.Event()

    def long() -> None:
        with bench.flights.flight():
            assert done.wait(30), "the search waited for this call"

    def short() -> None:
        with bench.flights.flight():
            assert bench.find("c") == ([2], [1.0])
        done.set()

    run([long, short])


def test_searches_that_come_during_a_launch_gather_for_the_next() -> None:
    bench = Bench(computing=4)
    bench.embedder.gate.clear()

    def alone() -> None:
        with bench.flights.flight():
            bench.find("a")

    first = threading.Thread(target=alone, daemon=True)
    first.start()
    deadline = time.monotonic() + 30
    while not bench.broker._launching:
        assert time.monotonic() < deadline
        time.sleep(0.001)

    def later() -> None:
        with bench.flights.flight():
            assert bench.find("b") == ([1], [1.0])

    others = [threading.Thread(target=later, daemon=True) for _ in range(3)]
    for thread in others:
        thread.start()
    while len(bench.broker._waiting) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    bench.embedder.gate.set()
    for thread in [first, *others]:
        thread.join(30)
    assert bench.embedder.batches == [["a"], ["b"]]


def test_at_most_as_many_compute_as_there_are_places() -> None:
    flights, lock = Flights(2), threading.Lock()
    now, most = [0], [0]

    def work() -> None:
        for _ in range(20):
            with flights.flight():
                with lock:
                    now[0] += 1
                    most[0] = max(most[0], now[0])
                time.sleep(0.0005)
                with lock:
                    now[0] -= 1
                with flights.away():
                    time.sleep(0.0005)

    run([work] * 8)
    assert most[0] <= 2
    assert flights.engaged == 0


def test_a_failing_embedder_fails_every_search_of_the_batch_and_the_broker_goes_on() -> None:
    bench = Bench()
    failed: list[str] = []

    def work(text: str) -> Callable[[], None]:
        def one() -> None:
            with bench.flights.flight():
                try:
                    bench.find(text)
                except RoleError:
                    failed.append(text)

        return one

    run([work("!"), work("!")])
    assert failed == ["!", "!"]
    with bench.flights.flight():
        assert bench.find("a") == ([0], [1.0])


def test_a_program_that_waits_for_a_model_gives_up_its_place() -> None:
    flights = Flights(1)
    seen: list[tuple[str, int]] = []

    class Watching(Alphabet):
        def embed(self, texts: Sequence[str], salt: str = "") -> NDArray[np.float32]:
            with flights.flight():
                seen.append(("embed", flights.engaged))
            return super().embed(texts)

    class Model:
        identity = "model"

        def complete(self, requests: Sequence[ChatRequest], salt: str = "") -> list[ChatReply]:
            with flights.flight():
                seen.append(("ask", flights.engaged))
            return [ChatReply("yes", 1, 1) for _ in requests]

    backend = EngineBackend(Model(), Watching(), "retrieve", 64, "", flights)
    with flights.flight():
        assert backend.ask("well?", None, False) == "yes"
        assert backend.embed(["apple"]).shape == (1, 26)
    assert seen == [("ask", 1), ("embed", 1)]
    assert flights.engaged == 0
