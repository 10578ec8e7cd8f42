"""VectorIndex.search and mmr: the bits of the ops, filters, thresholds, ties, and every kind of bad query."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prismem_core import VectorIndex, ops
from prismem_core.errors import ArgumentError, NoImplementation
from prismem_core.index import PreparedFilter, SearchResult
from prismem_core.ops.inputs import layouts, unit_rows
from tests.index.conftest import DTYPES, METRICS, kept

RNG = np.random.default_rng(7)
VALUES = unit_rows(RNG, 700, 21)
QUERIES = unit_rows(RNG, 9, 21)
IDS = RNG.permutation(np.arange(-300, 1100, 2))


def filled(values: np.ndarray = VALUES, ids: Any = IDS, **options: Any) -> VectorIndex:
    index = VectorIndex(values.shape[1], **options)
    index.add(values, ids)
    return index


def same(found: SearchResult, scores: np.ndarray, ids: np.ndarray, counts: np.ndarray) -> None:
    """Equal to the bit."""
    assert (found.scores.dtype, found.ids.dtype, found.counts.dtype) == (np.float32, np.int64, np.int64)
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_array_equal(found.scores.view(np.uint32), scores.view(np.uint32))
    np.testing.assert_array_equal(found.counts, counts)


def named(indices: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return np.where(indices < 0, -1, ids[indices])


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("metric", METRICS)
def test_the_bits_are_those_of_the_op(dtype: str, metric: str) -> None:
    index = filled(dtype=dtype, metric=metric)
    gone = IDS[::5]
    index.remove(gone)
    left = np.setdiff1d(np.arange(700), np.arange(0, 700, 5))
    normalize, bits = metric == "cosine", {"dtype": "bfloat16"} if dtype == "bfloat16" else {}
    keys = kept(VALUES, dtype)[left]
    mask = RNG.random(len(left)) < 0.3
    masks = RNG.random((9, len(left))) < 0.2
    for arguments, options in (
        ({}, {}),
        ({"min_score": 0.1}, {"min_score": 0.1}),
        ({"filter": mask}, {"mask": mask}),
        ({"filter": masks, "min_score": 0.0}, {"mask": masks, "min_score": 0.0}),
        ({"filter": IDS[left][mask]}, {"mask": mask}),
        ({"filter": IDS[left][:12]}, {"mask": np.arange(len(left)) < 12}),
    ):
        expected = ops.top_k(QUERIES, keys, 10, normalize=normalize, mask=options.pop("mask", None), **options, **bits)
        found = index.search(QUERIES, 10, **arguments)
        same(found, expected.scores, named(expected.indices, IDS[left]), expected.counts)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("metric", METRICS)
def test_a_batch_gives_what_its_queries_give_one_by_one(metric: str) -> None:
    index = filled(metric=metric)
    masks = RNG.random((9, 700)) < 0.02
    for count in (9, 1, 0):
        batch = index.search(QUERIES[:count], 7, filter=masks[:count], min_score=-0.2)
        for row in range(count):
            alone = index.search(QUERIES[row : row + 1], 7, filter=masks[row], min_score=-0.2)
            size = int(alone.counts[0])
            assert batch.counts[row] == size
            np.testing.assert_array_equal(batch.ids[row, :size], alone.ids[0])
            np.testing.assert_array_equal(batch.scores[row, :size], alone.scores[0])
            assert (batch.scores[row, size:] == -np.inf).all()
            assert (batch.ids[row, size:] == -1).all()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_bits_do_not_depend_on_threads(threads: int) -> None:
    values = unit_rows(np.random.default_rng(1), 20_000, 64)
    index = filled(values, None)
    with ops.use(threads=1):
        expected = index.search(values[:40], 10)
    with ops.use(threads=threads):
        same(index.search(values[:40], 10), *expected)


@pytest.mark.usefixtures("backend")
def test_ties_go_to_the_row_that_was_added_first() -> None:
    index = VectorIndex(3, metric="cosine")
    index.add(np.tile(np.float32([[1, 2, 3]]), (5, 1)), [40, 30, 20, 10, 0])
    query = np.float32([[3, 2, 1]])
    assert index.search(query, 9).ids.tolist() == [[40, 30, 20, 10, 0]]
    index.update([20], np.float32([[1, 2, 3]]))
    index.remove([30])
    index.add(np.float32([[1, 2, 3]]), [30])
    found = index.search(query, 9)
    assert found.ids.tolist() == [[40, 20, 10, 0, 30]]
    assert len(set(found.scores[0].tolist())) == 1
    assert index.search(query, 2, filter=[30, 0, 20]).ids.tolist() == [[20, 0]]


@pytest.mark.usefixtures("backend")
def test_more_than_there_is_and_nothing() -> None:
    index = VectorIndex(21)
    assert index.search(QUERIES, 5).scores.shape == (9, 0)
    assert index.search(QUERIES, 5).counts.tolist() == [0] * 9
    assert index.mmr(QUERIES, 5, relevance_weight=0.5).ids.shape == (9, 0)
    assert index.search(QUERIES, 5, filter=[]).ids.shape == (9, 0)
    assert index.search(QUERIES, 5, filter=np.empty(0, np.bool_)).ids.shape == (9, 0)
    index.add(VALUES[:3], [5, -1, 8])
    found = index.search(QUERIES, 10**30)
    assert found.ids.shape == (9, 3)
    assert found.counts.tolist() == [3] * 9
    assert sorted(found.ids[0].tolist()) == [-1, 5, 8]
    for result in (index.search(QUERIES, 0), index.mmr(QUERIES, 0, relevance_weight=1)):
        assert result.ids.shape == (9, 0)
        assert result.counts.tolist() == [0] * 9
    assert index.search(QUERIES[:0], 2).ids.shape == (0, 2)
    assert index.mmr(QUERIES[:0], 2, relevance_weight=0.3).ids.shape == (0, 2)
    for filter in ([], np.zeros(3, np.bool_), [77]):
        assert index.search(QUERIES, 2, filter=filter).ids.shape == (9, 0)
    index.remove([5, -1, 8])
    assert index.search(QUERIES, 2).ids.shape == (9, 0)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("size", [1, 3, 40, 43, 44, 300, 700])
def test_filters_come_before_the_selection(size: int) -> None:
    """Few ids are searched on their own, many through a mask; both find the worst rows when only they are allowed."""
    index = filled()
    worst = index.search(QUERIES[:1], 700).ids[0, ::-1]
    allowed = worst[:size]
    expected = allowed[::-1][:5]
    for filter in (allowed, np.isin(index.ids, allowed), [*allowed.tolist(), 10**6, *allowed.tolist()]):
        found = index.search(QUERIES[:1], 5, filter=filter)
        assert found.ids.tolist() == [expected.tolist()]
        assert index.mmr(QUERIES[:1], 5, relevance_weight=1.0, filter=filter).ids.tolist() == found.ids.tolist()


def test_a_mask_speaks_of_the_rows_that_are_left() -> None:
    index = filled()
    index.remove(IDS[[0, 1, 350]])
    mask = np.zeros(697, np.bool_)
    mask[[0, 347, 348]] = True
    assert sorted(index.search(QUERIES[:1], 9, filter=mask).ids[0]) == sorted(IDS[[2, 349, 351]])
    backwards = np.zeros((1, 2 * 697), np.bool_)
    backwards[0, ::-2] = mask
    assert sorted(index.search(QUERIES[:1], 9, filter=backwards[:, ::-2]).ids[0]) == sorted(IDS[[2, 349, 351]])


def test_a_prepared_filter_of_ids_follows_the_index() -> None:
    index = filled()
    few, many = index.prepare(IDS[:6]), index.prepare(IDS[:200])
    assert isinstance(few, PreparedFilter)
    for filter, ids in ((few, IDS[:6]), (many, IDS[:200])):
        same(index.search(QUERIES, 10, filter=filter), *index.search(QUERIES, 10, filter=ids))
    index.remove(IDS[[1, 2, 500]])
    index.add(VALUES[:1], [int(IDS[1])])
    index.update(IDS[:1], VALUES[5:6])
    for filter, ids in ((few, IDS[:6]), (many, IDS[:200])):
        same(index.search(QUERIES, 10, filter=filter), *index.search(QUERIES, 10, filter=ids))
    index.remove(IDS[300:600][IDS[300:600] != IDS[500]])
    assert index.stats().removed == 0, "the rows have moved"
    for filter, ids in ((few, IDS[:6]), (many, IDS[:200])):
        same(index.search(QUERIES, 10, filter=filter), *index.search(QUERIES, 10, filter=ids))


def test_a_prepared_mask_ends_with_a_change() -> None:
    index = filled()
    mask = RNG.random((9, 700)) < 0.1
    prepared = index.prepare(mask)
    same(index.search(QUERIES, 10, filter=prepared), *index.search(QUERIES, 10, filter=mask))
    index.update(IDS[:1], VALUES[5:6])
    same(index.search(QUERIES, 10, filter=prepared), *index.search(QUERIES, 10, filter=mask))
    with pytest.raises(ArgumentError, match="the mask was made for 9 queries, but there are 2"):
        index.search(QUERIES[:2], 10, filter=prepared)
    index.remove(IDS[:1])
    with pytest.raises(ArgumentError, match="its mask was prepared before rows were added or removed"):
        index.search(QUERIES, 10, filter=prepared)
    with pytest.raises(ArgumentError, match="it was prepared by another index"):
        filled().search(QUERIES, 10, filter=prepared)
    with pytest.raises(ArgumentError, match="it is prepared already"):
        index.prepare(prepared)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [0.01, 0.5])
def test_a_mask_with_few_rows_is_searched_like_their_ids(share: float) -> None:
    index = filled()
    index.remove(IDS[::9])
    mask = RNG.random(len(index)) < share
    for filter in (mask, index.prepare(mask), index.prepare(index.ids[mask])):
        same(index.search(QUERIES, 5, filter=filter), *index.search(QUERIES, 5, filter=np.tile(mask, (9, 1))))


@pytest.mark.usefixtures("backend")
def test_min_score_is_inclusive_in_the_score_the_caller_sees() -> None:
    index = VectorIndex(1)
    index.add(np.float32([[0.7], [0.69], [0.71]]))
    one = np.ones((1, 1), np.float32)
    assert index.search(one, 3, min_score=0.7).ids.tolist() == [[2, 0]]
    assert index.search(one, 3, min_score=float("inf")).counts.tolist() == [0]
    assert index.search(one, 3, min_score=-float("inf")).counts.tolist() == [3]
    assert index.search(one, 3, min_score=0.7, filter=[1]).counts.tolist() == [0]
    assert index.mmr(one, 3, relevance_weight=1.0, min_relevance=0.7).ids.tolist() == [[2, 0]]
    every = filled().search(QUERIES, 700)
    for rank in (0, 10, 699):
        found = filled().search(QUERIES[:1], 700, min_score=float(every.scores[0, rank]))
        assert found.counts.tolist() == [rank + 1]


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_vectors_and_lengths_under_cosine(dtype: str) -> None:
    scale = {"float32": 1e30, "float16": 1e4, "bfloat16": 1e30}[dtype]
    index = VectorIndex(2, metric="cosine", dtype=dtype)
    index.add(np.float32([[0, 0], [scale, scale], [1 / scale, 1 / scale], [-1, -1], [1, -1]]))
    found = index.search(np.float32([[1, 1], [0, 0], [1e-30, 1e-30]]), 5)
    assert found.ids.tolist() == [[1, 2, 0, 4, 3], [0, 1, 2, 3, 4], [1, 2, 0, 4, 3]]
    np.testing.assert_allclose(found.scores, [[1, 1, 0, 0, -1], [0] * 5, [1, 1, 0, 0, -1]], atol=2e-3)
    assert np.abs(found.scores).max() <= 1.0


def test_queries_of_every_kind_and_layout() -> None:
    index = filled(dtype="float16")
    for label, laid in (*layouts(QUERIES), *layouts(QUERIES.astype(np.float16))):
        plain = np.ascontiguousarray(laid)
        same(index.search(laid, 5), *index.search(plain, 5))
        assert index.search(laid, 5).counts.tolist() == [5] * 9, label


def test_mmr_picks_from_a_pool_what_the_op_picks_from_it() -> None:
    index = filled(metric="cosine")
    index.remove(IDS[::7])
    left = np.setdiff1d(np.arange(700), np.arange(0, 700, 7))
    for weight in (0.0, 0.3, 0.7, 1.0):
        for k, pool, reach in ((5, None, 64), (30, None, 120), (10, 10, 10), (8, 20, 20), (20, 5000, 600)):
            found = index.mmr(QUERIES, k, relevance_weight=weight, pool=pool)
            for row in range(9):
                near = ops.top_k(QUERIES[row : row + 1], VALUES[left], reach, normalize=True).indices[0]
                rows = left[np.sort(near)]
                query = QUERIES[row : row + 1]
                picks = ops.mmr_select(query, VALUES[rows], k, relevance_weight=weight, normalize=True)
                np.testing.assert_array_equal(found.ids[row], IDS[rows[picks.indices[0]]])
                np.testing.assert_array_equal(found.scores[row], picks.scores[0])


def test_mmr_follows_its_rules() -> None:
    index = filled()
    plain = index.search(QUERIES, 12)
    same(index.mmr(QUERIES, 12, relevance_weight=1), *plain)
    for weight in (0, 0.5, 1):
        assert index.mmr(QUERIES, 3, relevance_weight=weight).ids[:, 0].tolist() == plain.ids[:, 0].tolist()
    twins = filled(np.repeat(VALUES[:4], 6, axis=0), np.arange(24))
    picks = twins.mmr(QUERIES, 24, relevance_weight=0.4)
    assert all(sorted(row) == list(range(24)) for row in picks.ids.tolist())
    masks = RNG.random((9, 700)) < 0.05
    picks = index.mmr(QUERIES, 9, relevance_weight=0.5, pool=9, filter=masks)
    found = index.search(QUERIES, 9, filter=masks)
    assert [sorted(row) for row in picks.ids.tolist()] == [sorted(row) for row in found.ids.tolist()]


def test_mmr_over_many_queries_is_cut_where_no_one_sees() -> None:
    """More rows in the pools than are brought side by side at a time."""
    values = unit_rows(np.random.default_rng(3), 300, 1024)
    index = filled(values, np.arange(300)[::-1])
    queries = unit_rows(np.random.default_rng(4), 60, 1024)
    found = index.mmr(queries, 4, relevance_weight=0.5, pool=300)
    picks = ops.mmr_select(queries, values, 4, relevance_weight=0.5)
    same(found, picks.scores, named(picks.indices, np.arange(300)[::-1]), picks.counts)


BAD = QUERIES.copy()
BAD[4, 3] = np.nan
ENDLESS = QUERIES.copy()
ENDLESS[8, 20] = -np.inf


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": -1}, "k: expected a whole number of at least 0, got -1"),
        ({"k": 2.0}, "k: expected"),
        ({"queries": QUERIES[0]}, r"queries: expected two axes .* pass queries\[None, :\]"),
        (
            {"queries": QUERIES[:, :20]},
            "queries: expected 21 dimensions, as the rows of this index have, got 20; .* model",
        ),
        ({"queries": QUERIES.astype(np.float64)}, "queries: expected float32, float16 or bfloat16, got float64"),
        ({"queries": QUERIES.astype(np.int32)}, "queries: expected float32"),
        ({"queries": QUERIES.tolist()}, "queries: expected an array .* got list"),
        ({"queries": BAD}, "queries: row 4 holds NaN or infinity"),
        ({"queries": ENDLESS}, "queries: row 8 holds NaN or infinity"),
        ({"queries": BAD, "k": 0}, "queries: row 4 holds NaN or infinity"),
        ({"min_score": float("nan")}, "min_score: .* NaN"),
        ({"filter": np.zeros(5, np.bool_)}, "filter: expected a mask with 700 values a query, .* got 5"),
        ({"filter": np.zeros((2, 700), np.bool_)}, "filter: the mask was made for 2 queries, but there are 9"),
        ({"filter": np.zeros((1, 9, 700), np.bool_)}, "filter: expected a mask of shape"),
        ({"filter": np.zeros(3)}, "filter: expected int64 numbers"),
        ({"filter": "all"}, "filter: expected int64 numbers"),
        ({"filter": 3}, "filter: expected int64 numbers"),
        ({"filter": [[1, 2]]}, "filter: expected int64 numbers"),
    ],
)
def test_errors_name_the_argument(change: dict[str, Any], message: str) -> None:
    index = filled()
    with pytest.raises(ArgumentError, match=message):
        index.search(**{"queries": QUERIES, "k": 3, **change})
    if "min_score" in change:
        change = {"min_relevance": change["min_score"]}
    with pytest.raises(ArgumentError, match=message.replace("min_score", "min_relevance")):
        index.mmr(**{"queries": QUERIES, "k": 3, "relevance_weight": 0.5, **change})


def test_errors_of_mmr() -> None:
    index = filled()
    for weight in (-0.1, 1.1, float("nan"), None, True):
        with pytest.raises(ArgumentError, match="relevance_weight: expected a number from 0 to 1"):
            index.mmr(QUERIES, 3, relevance_weight=weight)
    with pytest.raises(ArgumentError, match="pool: expected at least k = 3 candidates to pick from, got 2"):
        index.mmr(QUERIES, 3, relevance_weight=0.5, pool=2)


def test_a_product_beyond_float32_names_query_and_id() -> None:
    index = VectorIndex(2)
    index.add(np.float32([[1, 1], [3e38, 0]]), [5, 77])
    queries = np.float32([[0, 0], [1, 1], [3e38, 0]])
    for filter in (None, [77]):
        with pytest.raises(
            ArgumentError, match="the score of row 2 with id 77 is too large for float32; scale the rows"
        ):
            index.search(queries, 1, filter=filter)
    with pytest.raises(ArgumentError, match="the score of row 2 with id 77"):
        index.mmr(queries, 1, relevance_weight=0.5)
    assert index.search(queries[:2], 1, min_score=2e38).ids.tolist() == [[-1], [77]]


def test_the_reference_cannot_search_it() -> None:
    index = filled()
    with ops.use("reference"), pytest.raises(NoImplementation, match="held by the C\\+\\+ core"):
        index.search(QUERIES, 1)
