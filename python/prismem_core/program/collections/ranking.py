"""Launches of the ops for many searches at once; each search gets what it would get alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from prismem_core.ops import mmr_select, top_k
from prismem_core.ops.segments import Segments
from prismem_core.program.collections.arena import Block
from prismem_core.program.collections.query import CollectionQuery, Hits

Matrix = NDArray[np.float32]
Key = TypeVar("Key", bound=Hashable)

DENSE = frozenset({"search", "mmr"})
"""Methods that need the row of the text."""


class Trunk:
    """Texts in the order they were added, with their rows; every state it went through is a collection of its own."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.lengths: dict[str, int] = {}
        self.block = Block()


class Ranking(NamedTuple):
    """Positions (c,) int64 and scores (c,) float32, best first."""

    positions: NDArray[np.int64]
    scores: NDArray[np.float32]

    def at_least(self, score: float | None) -> Ranking:
        """The hits that reach a score, compared in float32."""
        if score is None:
            return self
        with np.errstate(over="ignore"):
            kept = self.scores >= np.float32(score)
        return Ranking(self.positions[kept], self.scores[kept])


_NOTHING = Ranking(np.zeros(0, np.int64), np.zeros(0, np.float32))


class Search:
    """One text of a query on its way: its row, where its collection lies, and what was found so far."""

    def __init__(self, query: CollectionQuery, text: str) -> None:
        self.query = query
        self.text = text
        self.trunk: Trunk | None = None
        self.begin = 0
        self.row: NDArray[np.float32] | None = None
        self.found = _NOTHING

    @property
    def hits(self) -> Hits:
        """What was found, in plain data."""
        return self.found.positions.tolist(), self.found.scores.tolist()

    @property
    def width(self) -> int:
        """How many hits of a single ranking are wanted."""
        return self.query.pool if self.query.method == "mmr" else self.query.k


def rank(searches: Sequence[Search], matrix: Matrix, launched: Counter[str]) -> None:
    """Fill what every search finds; `matrix` holds the rows of all collections."""
    by_method: dict[str, list[Search]] = {}
    for search in searches:
        by_method.setdefault(search.query.method, []).append(search)
    near = [search for search in searches if search.query.method in DENSE]
    for search, found in zip(near, _nearest(near, matrix, launched), strict=True):
        search.found = found.at_least(search.query.least)
    apart = by_method.get("mmr", [])
    for search, found in zip(apart, _diverse(apart, matrix, launched), strict=True):
        search.found = found


def _nearest(searches: Sequence[Search], matrix: Matrix, launched: Counter[str]) -> list[Ranking]:
    """The `width` nearest of each: one launch for all searches of equal width, those with a filter by collection."""
    results = [_NOTHING] * len(searches)
    for (width, filtered), numbers in _groups((s.width, _filtered_range(s)) for s in searches):
        own = [searches[n] for n in numbers]
        queries = np.stack([s.row for s in own if s.row is not None])
        if filtered is None:
            ranges = sorted({(s.begin, s.begin + s.query.size) for s in own})
            place = {pair: number for number, pair in enumerate(ranges)}
            segments = Segments.grouped(ranges, [place[s.begin, s.begin + s.query.size] for s in own])
            found = top_k(queries, matrix, width, segments=segments)
        else:
            mask = np.stack([s.query.allowed for s in own if s.query.allowed is not None])
            found = top_k(queries, matrix[slice(*filtered)], width, mask=mask)
        launched["top_k"] += 1
        for row, n in enumerate(numbers):
            hits = int(found.counts[row])
            results[n] = Ranking(found.indices[row, :hits], found.scores[row, :hits])
    return results


def _filtered_range(search: Search) -> tuple[int, int] | None:
    """The rows a filter is for; None without one."""
    return None if search.query.allowed is None else (search.begin, search.begin + search.query.size)


def _diverse(searches: Sequence[Search], matrix: Matrix, launched: Counter[str]) -> list[Ranking]:
    """Picks among the candidates found before: one launch for all searches of equal k and weight."""
    results = [_NOTHING] * len(searches)
    for (k, weight), numbers in _groups((s.query.k, s.query.weight) for s in searches):
        own = [searches[n] for n in numbers]
        # In the order of positions, so that equal scores go to the lowest.
        candidates = [np.sort(s.found.positions) for s in own]
        keys = np.concatenate([matrix[s.begin + places] for s, places in zip(own, candidates, strict=True)])
        queries = np.stack([s.row for s in own if s.row is not None])
        segments = Segments.from_lengths([len(places) for places in candidates])
        found = mmr_select(queries, keys, k, relevance_weight=weight, segments=segments)
        launched["mmr_select"] += 1
        for row, (n, places) in enumerate(zip(numbers, candidates, strict=True)):
            hits = int(found.counts[row])
            results[n] = Ranking(places[found.indices[row, :hits]], found.scores[row, :hits])
    return results


def _groups(keys: Iterable[Key]) -> list[tuple[Key, list[int]]]:
    """Places by key, keys in the order they first come."""
    groups: dict[Key, list[int]] = {}
    for place, key in enumerate(keys):
        groups.setdefault(key, []).append(place)
    return list(groups.items())
