"""Configurations of kernels measured on the device at hand, from those that are checked in, one change at a time."""

from __future__ import annotations

import itertools
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from prismem_core import ops
from prismem_core.errors import ArgumentError, NoImplementation
from prismem_core.kernels.triton import table
from prismem_core.kernels.triton.launch import Config

from .search import corpus
from .session import NotHere
from .stage import Stage, stage
from .timing import measured

Key = tuple[int, str, str, int, int]
Measure = Callable[[Key, Config], float]
"""Seconds of a call under a configuration; infinity where it cannot run or gives other results."""

WORTH = 0.97
"""A configuration replaces another where it takes less than this share of its time; below that is noise."""
SIZES = {128: 128, 512: 384, 2048: 1024}
QUERIES = {1: 1, 16: 16, 64: 64}


@dataclass(frozen=True)
class Tuned:
    """What was found for one row of the table; `best` is `before` where nothing was better."""

    key: Key
    before: Config
    best: Config
    seconds_before: float
    seconds: float
    tried: int


def neighbours(config: Config, sm: int) -> Iterator[Config]:
    """Configurations that differ in one thing, within what a GPU can do."""
    single = config.block_queries == 1
    if not single:
        yield from _scaled(config, "block_queries", 16, 256)
    yield from _scaled(config, "block_keys", 16, 1024 if single else 256)
    yield from _scaled(config, "block_dim", 16, 1024 if single else 256)
    yield from _scaled(config, "warps", 1, 16)
    for stages in (config.stages - 1, config.stages + 1):
        if 1 <= stages <= 6:
            yield replace(config, stages=stages)
    if sm >= 90 and not single:
        yield replace(config, loads="pointer" if config.loads == "descriptor" else "descriptor")


