"""mmr_select against the loops of numpy and of the libraries that ship one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core import ops

from ..contest import BEST_EXACT, OURS, Competitor, Contest, Finding, Goal, Job, PeerMissing, Run, Work, require
from ..data import Floats, scaled
from ..exact import SelectionCheck

MMR = "prismem"
LOOP = "numpy loop"
PYVERSITY = "pyversity"
LANGCHAIN = "langchain-core"

_WEIGHT = 0.5
_SLOW = 300_000
"""Candidates times picks from which the peers that loop in Python are left out."""


def candidates(queries: int, count: int, dim: int) -> tuple[Floats, Floats]:
    """What a search hands to a selection: rows (m, n, d) near their query, in clusters; queries (m, d)."""
    rng = np.random.default_rng(0)
    asked = scaled(rng.standard_normal((queries, dim), dtype=np.float32))
    found = np.empty((queries, count, dim), np.float32)
    for query in range(queries):
        centres = scaled(rng.standard_normal((max(2, count // 12), dim), dtype=np.float32))
        noise = scaled(rng.standard_normal((count, dim), dtype=np.float32))
        closeness = rng.uniform(0.6, 1.0, (count, 1)).astype(np.float32)
        rows = asked[query] * closeness + centres[rng.integers(0, len(centres), count)] * np.float32(0.7)
        found[query] = scaled(rows + noise * np.float32(0.5))
    return found, asked


def _ours(found: Floats, asked: Floats, k: int) -> Run:
    queries, count, dim = found.shape
    segments = ops.Segments.from_lengths([count] * queries) if queries > 1 else None
    keys = found.reshape(queries * count, dim)
    return lambda: ops.mmr_select(asked, keys, k, relevance_weight=_WEIGHT, segments=segments, normalize=True).indices


def _numpy_loop(found: Floats, asked: Floats, k: int) -> Run:
    def one(rows: Floats, query: Floats) -> list[int]:
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        relevance = _WEIGHT * (rows @ (query / np.linalg.norm(query)))
        penalty = np.full(len(rows), -np.inf, np.float32)
        picks = [int(relevance.argmax())]
        for _ in range(k - 1):
            np.maximum(penalty, rows @ rows[picks[-1]], out=penalty)
            values = relevance - (1 - _WEIGHT) * penalty
            values[picks] = -np.inf
            picks.append(int(values.argmax()))
        return picks

    return lambda: np.array([one(rows, query) for rows, query in zip(found, asked, strict=True)])


def _numpy_gram(found: Floats, asked: Floats, k: int) -> Run:
    def run() -> NDArray[np.int64]:
        rows = found / np.linalg.norm(found, axis=2, keepdims=True)
        unit = asked / np.linalg.norm(asked, axis=1, keepdims=True)
        relevance = _WEIGHT * np.matmul(rows, unit[:, :, None])[:, :, 0]
        similarity = np.matmul(rows, rows.transpose(0, 2, 1))
        each = np.arange(len(asked))
        picks = np.empty((len(asked), k), np.int64)
        penalty = np.full(relevance.shape, -np.inf, np.float32)
        taken = np.zeros(relevance.shape, np.float32)
        picks[:, 0] = relevance.argmax(axis=1)
        for step in range(1, k):
            taken[each, picks[:, step - 1]] = -np.inf
            np.maximum(penalty, similarity[each, picks[:, step - 1]], out=penalty)
            picks[:, step] = (relevance - (1 - _WEIGHT) * penalty + taken).argmax(axis=1)
        return picks

    return run


def _torch(found: Floats, asked: Floats, k: int) -> Run:
    torch = require("torch", "torch", extra=False)
    all_rows, all_queries = torch.from_numpy(found), torch.from_numpy(asked)

    def run() -> Any:
        rows = torch.nn.functional.normalize(all_rows, dim=2)
        unit = torch.nn.functional.normalize(all_queries, dim=1)
        each = torch.arange(len(unit))
        relevance = _WEIGHT * torch.bmm(rows, unit[:, :, None])[:, :, 0]
        penalty, taken = torch.full_like(relevance, -3e38), torch.zeros_like(relevance)
        picks = [relevance.argmax(1)]
        for _ in range(k - 1):
            taken[each, picks[-1]] = -torch.inf
            torch.maximum(penalty, torch.bmm(rows, rows[each, picks[-1]][:, :, None])[:, :, 0], out=penalty)
            picks.append((relevance - (1 - _WEIGHT) * penalty + taken).argmax(1))
        return torch.stack(picks, 1).numpy()

    return run


def _pyversity(found: Floats, asked: Floats, k: int) -> Run:
    pyversity = require("pyversity", "pyversity")

    def one(rows: Floats, query: Floats) -> Any:
        return pyversity.mmr(rows, rows @ query, k, diversity=1 - _WEIGHT).indices

    return lambda: np.array([one(rows, query) for rows, query in zip(found, asked, strict=True)])


def _langchain(found: Floats, asked: Floats, k: int) -> Run:
    utils = require("langchain_core.vectorstores.utils", "langchain-core")
    if found.shape[0] * found.shape[1] * k > _SLOW:
        raise PeerMissing("left out: takes seconds a call at this size")
    select = utils.maximal_marginal_relevance
    lists = [list(rows) for rows in found]
    return lambda: np.array(
        [select(query, rows, lambda_mult=_WEIGHT, k=k) for rows, query in zip(lists, asked, strict=True)]
    )


def _prepare(queries: int, count: int, k: int, dim: int, quick: bool) -> Contest:
    if quick:
        queries, count, k = min(queries, 16), min(count, 200), min(k, 25)
    found, asked = candidates(queries, count, dim)
    check = SelectionCheck(found, asked, k, _WEIGHT)
    # What the incremental loop reads and computes: every candidate once, and one product with each pick.
    work = Work(4.0 * found.size, 2.0 * found.size * (k + 1))

    def judge(_: Competitor, picks: Any) -> Finding:
        return check(picks)

    return Contest(
        f"candidates near their query, in clusters of about 12, {queries} x {count} x {dim}, seed 0; weight {_WEIGHT}",
        {"queries": queries, "candidates": count, "k": k, "dim": dim},
        [
            Competitor(MMR, OURS, lambda: _ours(found, asked, k)),
            Competitor(LOOP, "numpy", lambda: _numpy_loop(found, asked, k), work=work),
            Competitor("numpy gram matrix", "numpy", lambda: _numpy_gram(found, asked, k)),
            Competitor("torch batched", "torch", lambda: _torch(found, asked, k), work=work),
            Competitor(PYVERSITY, "pyversity", lambda: _pyversity(found, asked, k)),
            Competitor(LANGCHAIN, "langchain-core", lambda: _langchain(found, asked, k)),
        ],
        judge,
        work,
    )


def _job(queries: int, count: int, k: int, dim: int, goals: tuple[Goal, ...]) -> Job:
    words = "one query" if queries == 1 else f"{queries} queries"
    return Job(
        f"mmr_select/q{queries}-n{count}-k{k}-{dim}",
        f"{words}, {count} candidates of {dim} each, {k} picks",
        partial(_prepare, queries, count, k, dim),
        goals,
    )


_SINGLE = (Goal(MMR, LOOP, 8.0), Goal(MMR, PYVERSITY, 12.0), Goal(MMR, LANGCHAIN, 150.0))
_BATCH = (Goal(MMR, BEST_EXACT, 6.0),)

JOBS: Sequence[Job] = (
    _job(1, 50, 10, 384, _SINGLE),
    _job(1, 200, 25, 384, _SINGLE),
    _job(1, 1000, 100, 1024, (Goal(MMR, BEST_EXACT, 4.0),)),
    _job(256, 50, 10, 384, _BATCH),
    _job(256, 200, 25, 384, _BATCH),
)
