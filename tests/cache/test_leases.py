"""Leases: of all threads that want to compute an entry one has it, and the others look again when it is done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from prismem_core.cache import ExecutionCache

from .conftest import key


@pytest.fixture(params=["memory", "disk"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> ExecutionCache:
    return ExecutionCache(None if request.param == "memory" else tmp_path / "cache")


def test_a_lease_holds_what_was_asked_for(cache: ExecutionCache) -> None:
    with cache.lease("s", [key(2), key(1), key(2)]) as lease:
        assert (lease.held, lease.waited) == ([0, 1, 2], False)
    with cache.lease("s", []) as lease:
        assert lease.held == []


def test_one_at_a_time_has_an_entry(cache: ExecutionCache) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work(i: int) -> None:
        for step in range(30):
            with cache.lease("s", [key(step % 3), key(step % 2), key("all")]):
                inside.append(i)
                most.append(len(inside))
                time.sleep(0.0002)
                inside.remove(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    assert len(most) == 180 and max(most) == 1


def test_entries_of_other_names_are_no_hindrance(cache: ExecutionCache) -> None:
    together = threading.Barrier(3)

    def work(stage: str, name: str) -> None:
        with cache.lease(stage, [name]) as lease:
            assert lease.held == [0]
            together.wait(timeout=20)

    threads = [threading.Thread(target=work, args=pair) for pair in (("s", key(1)), ("s", key(2)), ("t", key(1)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not together.broken


def test_a_thread_that_holds_a_lease_never_waits(cache: ExecutionCache) -> None:
    both = threading.Barrier(2)
    held: dict[int, list[int]] = {}

    def work(i: int) -> None:
        with cache.lease("s", [key(i)]):
            both.wait(timeout=20)
            with cache.lease("s", [key(1 - i), key("free", i)]) as inner:
                held[i] = inner.held
                both.wait(timeout=20)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert held == {0: [1], 1: [1]}


def test_an_exception_gives_the_lease_back(cache: ExecutionCache) -> None:
    with pytest.raises(ValueError, match="mine"), cache.lease("s", [key(1)]):
        raise ValueError("mine")
    got: list[list[int]] = []

    def work() -> None:
        with cache.lease("s", [key(1)]) as lease:
            got.append(lease.held)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=20)
    assert got == [[0]]


def test_a_computation_takes_the_lease_of_its_entry(cache: ExecutionCache) -> None:
    order: list[str] = []
    started = threading.Event()

    def compute() -> bytes:
        started.set()
        time.sleep(0.1)
        order.append("computed")
        return b"value"

    thread = threading.Thread(target=lambda: cache.get_or_compute("s", key(1), compute))
    thread.start()
    assert started.wait(timeout=20)
    with cache.lease("s", [key(1)]) as lease:
        order.append("leased")
        assert lease.waited
        assert cache.get("s", key(1)) == b"value"
    thread.join()
    assert order == ["computed", "leased"]


def test_an_interrupt_ends_the_wait_for_a_lease(run: Callable[..., str]) -> None:
    out = run(
        """
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have had its background jobs ignore it
cache = ExecutionCache()
held, over = threading.Event(), threading.Event()
def hold():
    with cache.lease("s", [digest(1)]):
        held.set()
        over.wait(30)
holder = threading.Thread(target=hold)
holder.start()
held.wait()
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    with cache.lease("s", [digest(1)]):
        print("held by two")
except KeyboardInterrupt:
    print("interrupted", holder.is_alive())
over.set()
holder.join()
"""
    )
    assert out == "interrupted True\n"
