"""mmr_select: what its two weights at the ends mean, duplicates, thresholds, filters, values that are not finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismem_core import ops
from prismem_core.errors import ArgumentError
from prismem_core.ops.inputs import unit_rows


@pytest.mark.usefixtures("backend")
def test_weight_one_is_plain_top_k() -> None:
    rng = np.random.default_rng(1)
    queries, keys = unit_rows(rng, 5, 24), unit_rows(rng, 90, 24)
    best = ops.top_k(queries, keys, 12, min_score=0.05)
    picked = ops.mmr_select(queries, keys, 12, relevance_weight=1.0, min_relevance=0.05)
    for row in range(5):
        count = int(best.counts[row])
        assert picked.counts[row] == count
        assert picked.indices[row, :count].tolist() == best.indices[row, :count].tolist()
        assert picked.scores[row, :count].tolist() == best.scores[row, :count].tolist()


@pytest.mark.usefixtures("backend")
def test_the_first_pick_is_the_most_relevant_for_every_weight() -> None:
    keys = np.array([[0.5, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], np.float32)
    query = np.array([[1.0, 0.25]], np.float32)
    for weight in (0.0, 0.25, 1.0):
        picked = ops.mmr_select(query, keys, 4, relevance_weight=weight)
        assert picked.indices[0, 0] == 1
        assert picked.scores[0, 0] == np.float32(weight)
    assert ops.mmr_select(query, keys, 4, relevance_weight=0.0).indices.tolist() == [[1, 2, 0, 3]]
    assert ops.mmr_select(query, keys, 4, relevance_weight=0.0).scores.tolist() == [[0.0, 0.0, -0.5, -1.0]]


@pytest.mark.usefixtures("backend")
def test_identical_rows_are_each_picked_once() -> None:
    keys = np.ones((9, 4), np.float32)
    picked = ops.mmr_select(keys[:2], keys, 100, relevance_weight=0.5)
    assert picked.indices.tolist() == [list(range(9))] * 2
    assert picked.counts.tolist() == [9, 9]


@pytest.mark.usefixtures("backend")
def test_a_filter_means_what_it_means_for_top_k() -> None:
    rng = np.random.default_rng(8)
    queries, keys = unit_rows(rng, 4, 10), unit_rows(rng, 50, 10)
    for mask in (rng.random(50) < 0.2, rng.random((4, 50)) < 0.2):
        picked = ops.mmr_select(queries, keys, 50, relevance_weight=0.5, mask=mask)
        allowed = np.broadcast_to(mask, (4, 50))
        for row in range(4):
            assert sorted(picked.indices[row, : picked.counts[row]].tolist()) == np.flatnonzero(allowed[row]).tolist()


@pytest.mark.usefixtures("backend")
def test_rows_that_are_not_finite() -> None:
    keys = np.eye(4, dtype=np.float32)
    keys[2] = np.nan
    query = np.ones((1, 4), np.float32)
    with pytest.raises(ArgumentError, match="keys: row 2 holds NaN"):
        ops.mmr_select(query, keys, 2, relevance_weight=0.5)
    assert ops.mmr_select(query, keys, 9, relevance_weight=0.5, nonfinite="skip").indices.tolist() == [[0, 1, 3]]
    with pytest.raises(ArgumentError, match="keys: row 2 holds NaN"):
        ops.mmr_select(query, keys, 2, relevance_weight=0.5, segments=ops.Segments.grouped([(1, 4)], [0]))
    assert ops.mmr_select(query * np.nan, keys, 3, relevance_weight=0.5, nonfinite="skip").counts.tolist() == [0]


@pytest.mark.usefixtures("backend")
def test_half_precision_and_segments() -> None:
    rng = np.random.default_rng(6)
    queries, keys = unit_rows(rng, 3, 32).astype(np.float16), unit_rows(rng, 30, 32).astype(np.float16)
    segments = ops.Segments([0, 12, 12, 30])
    together = ops.mmr_select(queries, keys, 5, relevance_weight=0.6, segments=segments, normalize=True)
    assert together.counts.tolist() == [5, 0, 5]
    for row, (begin, end) in enumerate(((0, 12), (12, 12), (12, 30))):
        alone = ops.mmr_select(queries[row : row + 1], keys[begin:end], 5, relevance_weight=0.6, normalize=True)
        count = int(alone.counts[0])
        assert together.indices[row, :count].tolist() == alone.indices[0].tolist()
        assert together.scores[row, :count].tolist() == alone.scores[0].tolist()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whole_numbers_give_exactly_the_definition(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    m, n, d = (data.draw(st.integers(0, limit)) for limit in (3, 140, 11))
    queries, keys = rng.integers(-2, 3, (m, d)).astype(np.float32), rng.integers(-2, 3, (n, d)).astype(np.float32)
    arguments: dict[str, Any] = {
        "k": data.draw(st.integers(0, 12)),
        "relevance_weight": data.draw(st.sampled_from([0.0, 0.25, 0.5, 1.0])),
        "mask": data.draw(st.sampled_from([None, rng.random(n) < 0.5, rng.random((m, n)) < 0.5])),
        "min_relevance": data.draw(st.sampled_from([None, 0.0])),
    }
    with ops.use("reference"):
        expected = ops.mmr_select(queries, keys, **arguments)
    for variant in ops.instruction_sets():
        with ops.use(f"cpu/{variant}"):
            found = ops.mmr_select(queries, keys, **arguments)
        for part, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(part, wanted)


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan"), True, "0.5", None])
def test_a_weight_outside_zero_to_one_is_an_error(weight: Any) -> None:
    keys = np.eye(2, dtype=np.float32)
    with pytest.raises(ArgumentError, match="relevance_weight: expected a number from 0 to 1"):
        ops.mmr_select(keys, keys, 1, relevance_weight=weight)
