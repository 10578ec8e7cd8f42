"""Calls that run side by side and yet the same ones in every run: a window of fixed width that a failure stops."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

MEMORIES = 16
"""Memories that are built and searched at a time where a model takes calls of several threads."""
SLOTS = 64
"""Queries that are under way then, whatever the model's slots: each is a process of its own."""


def under_way(histories: int, workers: int, copies: int, *models: object) -> tuple[int, int]:
    """How many memories are built and searched at a time, and how many queries of each are under way.

    As many memories as `workers` and `copies` queries; more where one of `models` is `concurrent`, so that the programs
    that wait for it fill its slots. It depends on settings and questions alone, so that the same calls run every time.
    """
    slots = max((_slots(model) for model in models if getattr(model, "concurrent", False)), default=1)
    if slots <= 1:
        return max(1, workers), copies
    memories = max(1, min(histories, max(workers, min(MEMORIES, slots))))
    return memories, max(copies, -(-slots // memories))


def _slots(model: object) -> int:
    return min(SLOTS, getattr(getattr(model, "meter", None), "slots", 1))


def in_window(
    calls: Sequence[Callable[[], Result]], width: int, failed: Callable[[Result], bool], stopping: threading.Event
) -> Generator[Result, None, None]:
    """Results in the order of `calls` up to the first that `failed`, or until `stopping`.

    A call starts once all but the `width` - 1 before it have come back without a failure. So whatever the timing, those
    before the first failure and `width` from it on have run when the generator ends.
    """
    with ThreadPoolExecutor(max(1, min(len(calls), width))) as pool:
        running: deque[Future[Result]] = deque(pool.submit(call) for call in calls[:width])
        waiting = deque(calls[width:])
        try:
            while running and not stopping.is_set():
                result = running.popleft().result()
                if failed(result):
                    for future in running:
                        future.result()
                    running.clear()
                    waiting.clear()
                elif waiting:
                    running.append(pool.submit(waiting.popleft()))
                yield result
        finally:
            for future in running:
                future.cancel()
