"""Single gets, single puts and puts in groups of values of a few sizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..contest import Competitor, Contest, Finding, Goal, Job, PeerMissing, Run, Work
from .rows import random_keys
from .stores import (
    DICT,
    DISKCACHE,
    JOBLIB,
    KINDS,
    LANGCHAIN,
    LMDB,
    LMDB_BLOCKS,
    LMDB_SYNC,
    PLYVEL,
    PRISMEM,
    ROCKSDICT,
    SQLITE,
    Places,
)

_DISTINCT = 64
"""Values among which the entries of a job take turns."""

_SLOW_ENTRIES = 100
"""What a store that takes milliseconds an entry holds; it is asked for these again and again."""


def _entries(count: int, size: int) -> tuple[list[bytes], list[bytes]]:
    """Keys, and a random value for each."""
    rng = np.random.default_rng(0)
    values = [rng.bytes(size) for _ in range(min(count, _DISTINCT))]
    return random_keys(rng, count), [values[i % len(values)] for i in range(count)]


def _gets(count: int, size: int, asked: int, names: Sequence[str], quick: bool) -> Contest:
    if quick:
        count, asked = min(count, 400), min(asked, 20)
    keys, values = _entries(count, size)
    rng = np.random.default_rng(1)
    places = Places()

    def make(name: str) -> Run:
        if quick and KINDS[name].slow:
            raise PeerMissing("too slow for a glance")
        store = places.store(name)
        held = _SLOW_ENTRIES if KINDS[name].slow else count
        for begin in range(0, held, 5000):
            end = min(begin + 5000, held)
            store.put_many(keys[begin:end], values[begin:end])
        store.flush()
        get = store.get
        # Each call asks for the next ones: none finds in the caches what the call before left there.
        order = itertools.cycle(rng.permutation(held))
        turns = itertools.cycle([[keys[next(order)] for _ in range(asked)] for _ in range(count // asked)])

        def run() -> tuple[Callable[[bytes], Any], int]:
            for key in next(turns):
                get(key)
            return get, held

        return run

    def check(_: Competitor, found: Any) -> Finding:
        get, held = found
        wrong = sum(get(key) != value for key, value in zip(keys[:held], values[:held], strict=True))
        return Finding(f"{wrong} of {held} values are not what was put" if wrong else "")

    return Contest(
        f"random values of {size} bytes under random keys of 32 bytes, other ones each call; in the file cache of the "
        "system, or in memory",
        {"entries": count, "value_bytes": size, "asked": asked},
        [Competitor(name, KINDS[name].library, partial(make, name)) for name in names],
        check,
        Work(),
        places.finish,
    )


def _puts(size: int, put: int, group: bool, names: Sequence[str], quick: bool) -> Contest:
    if quick:
        put = 20
    _, values = _entries(put, size)
    places = Places()

    def make(name: str) -> Run:
        store, rng = places.store(name), np.random.default_rng(2)

        def together() -> tuple[Any, list[bytes]]:
            keys = random_keys(rng, put)
            store.put_many(keys, values)
            store.flush()
            return store.get, keys

        def singly() -> tuple[Any, list[bytes]]:
            keys, one = random_keys(rng, put), store.put
            for key, value in zip(keys, values, strict=True):
                one(key, value)
            return store.get, keys

        return together if group else singly

    def check(_: Competitor, found: Any) -> Finding:
        get, keys = found
        wrong = sum(get(key) != value for key, value in zip(keys, values, strict=True))
        return Finding(f"{wrong} of {put} values are not what was put" if wrong else "")

    return Contest(
        f"random values of {size} bytes under new random keys of 32 bytes"
        + (", one group, then on the disk (fsync)" if group else ", none waits for the disk"),
        {"value_bytes": size, "puts": put},
        [Competitor(name, KINDS[name].library, partial(make, name)) for name in names],
        check,
        Work(),
        places.finish,
    )


_READ = (PRISMEM, DICT, LMDB, LMDB_BLOCKS, PLYVEL, SQLITE, DISKCACHE, JOBLIB, LANGCHAIN, ROCKSDICT)
_WRITTEN = (PRISMEM, DICT, LMDB, LMDB_SYNC, PLYVEL, SQLITE, DISKCACHE, ROCKSDICT)
_LARGE = (PRISMEM, DICT, LMDB, PLYVEL, SQLITE, DISKCACHE, ROCKSDICT)
_SINGLE = (PRISMEM, DICT, LMDB, PLYVEL, SQLITE, DISKCACHE, ROCKSDICT)

_GET_GOALS = (Goal(PRISMEM, LMDB, 2.5), Goal(PRISMEM, LMDB_BLOCKS, 2.5), Goal(PRISMEM, LANGCHAIN, 500.0))
_BATCH_GOALS = (Goal(PRISMEM, LMDB, 2.5),)
_SINGLE_GOALS = (Goal(PRISMEM, ROCKSDICT, 3.0),)

JOBS: Sequence[Job] = (
    Job("cache/get-4k", "1000 single gets of 4 KiB", partial(_gets, 5000, 4096, 1000, _READ), _GET_GOALS),
    Job("cache/get-100b", "2000 single gets of 100 bytes", partial(_gets, 20_000, 100, 2000, _READ), _GET_GOALS),
    Job("cache/get-256k", "50 single gets of 256 KiB", partial(_gets, 200, 262_144, 50, _LARGE)),
    Job("cache/put-batch-4k", "1000 puts of 4 KiB at once", partial(_puts, 4096, 1000, True, _WRITTEN), _BATCH_GOALS),
    Job(
        "cache/put-batch-100b",
        "1000 puts of 100 bytes at once",
        partial(_puts, 100, 1000, True, _WRITTEN),
        _BATCH_GOALS,
    ),
    Job("cache/put-single-4k", "100 single puts of 4 KiB", partial(_puts, 4096, 100, False, _SINGLE), _SINGLE_GOALS),
    Job(
        "cache/put-single-100b", "100 single puts of 100 bytes", partial(_puts, 100, 100, False, _SINGLE), _SINGLE_GOALS
    ),
)
