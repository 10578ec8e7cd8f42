"""Calls side by side: those that run are the same whatever the timing."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from prismem_core.pipeline.windows import in_window

WIDTH = 4


class Calls:
    """Numbered calls that note their start; the ones in `failing` fail, and wait for those in `after` to have begun."""

    def __init__(self, count: int, failing: set[int], after: dict[int, int]) -> None:
        self.started = [threading.Event() for _ in range(count)]
        self.failing = failing
        self.after = after
        self.stopping = threading.Event()

    def one(self, number: int) -> Callable[[], int | None]:
        def call() -> int | None:
            self.started[number].set()
            if number in self.after:
                assert self.started[self.after[number]].wait(30)
            return None if number in self.failing else number

        return call

    def run(self) -> list[int | None]:
        calls = [self.one(number) for number in range(len(self.started))]
        return list(in_window(calls, WIDTH, lambda result: result is None, self.stopping))

    def ran(self) -> list[int]:
        return [number for number, event in enumerate(self.started) if event.is_set()]


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 20])
def test_all_run_and_come_in_order(count: int) -> None:
    calls = Calls(count, set(), {})
    assert calls.run() == list(range(count))
    assert calls.ran() == list(range(count))


@pytest.mark.parametrize("after", [{}, {5: 8}, {2: 5}, {0: 3, 4: 7, 5: 8}], ids=str)
@pytest.mark.parametrize("failing", [{5}, {5, 6}, {5, 7, 8}, {5, 12}], ids=str)
def test_a_failure_lets_exactly_a_window_run(failing: set[int], after: dict[int, int]) -> None:
    calls = Calls(20, failing, after)
    assert calls.run() == [0, 1, 2, 3, 4, None]
    assert calls.ran() == list(range(5 + WIDTH))


def test_as_many_run_side_by_side_as_the_window_is_wide() -> None:
    calls = Calls(8, set(), {0: 3, 4: 7})
    assert calls.run() == list(range(8))


def test_a_failure_near_the_end_runs_what_there_is() -> None:
    calls = Calls(6, {4}, {})
    assert calls.run()[-1] is None
    assert calls.ran() == list(range(6))


def test_an_interrupt_starts_no_more() -> None:
    calls = Calls(20, set(), {})
    seen = []
    for result in in_window([calls.one(i) for i in range(20)], WIDTH, lambda result: result is None, calls.stopping):
        seen.append(result)
        if result == 2:
            calls.stopping.set()
    assert seen == [0, 1, 2]
    assert calls.ran()[-1] < 2 + 1 + WIDTH


def test_what_a_call_raises_comes_out() -> None:
    def broken() -> int:
        raise ValueError("away")

    calls = Calls(20, set(), {})
    waiting: list[Callable[[], int | None]] = [calls.one(0), broken, *(calls.one(i) for i in range(2, 20))]
    with pytest.raises(ValueError, match="away"):
        list(in_window(waiting, WIDTH, lambda result: result is None, calls.stopping))
    assert max(calls.ran()) < 1 + WIDTH
