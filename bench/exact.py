"""What is right, in float64, and how far a float32 program may be from it.

A sum of d products rounded in any order is off by at most gamma_d * sum |q_i x_i| with gamma_d = d u / (1 - d u) and
u = 2^-24 (Higham, Accuracy and Stability of Numerical Algorithms, 3.1), and sum |q_i x_i| <= |q| |x|. So a selection by
such sums has, at each position, a row whose exact score is within twice that of the one that belongs there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .contest import Finding

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]

_CHUNK = 20_000


def float32_error(dim: int) -> float:
    """The bound on |float32 sum - exact sum| for rows of length 1; 4 more roundings for lengths and the quotient."""
    unit = 2.0**-24
    terms = dim + 4
    return terms * unit / (1.0 - terms * unit)


class TopKCheck:
    """Holds the exact best k of a sample of the queries, and judges the ids that a competitor found for all."""

    def __init__(self, keys: NDArray[Any], queries: NDArray[Any], k: int, *, sample: int = 64) -> None:
        self._keys, self._queries, self._k = keys, queries, k
        half = sample // 2
        count = len(queries)
        self._sample = np.arange(count) if count <= sample else np.r_[0:half, count - half : count]
        self._scores, self._ids = self._best()
        lengths = np.linalg.norm(queries[self._sample].astype(np.float64), axis=1)
        self._slack = 2.0 * float32_error(keys.shape[1]) * lengths * _longest(keys)

    def _best(self) -> tuple[Doubles, Integers]:
        queries = self._queries[self._sample].astype(np.float64)
        scores, ids = np.empty((len(queries), 0)), np.empty((len(queries), 0), np.int64)
        for begin in range(0, len(self._keys), _CHUNK):
            part = self._keys[begin : begin + _CHUNK].astype(np.float64)
            own = np.broadcast_to(np.arange(begin, begin + len(part)), (len(queries), len(part)))
            scores, ids = np.hstack([scores, queries @ part.T]), np.hstack([ids, own])
            # Descending scores, ascending ids.
            order = np.lexsort((ids, -scores), axis=1)[:, : self._k]
            scores, ids = np.take_along_axis(scores, order, 1), np.take_along_axis(ids, order, 1)
        return scores, ids

    def __call__(self, ids: Any) -> Finding:
        """Whether ids (m, k) are those of a float64 sort wherever scores differ by more than the bound."""
        found = np.asarray(ids, np.int64)
        if found.shape != (len(self._queries), self._k):
            return Finding(f"ids of shape {found.shape}, expected {(len(self._queries), self._k)}")
        if found.min(initial=0) < 0 or found.max(initial=0) >= len(self._keys):
            return Finding("ids outside the keys")
        found = found[self._sample]
        hits = [len(set(row.tolist()) & set(best.tolist())) for row, best in zip(found, self._ids, strict=True)]
        figures = {
            "recall": sum(hits) / max(found.size, 1),
            "same_as_float64": float((found == self._ids).mean()) if found.size else 1.0,
            "checked_queries": float(len(self._sample)),
        }
        for row, query in enumerate(self._queries[self._sample]):
            if len(set(found[row].tolist())) != self._k:
                return Finding(f"query {self._sample[row]} has a key twice", figures)
            exact = self._keys[found[row]].astype(np.float64) @ query.astype(np.float64)
            wrong = np.flatnonzero(np.abs(exact - self._scores[row]) > self._slack[row])
            if wrong.size:
                at = int(wrong[0])
                return Finding(
                    f"query {self._sample[row]}, position {at}: key {found[row, at]} has the exact score "
                    f"{exact[at]:.7f}, expected key {self._ids[row, at]} with {self._scores[row, at]:.7f}",
                    figures,
                )
        return Finding("", figures)


def _longest(keys: NDArray[Any]) -> float:
    squares = [
        float((keys[begin : begin + _CHUNK].astype(np.float64) ** 2).sum(axis=1).max(initial=0.0))
        for begin in range(0, len(keys), _CHUNK)
    ]
    return float(np.sqrt(max(squares, default=0.0)))


class SelectionCheck:
    """Judges maximal marginal relevance: each pick is, given the picks before it, within the bound of the best."""

    def __init__(self, candidates: NDArray[Any], queries: NDArray[Any], k: int, weight: float) -> None:
        rows = candidates.astype(np.float64)
        rows /= np.linalg.norm(rows, axis=2, keepdims=True)
        unit = queries.astype(np.float64)
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        self._relevance = np.matmul(rows, unit[:, :, None])[:, :, 0]
        self._rows, self._k, self._weight = rows, k, weight
        self._slack = 4.0 * float32_error(candidates.shape[2])

    def __call__(self, picks: Any) -> Finding:
        """Whether picks (m, k) follow the definition."""
        found = np.asarray(picks, np.int64)
        if found.shape != (len(self._relevance), self._k):
            return Finding(f"picks of shape {found.shape}, expected {(len(self._relevance), self._k)}")
        for query, row in enumerate(found):
            penalty = np.full(len(self._rows[query]), -np.inf)
            free = np.ones(len(penalty), np.bool_)
            for step, pick in enumerate(row):
                if not 0 <= pick < len(penalty) or not free[pick]:
                    return Finding(f"query {query}, pick {step}: candidate {pick} is no free candidate")
                relevance = self._relevance[query]
                values = relevance if step == 0 else self._weight * relevance - (1.0 - self._weight) * penalty
                best = float(values[free].max())
                if values[pick] < best - self._slack:
                    return Finding(
                        f"query {query}, pick {step}: candidate {pick} has {values[pick]:.7f}, the best {best:.7f}"
                    )
                free[pick] = False
                np.maximum(penalty, self._rows[query] @ self._rows[query][pick], out=penalty)
        return Finding()
