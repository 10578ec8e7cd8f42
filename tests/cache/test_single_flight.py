"""Single flight: of all threads that miss an entry one computes, the others wait and share its outcome."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from prismem_core.cache import ExecutionCache
from prismem_core.errors import CacheError

from .conftest import key


class ComputeFailure(Exception):
    pass


def in_threads(count: int, work: Callable[[int], object]) -> list[object]:
    """What `work(i)` returned or raised in thread i, all started together."""
    results: list[object] = [None] * count
    start = threading.Barrier(count)

    def body(i: int) -> None:
        start.wait()
        try:
            results[i] = work(i)
        except BaseException as error:
            results[i] = error

    threads = [threading.Thread(target=body, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)
    return results


def until_waiting(cache: ExecutionCache, stage: str, count: int) -> None:
    """Returns when `count` threads wait in the stage."""
    deadline = time.monotonic() + 20
    while (counters := cache.counters().get(stage)) is None or counters.waits < count:
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize("on_disk", [False, True])
def test_one_thread_computes_and_all_get_its_value(tmp_path: Path, on_disk: bool) -> None:
    cache = ExecutionCache(tmp_path if on_disk else None)
    calls = []

    def compute() -> bytes:
        calls.append(threading.get_ident())
        until_waiting(cache, "s", 15)
        return b"value"

    assert in_threads(16, lambda _: cache.get_or_compute("s", key(1), compute)) == [b"value"] * 16
    assert len(calls) == 1
    counted = cache.counters()["s"]
    assert (counted.hits, counted.misses, counted.waits, counted.stores) == (0, 1, 15, 1)


def test_different_entries_are_computed_at_the_same_time() -> None:
    cache = ExecutionCache()
    together = threading.Barrier(4)

    def compute() -> bytes:
        together.wait(timeout=20)
        return b"x"

    assert in_threads(4, lambda i: cache.get_or_compute("s", key(i), compute)) == [b"x"] * 4


def test_an_exception_reaches_all_who_wait_and_stores_nothing(tmp_path: Path) -> None:
    cache = ExecutionCache(tmp_path)
    failure = ComputeFailure("no model")

    def compute() -> bytes:
        until_waiting(cache, "s", 7)
        raise failure

    results = in_threads(8, lambda _: cache.get_or_compute("s", key(1), compute))
    assert all(result is failure for result in results)
    assert cache.get("s", key(1)) is None
    assert cache.counters()["s"].stores == 0
    assert cache.get_or_compute("s", key(1), lambda: b"later") == b"later"


def test_the_trace_leads_to_the_line_that_failed() -> None:
    def compute() -> bytes:
        raise ComputeFailure("here")

    with pytest.raises(ComputeFailure) as caught:
        ExecutionCache().get_or_compute("s", key(1), compute)
    assert [entry.name for entry in caught.traceback][-1] == "compute"


def test_asking_for_the_entry_being_computed_is_an_error_and_no_deadlock() -> None:
    cache = ExecutionCache()

    def compute() -> bytes:
        return cache.get_or_compute("s", key(1), lambda: b"inner")

    with pytest.raises(CacheError, match="inside its own compute"):
        cache.get_or_compute("s", key(1), compute)
    assert cache.get_or_compute("s", key(1), lambda: b"outer") == b"outer"


def test_a_compute_function_may_ask_for_other_entries() -> None:
    cache = ExecutionCache()

    def compute() -> bytes:
        return cache.get_or_compute("t", key(1), lambda: b"inner") + cache.get_or_compute("s", key(2), lambda: b"!")

    assert cache.get_or_compute("s", key(1), compute) == b"inner!"


def test_two_that_wait_for_each_other_get_an_error_and_no_deadlock() -> None:
    cache = ExecutionCache()
    both_inside = threading.Barrier(2)

    def work(i: int) -> bytes:
        def compute() -> bytes:
            both_inside.wait(timeout=20)
            return cache.get_or_compute("s", key(1 - i), lambda: b"unused")

        return cache.get_or_compute("s", key(i), compute)

    results = in_threads(2, work)
    assert all(isinstance(result, CacheError) and "wait for each other" in str(result) for result in results)


def test_many_threads_on_few_entries_compute_each_once() -> None:
    cache = ExecutionCache()
    calls: list[int] = []

    def work(i: int) -> list[bytes]:
        got = []
        for step in range(200):
            n = (i * 7 + step) % 50
            got.append(cache.get_or_compute("s", key(n), lambda n=n: (calls.append(n), b"%d" % n)[1]))
        return got

    for i, got in enumerate(in_threads(8, work)):
        assert got == [b"%d" % ((i * 7 + step) % 50) for step in range(200)]
    assert sorted(calls) == list(range(50))
    counted = cache.counters()["s"]
    assert counted.hits + counted.misses + counted.waits == 8 * 200
    assert counted.misses == counted.stores == 50


def test_an_interrupt_ends_the_wait(run: Callable[..., str]) -> None:
    out = run(
        """
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have had its background jobs ignore it
cache = ExecutionCache()
started, over = threading.Event(), threading.Event()
def compute():
    started.set()
    over.wait(30)
    return b"done"
leader = threading.Thread(target=lambda: cache.get_or_compute("s", digest(1), compute))
leader.start()
started.wait()
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    cache.get_or_compute("s", digest(1), lambda: b"other")
except KeyboardInterrupt:
    print("interrupted", leader.is_alive())
over.set()
leader.join()
print(cache.get("s", digest(1)))
"""
    )
    assert out == "interrupted True\nb'done'\n"
