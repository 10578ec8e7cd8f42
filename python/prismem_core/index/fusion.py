"""One list of hits from several: by reciprocal ranks, or by weighted scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import ArgumentError
from prismem_core.index.results import SearchResult
from prismem_core.ops.checks import whole_number

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

NORMALIZATIONS = ("min_max", "z_score", "none")


def fuse_reciprocal_rank(
    results: Sequence[SearchResult], k: int, *, rank_constant: float = 60.0, weights: Sequence[float] | None = None
) -> SearchResult:
    """The k best ids of each query by the sum over the results of weight / (rank_constant + rank), rank from 1 on.

    A result that does not hold an id adds nothing for it. Scores of the results are not looked at. `results` are of the
    same m queries, `weights` (one a result, at least 0, default 1) and `rank_constant` (at least 0) finite numbers.
    Order: fused score descending, as float32, which the caller sees; then the better rank in the first result (ids that
    it lacks after those that it has), then in the second, and so on. The result has the shape of any search: an id
    appears once, min(k, ids of the query in all results) hits a query. Errors: ArgumentError.
    """
    if not _is_number(rank_constant) or rank_constant < 0:
        raise ArgumentError(f"rank_constant: expected a finite number of at least 0, got {rank_constant!r}")
    hits, factors, number = _hits(results), _weights(weights, len(results)), whole_number(k, "k")
    constant = float(rank_constant) + 1.0
    values: list[Float64] = []
    for factor, h in zip(factors, hits, strict=True):
        values.append(factor / (constant + h.ranks.astype(np.float64)))
    return _fused(hits, values, number)


def fuse_weighted(
    results: Sequence[SearchResult], k: int, *, weights: Sequence[float] | None = None, normalization: str = "min_max"
) -> SearchResult:
    """The k best ids of each query by the weighted sum of their normalised scores.

    Scores are normalised within the hits of one query in one result:

    * "min_max": (score - lowest) / (highest - lowest), from 0 to 1; 1 where all are equal. An id that a result lacks
      counts as 0 there, as its last hit does: ask for enough hits.
    * "z_score": (score - mean) / standard deviation (of all hits, not of a sample); 0 where all are equal. An id that a
      result lacks counts as the lowest of its hits there.
    * "none": the score itself; an id that a result lacks counts as 0.

    A result without hits for a query adds nothing. `weights`: one a result, at least 0, default 1. Order, shape and
    errors as for `fuse_reciprocal_rank`; scores of hits must be finite.
    """
    if normalization not in NORMALIZATIONS:
        raise ArgumentError(f"normalization: expected one of {', '.join(NORMALIZATIONS)}, got {normalization!r}")
    hits, factors, number = _hits(results), _weights(weights, len(results)), whole_number(k, "k")
    values, missing = [], []
    for position, (factor, h) in enumerate(zip(factors, hits, strict=True)):
        if not np.isfinite(h.scores).all():
            row = int(h.rows[~np.isfinite(h.scores)][0])
            raise ArgumentError(f"results[{position}]: query {row} has a hit whose score is not finite")
        normalised, absent = _normalised(h, normalization)
        values.append(factor * normalised)
        missing.append(factor * absent)
    return _fused(hits, values, number, missing)


@dataclass(frozen=True)
class _Hits:
    """The hits of one result, query by query, best first: their query, rank from 0 on, id and score."""

    num_queries: int
    rows: Int64
    ranks: Int64
    ids: Int64
    scores: Float64


def _hits(results: Sequence[SearchResult]) -> list[_Hits]:
    if not len(results):
        raise ArgumentError("results: expected at least one result, got none")
    found: list[_Hits] = []
    for position, result in enumerate(results):
        if not isinstance(result, SearchResult):
            raise ArgumentError(f"results[{position}]: expected a SearchResult, got {type(result).__name__}")
        scores, ids, counts = np.asarray(result.scores), np.asarray(result.ids), np.asarray(result.counts)
        if counts.shape != (found[0].num_queries if found else len(counts),):
            raise ArgumentError(
                f"results[{position}]: expected hits of {found[0].num_queries} queries, as results[0] has, "
                f"got {len(counts)}"
            )
        held = np.arange(ids.shape[1]) < counts[:, None]
        rows, ranks = np.nonzero(held)
        hits = _Hits(len(counts), rows, ranks, ids[held], scores[held].astype(np.float64))
        order = np.lexsort((hits.ids, hits.rows))
        twice = np.flatnonzero((np.diff(hits.rows[order]) == 0) & (np.diff(hits.ids[order]) == 0))
        if twice.size:
            place = order[twice[0]]
            raise ArgumentError(f"results[{position}]: query {rows[place]} has id {hits.ids[place]} twice")
        found.append(hits)
    return found


def _weights(weights: Sequence[float] | None, count: int) -> list[float]:
    if weights is None:
        return [1.0] * count
    if len(weights) != count:
        raise ArgumentError(f"weights: expected {count}, one for each result, got {len(weights)}")
    for weight in weights:
        if not _is_number(weight) or weight < 0:
            raise ArgumentError(f"weights: expected finite numbers of at least 0, got {weight!r}")
    return [float(weight) for weight in weights]


def _is_number(value: Any) -> bool:
    plain = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, (bool, np.bool_))
    return plain and math.isfinite(value)


def _normalised(hits: _Hits, normalization: str) -> tuple[Float64, Float64]:
    """Normalised scores of the hits, and what each query (m,) counts for an id that it lacks."""
    m, rows, scores = hits.num_queries, hits.rows, hits.scores
    if normalization == "none":
        return scores, np.zeros(m)
    lowest, highest = np.full(m, np.inf), np.full(m, -np.inf)
    np.minimum.at(lowest, rows, scores)
    np.maximum.at(highest, rows, scores)
    level = (lowest == highest)[rows]
    if normalization == "min_max":
        span = np.where(level, 1.0, (highest - lowest)[rows])
        return np.where(level, 1.0, (scores - lowest[rows]) / span), np.zeros(m)
    size = np.maximum(np.bincount(rows, minlength=m), 1)
    centred = scores - (np.bincount(rows, scores, m) / size)[rows]
    deviation = np.sqrt(np.bincount(rows, centred * centred, m) / size)[rows]
    z = np.where(level, 0.0, centred / np.where(level, 1.0, deviation))
    absent = np.zeros(m)
    np.minimum.at(absent, rows, z)
    return z, absent


def _fused(
    hits: Sequence[_Hits], values: Sequence[Float64], k: int, missing: Sequence[Float64] | None = None
) -> SearchResult:
    """The best ids of each query by the sum of the values of their hits, one list of values a result."""
    m = hits[0].num_queries
    rows, ids = np.concatenate([h.rows for h in hits]), np.concatenate([h.ids for h in hits])
    order = np.lexsort((ids, rows))
    # Entry e is one id of one query; hits are told apart by the change of either.
    first = np.ones(len(order), np.bool_)
    first[1:] = (np.diff(rows[order]) != 0) | (np.diff(ids[order]) != 0)
    entry = np.empty(len(order), np.int64)
    entry[order] = np.cumsum(first) - 1
    entry_rows, entry_ids = rows[order][first], ids[order][first]
    totals = np.zeros(len(entry_ids))
    ranks = np.full((len(hits), len(entry_ids)), np.iinfo(np.int64).max)
    begin = 0
    for position, (h, value) in enumerate(zip(hits, values, strict=True)):
        own = entry[begin : begin + len(h.ids)]
        begin += len(h.ids)
        ranks[position, own] = h.ranks
        if missing is not None:
            added = missing[position][entry_rows]
            added[own] = value
            totals += added
        else:
            totals[own] += value
    with np.errstate(over="ignore"):
        scores = totals.astype(np.float32)
    best = np.lexsort((*ranks[::-1], -scores, entry_rows))
    return _rectangle(entry_rows[best], entry_ids[best], scores[best], m, k)


def _rectangle(rows: Int64, ids: Int64, scores: NDArray[np.float32], m: int, k: int) -> SearchResult:
    """The first k hits of each query, from hits that are sorted by query."""
    sizes = np.bincount(rows, minlength=m)
    rank = np.arange(len(rows)) - (np.cumsum(sizes) - sizes)[rows]
    counts = np.minimum(sizes, min(k, len(rows))).astype(np.int64)
    shape = (m, int(counts.max(initial=0)))
    out_scores, out_ids = np.full(shape, -np.inf, np.float32), np.full(shape, -1, np.int64)
    kept = rank < counts[rows]
    out_scores[rows[kept], rank[kept]] = scores[kept]
    out_ids[rows[kept], rank[kept]] = ids[kept]
    return SearchResult(out_scores, out_ids, counts)
