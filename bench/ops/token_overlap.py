"""token_overlap against sets of Python and a sparse product by numpy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core import ops

from ..contest import OURS, Competitor, Contest, Finding, Job, Run, Work

Ids = NDArray[np.int32]
Offsets = NDArray[np.int64]


def id_sets(rng: np.random.Generator, count: int, mean: int, vocabulary: int) -> tuple[Ids, Offsets]:
    """Sets of ids as texts have them: few words are common, most are rare; ascending, without repeats."""
    sets = []
    for length in rng.poisson(mean, count):
        drawn = np.unique(rng.zipf(1.3, int(length) + 1) % vocabulary)
        sets.append(drawn.astype(np.int32))
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in sets])]).astype(np.int64)
    return np.concatenate(sets), offsets


def _cut(ids: Ids, offsets: Offsets) -> list[Ids]:
    return np.split(ids, offsets[1:-1])


def _python_sets(queries: tuple[Ids, Offsets], keys: tuple[Ids, Offsets]) -> Run:
    left = [frozenset(ids.tolist()) for ids in _cut(*queries)]
    right = [frozenset(ids.tolist()) for ids in _cut(*keys)]
    return lambda: np.array([[2 * len(a & b) / ((len(a) + len(b)) or 1) for b in right] for a in left])


def _numpy_tables(queries: tuple[Ids, Offsets], keys: tuple[Ids, Offsets], vocabulary: int) -> Run:
    ids, offsets = keys
    lengths = np.diff(offsets)
    asked = _cut(*queries)

    def one(query: Ids) -> NDArray[np.float64]:
        held = np.zeros(vocabulary, np.bool_)
        held[query] = True
        shared = np.add.reduceat(held[ids].astype(np.int64), offsets[:-1])
        return np.asarray(2 * shared / (len(query) + lengths), np.float64)

    return lambda: np.array([one(query) for query in asked])


def _prepare(num_queries: int, num_keys: int, quick: bool) -> Contest:
    num_keys = 500 if quick else num_keys
    rng = np.random.default_rng(0)
    vocabulary = 30_000
    queries, keys = id_sets(rng, num_queries, 12, vocabulary), id_sets(rng, num_keys, 40, vocabulary)
    expected = _python_sets(queries, keys)()

    def check(_: Competitor, shares: Any) -> Finding:
        return Finding("" if np.array_equal(shares, expected) else "shares differ from those of Python's sets")

    work = Work(4.0 * len(keys[0]))
    return Contest(
        f"ids drawn by Zipf's law from {vocabulary}, sets of about 12 against sets of about 40, seed 0",
        {"queries": num_queries, "keys": num_keys, "ids": len(keys[0])},
        [
            Competitor(
                "prismem",
                OURS,
                lambda: lambda: ops.token_overlap(queries[0], keys[0], query_offsets=queries[1], key_offsets=keys[1]),
                work=work,
            ),
            Competitor("python sets", "python", lambda: _python_sets(queries, keys)),
            Competitor("numpy table a query", "numpy", lambda: _numpy_tables(queries, keys, vocabulary), work=work),
        ],
        check,
        work,
    )


JOBS: Sequence[Job] = (
    Job("token_overlap/q16-20k", "Dice of 16 sets of ids with 20,000", partial(_prepare, 16, 20_000)),
)