def _scaled(config: Config, name: str, least: int, most: int) -> Iterator[Config]:
    size = getattr(config, name)
    for other in (size // 2, size * 2):
        if least <= other <= most:
            yield replace(config, **{name: other})


def tune(
    rows: Iterable[tuple[Key, Config]], measure: Measure, end: float, clock: Callable[[], float]
) -> Iterator[Tuned]:
    """Improve each row until no neighbour is better or the clock reaches `end`."""
    for key, before in rows:
        if clock() >= end:
            return
        known = {before: measure(key, before)}
        best = before
        improved = True
        while improved and clock() < end:
            improved = False
            for config in neighbours(best, key[0]):
                if config in known or clock() >= end:
                    continue
                known[config] = measure(key, config)
                if known[config] < WORTH * known[best]:
                    best, improved = config, True
                    break
        if math.isfinite(known[best]):
            yield Tuned(key, before, best, known[before], known[best], len(known))


def chosen(sm: int, names: Sequence[str], kinds: Sequence[str]) -> list[tuple[Key, Config]]:
    """Rows of the table for a capability (else of 80), of the ops and kinds that were asked for and can be measured."""
    found = {}
    for (listed, op, kind, dim, queries), config in table.TABLE.items():
        wanted = (not names or op in names) and (not kinds or kind in kinds)
        if listed in (80, sm) and wanted and op in CALLS and dim in SIZES:
            found[(sm, op, kind, dim, queries)] = config
    known = sorted({op for _, op, *_ in table.TABLE if op in CALLS})
    if unknown := [name for name in names if name not in known]:
        raise ArgumentError(f"op: expected some of {', '.join(known)}, got {', '.join(unknown)}")
    return list(found.items())


def _top_k(here: Stage, key: Key, k: int) -> Callable[[], Any]:
    queries, keys = corpus(here, QUERIES.get(key[4], 1024), 200_000, SIZES[key[3]], key[2])
    return lambda: ops.top_k(queries, keys, k, nonfinite="skip").scores


def _similarity(here: Stage, key: Key) -> Callable[[], Any]:
    x, y = corpus(here, QUERIES.get(key[4], 1024), 100_000, SIZES[key[3]], key[2])
    return lambda: ops.similarity(x, y, nonfinite="skip")


def _segments(here: Stage, key: Key) -> Callable[[], Any]:
    share = QUERIES.get(key[4], 256)
    lengths = np.random.default_rng(0).integers(5, 201, max(3000 // share, 8))
    rows, items = corpus(here, len(lengths) * share, int(lengths.sum()), SIZES[key[3]], key[2])
    segments = ops.Segments.from_lengths(lengths, np.repeat(np.arange(len(lengths)), share))
    return lambda: ops.segment_max_similarity(rows, items, segments, nonfinite="skip").values


def _mmr(here: Stage, key: Key) -> Callable[[], Any]:
    queries, keys = corpus(here, 256, 256 * 200, SIZES[key[3]], key[2])
    segments = ops.Segments.from_lengths([200] * 256)
    return lambda: ops.mmr_select(queries, keys, 25, relevance_weight=0.7, segments=segments, nonfinite="skip").scores


CALLS: dict[str, Callable[[Stage, Key], Callable[[], Any]]] = {
    "top_k": lambda here, key: _top_k(here, key, 10),
    "top_k long": lambda here, key: _top_k(here, key, 100),
    "top_k sorted": lambda here, key: _top_k(here, key, 300),
    "top_k one": lambda here, key: _top_k(here, key, 10),
    "similarity": _similarity,
    "segment_max_similarity": _segments,
    "mmr_select": _mmr,
}
"""A call that launches with a row of the table, by the op of the row; its result is scores."""


class OnDevice:
    """Measures calls on a device, each under a table file that holds one row."""

    def __init__(self, here: Stage) -> None:
        self._here = here
        self._folder = Path(tempfile.mkdtemp(prefix="kernel-table-"))
        self._numbers = itertools.count()
        self._of: tuple[Key, Callable[[], Any], Any] | None = None

    def __call__(self, key: Key, config: Config) -> float:
        """Seconds of a call, infinity where the configuration does not run or gives other scores."""
        torch = self._here.torch
        path = self._folder / f"{next(self._numbers)}.json"
        path.write_text(table.written({key: config}), encoding="utf-8")
        before = os.environ.get("PRISMEM_KERNEL_TABLE")
        os.environ["PRISMEM_KERNEL_TABLE"] = str(path)
        try:
            with ops.use("triton"):
                if self._of is None or self._of[0] != key:
                    self._of = None
                    call = CALLS[key[1]](self._here, key)
                    self._of = (key, call, call())
                _, call, expected = self._of
                if not torch.allclose(call(), expected, rtol=1e-4, atol=1e-5):
                    return math.inf
                return measured(self._here, {"call": lambda _: call()}, 0.3)["call"].median
        except (RuntimeError, ValueError, TypeError, AssertionError):
            # Too much shared memory, too many registers, a size that the kernel cannot have.
            return math.inf
        except Exception as error:
            if type(error).__module__.startswith("triton"):
                return math.inf
            raise
        finally:
            os.environ.pop("PRISMEM_KERNEL_TABLE", None)
            if before is not None:
                os.environ["PRISMEM_KERNEL_TABLE"] = before


def run(output: Path, names: Sequence[str], kinds: Sequence[str], seconds: float, tell: Callable[[Tuned], None]) -> int:
    """Tune on the device at hand and write the rows that got better; how many there are."""
    try:
        here = stage(False)
    except NotHere as missing:
        raise NoImplementation(
            f"kernels tune: {missing.args[0].split(';')[0]}; run it on a machine with the GPU that is to be tuned for"
        ) from missing
    major, minor = here.torch.cuda.get_device_capability()
    rows = chosen(10 * major + minor, names, kinds)
    better: dict[Key, Config] = {}
    if output.is_file():
        better |= table.read(output.read_text(encoding="utf-8"))
    for found in tune(rows, OnDevice(here), time.monotonic() + seconds, time.monotonic):
        tell(found)
        if found.best != found.before:
            better[found.key] = found.best
            output.write_text(table.written(better), encoding="utf-8")
    return len(better)
