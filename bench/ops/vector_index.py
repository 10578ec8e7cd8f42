"""VectorIndex, the growable store, against the flat indexes of faiss and usearch: searches, filters and growth."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.index import VectorIndex

from ..contest import OURS, Competitor, Contest, Finding, Job, Run, Work, require
from ..data import Floats, rows
from ..exact import TopKCheck

_ID_STEP = 7
"""Row i has the id 7 i + 1, so that an id is not mistaken for a position."""


def _ids(count: int) -> NDArray[np.int64]:
    return np.arange(count, dtype=np.int64) * _ID_STEP + 1


def _filled(keys: Floats) -> VectorIndex:
    index = VectorIndex(keys.shape[1])
    index.add(keys, _ids(len(keys)))
    return index


def _faiss_filled(keys: Floats) -> Any:
    faiss = require("faiss", "faiss-cpu")
    index = faiss.IndexIDMap2(faiss.IndexFlatIP(keys.shape[1]))
    index.add_with_ids(keys, _ids(len(keys)))
    return index


def _ours(queries: Floats, keys: Floats, k: int, allowed: NDArray[np.int64] | None) -> Run:
    index = _filled(keys)
    prepared = None if allowed is None else index.prepare(allowed)
    return lambda: index.search(queries, k, filter=prepared).ids


def _faiss(queries: Floats, keys: Floats, k: int, allowed: NDArray[np.int64] | None) -> Run:
    faiss = require("faiss", "faiss-cpu")
    index = _faiss_filled(keys)
    parameters = None
    if allowed is not None:
        parameters = faiss.SearchParameters(sel=faiss.IDSelectorBatch(allowed))
    return lambda: index.search(queries, k, params=parameters)[1]


def _numpy(queries: Floats, keys: Floats, k: int, allowed: NDArray[np.int64] | None) -> Run:
    rejected = np.zeros(len(keys), np.bool_)
    if allowed is not None:
        rejected[:] = True
        rejected[(allowed - 1) // _ID_STEP] = False

    def run() -> NDArray[np.int64]:
        scores = queries @ keys.T
        scores[:, rejected] = -np.inf
        chosen = np.argpartition(scores, scores.shape[1] - k, axis=1)[:, -k:]
        order = np.argsort(-np.take_along_axis(scores, chosen, 1), axis=1)
        return np.take_along_axis(chosen, order, 1) * _ID_STEP + 1

    return run


def _searches(num_queries: int, count: int, dim: int, k: int, part: float, quick: bool) -> Contest:
    count = 10_000 if quick else count
    made = rows("mixture", count, dim)
    keys, queries = made.keys, np.ascontiguousarray(made.queries[:num_queries])
    allowed = None
    eligible = np.arange(count)
    if part < 1.0:
        eligible = np.flatnonzero(np.random.default_rng(1).random(count) < part)
        allowed = eligible * _ID_STEP + 1
    exact = TopKCheck(keys[eligible], queries, k)
    read = 4.0 * len(eligible) * dim
    work = Work(read, 2.0 * num_queries * len(eligible) * dim)

    def check(_: Competitor, ids: Any) -> Finding:
        positions = (np.asarray(ids) - 1) // _ID_STEP
        local = np.searchsorted(eligible, positions)
        if not np.array_equal(eligible[np.minimum(local, len(eligible) - 1)], positions):
            return Finding("an id that the filter refuses")
        return exact(local)

    return Contest(
        f"{made.description}{'' if allowed is None else f', {len(eligible)} of them allowed'}",
        {"queries": num_queries, "keys": count, "dim": dim, "k": k},
        [
            Competitor("prismem VectorIndex", OURS, lambda: _ours(queries, keys, k, allowed)),
            Competitor("faiss IndexIDMap2", "faiss-cpu", lambda: _faiss(queries, keys, k, allowed), work=work),
            Competitor("numpy matmul", "numpy", lambda: _numpy(queries, keys, k, allowed), work=work),
        ],
        check,
        work,
    )


def _growth(count: int, dim: int, quick: bool) -> Contest:
    count = 5_000 if quick else count
    made = rows("mixture", count, dim)
    keys = made.keys
    batch = 1000

    def parts() -> list[tuple[Floats, NDArray[np.int64]]]:
        ids = _ids(count)
        return [(keys[at : at + batch], ids[at : at + batch]) for at in range(0, count, batch)]

    def ours() -> Run:
        cut = parts()

        def run() -> int:
            index = VectorIndex(dim)
            for rows_, ids in cut:
                index.add(rows_, ids)
            return len(index)

        return run

    def faiss_run() -> Run:
        faiss = require("faiss", "faiss-cpu")
        cut = parts()

        def run() -> int:
            index = faiss.IndexIDMap2(faiss.IndexFlatIP(dim))
            for rows_, ids in cut:
                index.add_with_ids(rows_, ids)
            return int(index.ntotal)

        return run

    def check(_: Competitor, found: Any) -> Finding:
        return Finding("" if found == count else f"holds {found} rows, expected {count}")

    work = Work(4.0 * keys.size)
    return Contest(
        f"{made.description}, added {batch} at a time",
        {"rows": count, "dim": dim, "batch": batch},
        [
            Competitor("prismem VectorIndex", OURS, ours, work=work),
            Competitor("faiss IndexIDMap2", "faiss-cpu", faiss_run, work=work),
        ],
        check,
        work,
    )


def _search_job(name: str, words: str, num_queries: int, count: int, part: float = 1.0) -> Job:
    return Job(f"vector_index/{name}", words, partial(_searches, num_queries, count, 384, 10, part))


JOBS: Sequence[Job] = (
    _search_job("q1-100k-384", "one query, 100,000 rows of 384, k=10", 1, 100_000),
    _search_job("q32-100k-384", "32 queries, 100,000 rows of 384, k=10", 32, 100_000),
    _search_job("q1-100k-384-filter", "the same for one query with a filter that a tenth passes", 1, 100_000, 0.1),
    Job("vector_index/add-50k-384", "50,000 rows of 384 added by the thousand", partial(_growth, 50_000, 384)),
)
