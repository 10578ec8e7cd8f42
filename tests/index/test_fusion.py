"""Fusion: the definitions, hit by hit in plain Python; ties, missing hits, errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismem_core.errors import ArgumentError
from prismem_core.index import SearchResult, fuse_reciprocal_rank, fuse_weighted

Hits = list[tuple[int, float]]


def result(*queries: Hits) -> SearchResult:
    """A result with these hits of each query."""
    width = max(map(len, queries), default=0)
    scores = np.full((len(queries), width), -np.inf, np.float32)
    ids = np.full((len(queries), width), -1, np.int64)
    for row, hits in enumerate(queries):
        for column, (id, score) in enumerate(hits):
            ids[row, column], scores[row, column] = id, score
    return SearchResult(scores, ids, np.array([len(hits) for hits in queries], np.int64))


def rows(fused: SearchResult) -> list[Hits]:
    assert (fused.scores.dtype, fused.ids.dtype, fused.counts.dtype) == (np.float32, np.int64, np.int64)
    for row, count in enumerate(fused.counts.tolist()):
        assert (fused.ids[row, count:] == -1).all()
        assert (fused.scores[row, count:] == -np.inf).all()
    return [
        list(zip(fused.ids[row, :count].tolist(), fused.scores[row, :count].tolist(), strict=True))
        for row, count in enumerate(fused.counts.tolist())
    ]


def single(number: float) -> float:
    return float(np.float32(number))


def ordered(totals: dict[int, float], lists: list[Hits], k: int) -> Hits:
    ranks = {id: [next((r for r, hit in enumerate(hits) if hit[0] == id), math.inf) for hits in lists] for id in totals}
    best = sorted(totals, key=lambda id: (-single(totals[id]), ranks[id]))[:k]
    return [(id, single(totals[id])) for id in best]


def test_reciprocal_ranks() -> None:
    dense = result([(7, 0.9), (3, 0.8), (5, 0.1)], [], [(-1, 0.5)])
    lexical = result([(3, 11.0), (9, 2.0)], [(4, 1.0)], [])
    expected = [
        [(3, 1 / 62 + 1 / 61), (7, 1 / 61), (9, 1 / 62), (5, 1 / 63)],
        [(4, 1 / 61)],
        [(-1, 1 / 61)],
    ]
    fused = fuse_reciprocal_rank([dense, lexical], 10)
    assert rows(fused) == [[(id, single(score)) for id, score in hits] for hits in expected]
    weighted = fuse_reciprocal_rank([dense, lexical], 1, rank_constant=0, weights=[0, 2.5])
    assert rows(weighted) == [[(3, 2.5)], [(4, 2.5)], [(-1, 0.0)]]


def test_ties_fall_to_the_better_rank_in_the_first_result() -> None:
    first, second = result([(5, 3.0), (2, 1.0)]), result([(2, 3.0), (5, 1.0)])
    assert fuse_reciprocal_rank([first, second], 5).ids.tolist() == [[5, 2]]
    assert fuse_reciprocal_rank([second, first], 5).ids.tolist() == [[2, 5]]
    # 9 and 1 are missing in the first: the second decides, not the id.
    third = result([(9, 1.0), (1, 1.0)])
    assert fuse_weighted([result([]), third], 5).ids.tolist() == [[9, 1]]
    # 8 is in the first result and 3 is not.
    assert fuse_reciprocal_rank([result([(8, 1.0)]), result([(3, 1.0)])], 5).ids.tolist() == [[8, 3]]


def test_weighted_scores() -> None:
    dense, lexical = result([(1, 1.0), (2, 0.5), (3, 0.0)]), result([(2, 30.0), (4, 10.0)])
    assert rows(fuse_weighted([dense, lexical], 9)) == [[(2, 1.5), (1, 1.0), (3, 0.0), (4, 0.0)]]
    assert rows(fuse_weighted([dense, lexical], 2, weights=[0.25, 0.75])) == [[(2, 0.875), (1, 0.25)]]
    assert rows(fuse_weighted([dense, lexical], 9, normalization="none")) == [
        [(2, 30.5), (4, 10.0), (1, 1.0), (3, 0.0)]
    ]
    z = math.sqrt(1.5)
    expected = [(2, 1.0), (1, z - 1.0), (4, -z - 1.0), (3, -z - 1.0)]
    found = rows(fuse_weighted([dense, lexical], 9, normalization="z_score"))[0]
    assert [id for id, _ in found] == [2, 1, 3, 4]
    assert dict(found) == pytest.approx(dict(expected))


@pytest.mark.parametrize(("normalization", "level"), [("min_max", 1.0), ("z_score", 0.0), ("none", 0.3)])
def test_equal_scores(normalization: str, level: float) -> None:
    for hits in ([(1, 0.3)], [(1, 0.3), (2, 0.3), (3, 0.3)]):
        found = rows(fuse_weighted([result(hits)], 9, normalization=normalization))[0]
        assert found == [(id, single(level)) for id, _ in hits]


def test_one_result_keeps_its_order() -> None:
    hits: Hits = [(4, 2.0), (1, 1.5), (9, 1.5), (0, -3.0)]
    for fused in (fuse_reciprocal_rank([result(hits)], 9), fuse_weighted([result(hits)], 9, normalization="none")):
        assert [id for id, _ in rows(fused)[0]] == [4, 1, 9, 0]


def test_nothing() -> None:
    for fuse in (fuse_reciprocal_rank, fuse_weighted):
        assert rows(fuse([result()], 5)) == []
        assert rows(fuse([result([], []), result([], [])], 5)) == [[], []]
        assert fuse([result([(1, 1.0)], [])], 0).ids.shape == (2, 0)
        assert fuse([result([(1, 1.0)])], 10**30).counts.tolist() == [1]


def test_cells_past_a_count_are_no_hits() -> None:
    cells = SearchResult(np.full((1, 2), 9.0, np.float32), np.array([[4, 4]]), np.array([1]))
    assert rows(fuse_reciprocal_rank([cells], 5)) == [[(4, single(1 / 61))]]


LISTS = st.lists(
    st.lists(
        st.tuples(st.integers(-3, 6), st.sampled_from([-2.0, 0.0, 0.5, 1.0, 7.25])),
        unique_by=lambda hit: hit[0],
        max_size=6,
    ),
    min_size=3,
    max_size=3,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(LISTS, min_size=1, max_size=4), st.integers(0, 8), st.data())
def test_the_definitions(lists: list[list[Hits]], k: int, data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=len(lists), max_size=len(lists)))
    results = [result(*queries) for queries in lists]
    ranked, summed = [], []
    for query in range(3):
        own = [queries[query] for queries in lists]
        ids = {id for hits in own for id, _ in hits}
        by_rank, by_score = dict.fromkeys(ids, 0.0), dict.fromkeys(ids, 0.0)
        for weight, hits in zip(weights, own, strict=True):
            scores = [score for _, score in hits]
            for rank, (id, score) in enumerate(hits):
                by_rank[id] += weight / (60 + rank + 1)
                span = max(scores) - min(scores)
                by_score[id] += weight * ((score - min(scores)) / span if span else 1.0)
        ranked.append(ordered(by_rank, own, k))
        summed.append(ordered(by_score, own, k))
    assert rows(fuse_reciprocal_rank(results, k, weights=weights)) == ranked
    assert rows(fuse_weighted(results, k, weights=weights)) == summed


def test_errors_name_the_argument() -> None:
    one, other = result([(1, 1.0)]), result([(1, 1.0)], [(2, 1.0)])
    wrong: list[tuple[Any, str]] = [
        (lambda: fuse_reciprocal_rank([], 3), "results: expected at least one"),
        (
            lambda: fuse_reciprocal_rank([one, other], 3),
            r"results\[1\]: expected hits of 1 queries, as results\[0\] has, got 2",
        ),
        (lambda: fuse_reciprocal_rank([(1, 2, 3)], 3), r"results\[0\]: expected a SearchResult, got tuple"),  # type: ignore[list-item]
        (lambda: fuse_reciprocal_rank([result([(4, 1.0), (4, 0.5)])], 3), r"results\[0\]: query 0 has id 4 twice"),
        (lambda: fuse_reciprocal_rank([one], -1), "k: expected a whole number of at least 0, got -1"),
        (lambda: fuse_reciprocal_rank([one], 3, rank_constant=-1), "rank_constant: expected a finite number"),
        (lambda: fuse_reciprocal_rank([one], 3, weights=[1, 1]), "weights: expected 1, one for each result, got 2"),
        (
            lambda: fuse_weighted([one], 3, weights=[float("nan")]),
            "weights: expected finite numbers of at least 0, got nan",
        ),
        (lambda: fuse_weighted([one], 3, weights=[-1]), "weights: expected finite numbers of at least 0, got -1"),
        (lambda: fuse_weighted([one], 3, normalization="max"), "normalization: expected one of min_max, z_score, none"),
        (
            lambda: fuse_weighted([one, result([(1, math.inf)])], 3),
            r"results\[1\]: query 0 has a hit whose score is not finite",
        ),
    ]
    for call, message in wrong:
        with pytest.raises(ArgumentError, match=message):
            call()
