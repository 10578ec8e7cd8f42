"""Interleaving, and what is put back after a measurement."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from prismem_core.bench import timing


def test_calls_take_turns_and_short_ones_are_repeated() -> None:
    calls: list[str] = []
    ticks = iter(range(10_000))
    clock = timing.Clock("ticks", lambda: float(next(ticks)))
    found = timing.interleaved(
        {"a": lambda: calls.append("a"), "b": lambda: time.sleep(0.03) or calls.append("b")},  # type: ignore[func-returns-value]
        clock,
        rounds=3,
        least_seconds=0.02,
    )
    short = found["a"].repetitions
    assert short > 10
    assert found["b"].repetitions == 1
    # Each has been tried before; then A B A B A B.
    tries = calls[: -3 * (short + 1)]
    assert (tries[0], tries[-1]) == ("a", "b") and tries == sorted(tries)
    assert calls[len(tries) :] == (["a"] * short + ["b"]) * 3
    assert found["a"].median == pytest.approx(1 / short)
    assert found["b"].median == found["b"].best == 1.0
    assert found["b"].rounds == 3


def test_a_call_that_others_delayed_once_is_repeated_as_often_as_its_shortest_try_asks() -> None:
    pauses = iter([0.03])

    def delayed_at_first() -> None:
        time.sleep(next(pauses, 0.0))

    found = timing.interleaved({"a": delayed_at_first}, timing.clock_for(2), rounds=3, least_seconds=0.02)
    assert found["a"].repetitions > 10


def test_the_budget_ends_the_rounds_but_not_before_the_third() -> None:
    clock = timing.clock_for(2)
    found = timing.interleaved({"a": lambda: time.sleep(0.02)}, clock, rounds=50, budget_seconds=0.01)
    assert found["a"].rounds == 3


def test_a_summary_of_rounds() -> None:
    found = timing.timing_of([4.0, 1.0, 3.0, 2.0, 100.0], 7)
    assert (found.median, found.best, found.rounds, found.repetitions) == (3.0, 1.0, 5, 7)
    assert found.spread == pytest.approx((4.0 - 2.0) / 2 / 3.0)
    assert timing.timing_of([2.0], 1).spread == 0.0
    assert timing.timing_of([2.0, 3.0, 4.0], 1, [5.0, 9.0, 7.0]).wall == 7.0


def test_the_wall_clock_runs_beside_that_of_the_process() -> None:
    found = timing.interleaved({"a": lambda: time.sleep(0.03)}, timing.clock_for(1), rounds=3)
    assert found["a"].median < 0.02 < found["a"].wall


def test_one_thread_is_measured_in_cpu_time_and_two_by_the_wall() -> None:
    assert timing.clock_for(2).now is time.perf_counter
    clock = timing.clock_for(1)
    before = clock.now()
    time.sleep(0.3)
    assert clock.now() - before < 0.25
    work = "import time\nwhile time.process_time() < 0.3: pass"
    before = clock.now()
    subprocess.run([sys.executable, "-c", work], check=True)
    assert clock.now() - before > 0.25


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no threads")
def test_every_thread_is_pinned_and_gets_its_cores_back() -> None:
    before = os.sched_getaffinity(0)
    go, seen, done = threading.Event(), threading.Event(), threading.Event()
    cores: list[set[int]] = []

    def watch() -> None:
        go.wait(10)
        cores.append(os.sched_getaffinity(0))
        seen.set()
        done.wait(10)
        cores.append(os.sched_getaffinity(0))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with timing.pinned(1):
        assert len(os.sched_getaffinity(0)) == 1
        go.set()
        assert seen.wait(10)
    done.set()
    watcher.join()
    assert os.sched_getaffinity(0) == before
    assert len(cores[0]) == 1
    assert cores[1] == before


def test_the_environment_of_pools_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    monkeypatch.delenv("PRISMEM_THREADS", raising=False)
    with pytest.raises(RuntimeError), timing.library_threads(3):
        assert os.environ["OMP_NUM_THREADS"] == os.environ["PRISMEM_THREADS"] == "3"
        raise RuntimeError
    assert os.environ["OMP_NUM_THREADS"] == "5"
    assert "PRISMEM_THREADS" not in os.environ
