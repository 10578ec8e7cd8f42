"""Launches of the ops for many searches at once; each search gets what it would get alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from prismem_core.index import SearchResult, fuse_reciprocal_rank
from prismem_core.ops import mmr_select
from prismem_core.ops.screened import Screen
from prismem_core.ops.segments import Segments
from prismem_core.program.collections.query import CollectionQuery, Hits
from prismem_core.program.collections.trunk import Trunk

Matrix = NDArray[np.float32]
Key = TypeVar("Key", bound=Hashable)


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
        self.found = self.words = _NOTHING

    @property
    def hits(self) -> Hits:
        """What was found, in plain data."""
        return self.found.positions.tolist(), self.found.scores.tolist()


def rank(searches: Sequence[Search], matrix: Matrix, launched: Counter[str], screen: Screen) -> None:
    """Fill what every search finds; `matrix` holds the rows of all collections, `screen` searches them."""
    near = [search for search in searches if search.query.dense]
    for search, found in zip(near, _nearest(near, matrix, launched, screen), strict=True):
        search.found = found if search.query.method == "hybrid" else found.at_least(search.query.least)
    apart = [search for search in searches if search.query.method == "mmr"]
    for search, found in zip(apart, _diverse(apart, matrix, launched), strict=True):
        search.found = found
    worded = [search for search in searches if search.query.lexical]
    for search, found in zip(worded, _lexical(worded, launched), strict=True):
        search.words = found
    for search in worded:
        if search.query.method == "lexical":
            search.found = search.words.at_least(search.query.least)
    both = [search for search in searches if search.query.method == "hybrid"]
    for search, found in zip(both, _fused(both, launched), strict=True):
        search.found = found.at_least(search.query.least)


def _nearest(searches: Sequence[Search], matrix: Matrix, launched: Counter[str], screen: Screen) -> list[Ranking]:
    """The nearest of each: one launch for all searches of equal width, those with a filter by collection."""
    results = [_NOTHING] * len(searches)
    for (width, filtered), numbers in _groups((s.query.width, _filtered_range(s)) for s in searches):
        own = [searches[n] for n in numbers]
        queries = np.stack([s.row for s in own if s.row is not None])
        if filtered is None:
            ranges = sorted({(s.begin, s.begin + s.query.size) for s in own})
            place = {pair: number for number, pair in enumerate(ranges)}
            segments = Segments.grouped(ranges, [place[s.begin, s.begin + s.query.size] for s in own])
            found = screen.top_k(queries, matrix, width, segments=segments)
        else:
            mask = np.stack([s.query.allowed for s in own if s.query.allowed is not None])
            found = screen.top_k(queries, matrix[slice(*filtered)], width, mask=mask)
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


def _lexical(searches: Sequence[Search], launched: Counter[str]) -> list[Ranking]:
    """The best of each by words: one launch for all searches of equal width in the same collection."""
    results = [_NOTHING] * len(searches)
    keys = [(id(s.trunk), s.query.size, s.query.width, s.query.allowed is None) for s in searches]
    for (_, size, width, free), numbers in _groups(keys):
        own = [searches[n] for n in numbers]
        mask = None if free else np.stack([s.query.allowed for s in own if s.query.allowed is not None])
        trunk = own[0].trunk
        assert trunk is not None
        found = trunk.lexical(size, [s.text for s in own], width, mask)
        launched["lexical"] += 1
        for row, n in enumerate(numbers):
            results[n] = _row(found, row)
    return results


def _fused(searches: Sequence[Search], launched: Counter[str]) -> list[Ranking]:
    """The k best of both rankings: one fusion for all searches of equal k and weight."""
    results = [_NOTHING] * len(searches)
    for (k, weight), numbers in _groups((s.query.k, s.query.weight) for s in searches):
        rankings = [[searches[n].found for n in numbers], [searches[n].words for n in numbers]]
        found = fuse_reciprocal_rank([_result(own) for own in rankings], k, weights=[weight, 1.0 - weight])
        launched["fusion"] += 1
        for row, n in enumerate(numbers):
            results[n] = _row(found, row)
    return results


def _result(rankings: Sequence[Ranking]) -> SearchResult:
    """Rankings of several queries as one result."""
    counts = np.array([len(own.positions) for own in rankings], np.int64)
    scores = np.full((len(rankings), int(counts.max(initial=0))), -np.inf, np.float32)
    ids = np.full(scores.shape, -1, np.int64)
    for row, own in enumerate(rankings):
        scores[row, : counts[row]], ids[row, : counts[row]] = own.scores, own.positions
    return SearchResult(scores, ids, counts)


def _row(result: SearchResult, row: int) -> Ranking:
    """The ranking of one query of a result."""
    hits = int(result.counts[row])
    return Ranking(result.ids[row, :hits], result.scores[row, :hits])


def _groups(keys: Iterable[Key]) -> list[tuple[Key, list[int]]]:
    """Places by key, keys in the order they first come."""
    groups: dict[Key, list[int]] = {}
    for place, key in enumerate(keys):
        groups.setdefault(key, []).append(place)
    return list(groups.items())
