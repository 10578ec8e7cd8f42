"""Time of calls: interleaved, on pinned cores, with the pools of every library held to a number of threads."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

Call = Callable[[], object]

_TRIES = 5


@dataclass(frozen=True)
class Clock:
    """What is read: seconds from an origin of its own."""

    name: str
    now: Callable[[], float]


def clock_for(threads: int) -> Clock:
    """CPU time of the process for one thread, so that a neighbour who takes the core does not count; else wall time.

    Processes that it started and waited for count with it.
    """
    return Clock("process CPU time", _cpu_seconds) if threads == 1 else Clock("wall time", time.perf_counter)


def with_others(clock: Clock, other_seconds: Callable[[], float]) -> Clock:
    """A clock of processor time that counts the seconds of further processes too."""
    return Clock(clock.name, lambda: clock.now() + other_seconds())


def _cpu_seconds() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


@dataclass(frozen=True)
class Timing:
    """Seconds a call: the median, the best, and half the distance between the quartiles as a part of the median.

    `wall` is the median by the wall clock, whatever the clock of the others: what waits for a disk shows there alone.
    """

    median: float
    best: float
    spread: float
    rounds: int
    repetitions: int
    wall: float = 0.0


def timing_of(seconds: list[float], repetitions: int, wall: list[float] | None = None) -> Timing:
    """The summary of the rounds of one competitor; at least one. `wall` are the same rounds by the wall clock."""
    median = statistics.median(seconds)
    low, high = (seconds[0], seconds[0]) if len(seconds) == 1 else _quartiles(seconds)
    spread = (high - low) / 2 / median if median > 0 else 0.0
    return Timing(median, min(seconds), spread, len(seconds), repetitions, statistics.median(wall or seconds))


def _quartiles(seconds: list[float]) -> tuple[float, float]:
    low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return low, high


def interleaved(
    calls: Mapping[str, Call],
    clock: Clock,
    *,
    rounds: int,
    least_seconds: float = 0.02,
    budget_seconds: float = 60.0,
) -> dict[str, Timing]:
    """Time all calls in turn, A B C A B C, for a number of rounds (at least three, then fewer where the budget ends).

    A call shorter than `least_seconds` is repeated back to back until it lasts that long, by the shortest of a few
    tries: one that others delayed would be repeated too seldom, and its caches cold. So every call has run before it is
    timed: pages are mapped, pools are started; what the caches hold is what the call before left there, and for
    repeated calls what the call itself left.
    """
    repetitions: dict[str, int] = {}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for name, call in calls.items():
        repetitions[name] = max(1, int(least_seconds / _shortest(call, least_seconds)))
    deadline = time.perf_counter() + budget_seconds
    for done in range(rounds):
        if done >= 3 and time.perf_counter() > deadline:
            break
        for name, call in calls.items():
            seconds[name].append(_seconds(call, clock, repetitions[name]))
    return {
        name: timing_of([own for own, _ in values], repetitions[name], [wall for _, wall in values])
        for name, values in seconds.items()
    }


def _shortest(call: Call, least_seconds: float) -> float:
    shortest = math.inf
    for _ in range(_TRIES):
        started = time.perf_counter()
        call()
        shortest = min(shortest, max(time.perf_counter() - started, 1e-9))
        if shortest > _TRIES * least_seconds:
            break
    return shortest


def _seconds(call: Call, clock: Clock, repetitions: int) -> tuple[float, float]:
    collecting = gc.isenabled()
    gc.disable()
    try:
        began = time.perf_counter()
        started = clock.now()
        for _ in range(repetitions):
            call()
        return (clock.now() - started) / repetitions, (time.perf_counter() - began) / repetitions
    finally:
        if collecting:
            gc.enable()


@contextlib.contextmanager
def pinned(cores: int) -> Iterator[None]:
    """Every thread of the process on the first `cores` cores it may use; each gets its own set back at the end.

    Threads of the pools of other libraries are pinned too: a set given to the caller alone would leave them outside.
    Does nothing where the system has no such call.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = {thread: os.sched_getaffinity(thread) for thread in _threads()}
    allowed = sorted(os.sched_getaffinity(0))
    _restrict({thread: set(allowed[:cores]) for thread in before})
    try:
        yield
    finally:
        mine = set(allowed)
        _restrict({thread: before.get(thread, mine) for thread in _threads()})


def _threads() -> list[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir("/proc/self/task")]
    return [0]


def _restrict(cores: Mapping[int, set[int]]) -> None:
    for thread, allowed in cores.items():
        # A thread may have ended since it was listed.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, allowed)


_POOL_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "PRISMEM_THREADS")


@contextlib.contextmanager
def library_threads(count: int) -> Iterator[None]:
    """Hold the pools of numpy, torch, faiss and others to `count` threads; libraries loaded inside the block too."""
    before = {name: os.environ.get(name) for name in _POOL_VARIABLES}
    os.environ.update(dict.fromkeys(_POOL_VARIABLES, str(count)))
    try:
        with _loaded_pools(count):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _loaded_pools(count: int) -> Iterator[None]:
    torch, faiss = sys.modules.get("torch"), sys.modules.get("faiss")
    torch_before = torch.get_num_threads() if torch else 0
    faiss_before = faiss.omp_get_max_threads() if faiss else 0
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError):
            import threadpoolctl

            stack.enter_context(threadpoolctl.threadpool_limits(count))
        if torch:
            torch.set_num_threads(count)
        if faiss:
            faiss.omp_set_num_threads(count)
        try:
            yield
        finally:
            if torch:
                torch.set_num_threads(torch_before)
            if faiss:
                faiss.omp_set_num_threads(faiss_before)
