"""Times by events of the device: competitors in turns, several calls back to back, medians of rounds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .stage import Stage

Call = Callable[[int], Any]
"""Does one call on the set of inputs with this number; sets change, so that a cache does not hold them."""


@dataclass(frozen=True)
class Times:
    """Seconds a call: median and half the distance of the quartiles of the rounds; bytes of memory that a call adds."""

    median: float
    spread: float
    rounds: int
    repetitions: int
    extra_bytes: int


def measured(stage: Stage, competitors: Mapping[str, Call], seconds: float) -> dict[str, Times]:
    """Time every competitor in each of several rounds, within about `seconds` in all."""
    each = seconds / len(competitors)
    extra, repetitions = {}, {}
    for name, call in competitors.items():
        extra[name] = extra_bytes(stage, call)
        once = max(_batch(stage, call, 1), 1e-6)
        # A batch long enough to hide the time between two events, a seventh of what there is at most.
        repetitions[name] = max(1, min(int(0.01 / once), int(each / 7 / once), 200))
    samples: dict[str, list[float]] = {name: [] for name in competitors}
    end = time.monotonic() + seconds
    while not all(samples.values()) or (time.monotonic() < end and len(next(iter(samples.values()))) < 15):
        for name, call in competitors.items():
            samples[name].append(_batch(stage, call, repetitions[name]))
    return {
        name: Times(statistics.median(found), _spread(found), len(found), repetitions[name], extra[name])
        for name, found in samples.items()
    }


def _spread(found: list[float]) -> float:
    if len(found) < 4:
        return (max(found) - min(found)) / 2
    lower, _, upper = statistics.quantiles(found, n=4)
    return (upper - lower) / 2


def _batch(stage: Stage, call: Call, repetitions: int) -> float:
    """Seconds a call of several back to back."""
    stage.sync()
    if stage.dry:
        start = time.perf_counter()
        for position in range(repetitions):
            call(position)
        return (time.perf_counter() - start) / repetitions
    cuda = stage.torch.cuda
    begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    begin.record()
    for position in range(repetitions):
        call(position)
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / repetitions


def extra_bytes(stage: Stage, call: Call) -> int:
    """Memory that a call has at its peak beyond its inputs, results included; the second call, after compilation."""
    call(0)
    stage.sync()
    if stage.dry:
        return 0
    cuda = stage.torch.cuda
    cuda.reset_peak_memory_stats()
    before = cuda.memory_allocated()
    call(0)
    stage.sync()
    return int(cuda.max_memory_allocated()) - int(before)


def captured(stage: Stage, call: Call, sets: int) -> Call:
    """The call on each set of inputs as a CUDA graph, without the time that a launch takes on the host."""
    torch = stage.torch
    graphs = []
    for number in range(sets):
        call(number)
        stage.sync()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call(number)
        graphs.append(graph)
    return lambda number: graphs[number % sets].replay()


def ceilings(stage: Stage) -> dict[str, float]:
    """What this device reaches: bytes a second of a copy (read and written), operations a second of bfloat16 matmul."""
    torch = stage.torch
    cells, side = (2**16, 64) if stage.dry else (2**30, 8192)
    source = torch.randint(0, 255, (cells,), device=stage.device, dtype=torch.uint8)
    target = torch.empty_like(source)
    a, b = (torch.randn(side, side, device=stage.device).to(torch.bfloat16) for _ in range(2))
    times = measured(
        stage, {"copy": lambda _: target.copy_(source), "matmul": lambda _: a @ b}, 0.1 if stage.dry else 3.0
    )
    return {"bandwidth": 2 * cells / times["copy"].median, "half": 2 * side**3 / times["matmul"].median}
