"""The checks accept what rounding may do and nothing more."""

from __future__ import annotations

import numpy as np
import pytest

from prismem_core import ops
from prismem_core.bench import data, exact
from prismem_core.bench.ops import mmr_select


@pytest.fixture(scope="module")
def found() -> tuple[data.RowSet, np.ndarray]:
    made = data.rows("isotropic", 3000, 32)
    return made, ops.top_k(made.queries[:100], made.keys, 5).indices


def test_the_right_ids_pass(found: tuple[data.RowSet, np.ndarray]) -> None:
    made, ids = found
    finding = exact.TopKCheck(made.keys, made.queries[:100], 5)(ids)
    assert finding.complaint == ""
    assert finding.figures["recall"] == 1.0
    assert finding.figures["checked_queries"] == 64


@pytest.mark.parametrize("query", [0, 99])
def test_a_wrong_id_does_not(found: tuple[data.RowSet, np.ndarray], query: int) -> None:
    made, ids = found
    check = exact.TopKCheck(made.keys, made.queries[:100], 5)
    swapped = ids.copy()
    swapped[query, [0, 1]] = swapped[query, [1, 0]]
    assert f"query {query}, position 0" in check(swapped).complaint
    other = ids.copy()
    other[query, 4] = next(i for i in range(3000) if i not in ids[query])
    finding = check(other)
    assert f"query {query}, position 4" in finding.complaint
    assert finding.figures["recall"] == pytest.approx(1 - 1 / (64 * 5))
    twice = ids.copy()
    twice[query, 4] = twice[query, 3]
    assert "twice" in check(twice).complaint
    outside = ids.copy()
    outside[query, 4] = 3000
    assert "outside" in check(outside).complaint
    assert "shape" in check(ids[:, :4]).complaint


def test_rows_within_the_bound_may_change_places() -> None:
    keys = np.eye(4, 8, dtype=np.float32)
    keys[1] = keys[0]
    keys[1, 7] = np.float32(1e-8)
    queries = np.ones((1, 8), np.float32)
    check = exact.TopKCheck(keys, queries, 2)
    for order in ([0, 1], [1, 0], [2, 3]):
        assert check(np.array([order])).complaint == ""
    keys[2] *= np.float32(0.9)
    assert exact.TopKCheck(keys, queries, 2)(np.array([[0, 2]])).complaint != ""


def test_the_bound_holds_for_sums_in_any_order() -> None:
    rng = np.random.default_rng(0)
    for dim in (8, 384):
        rows = data.scaled(rng.standard_normal((200, dim)).astype(np.float32))
        forward = np.zeros(199, np.float32)
        for column in range(dim):
            forward += rows[1:, column] * rows[0, column]
        off = np.abs(forward - rows[1:].astype(np.float64) @ rows[0].astype(np.float64))
        assert off.max() <= exact.float32_error(dim)
    assert exact.float32_error(384) < 1e-4


def test_selections_are_judged_pick_by_pick() -> None:
    rows, asked = mmr_select.candidates(3, 40, 16)
    check = exact.SelectionCheck(rows, asked, 8, 0.5)
    segments = ops.Segments.from_lengths([40] * 3)
    picks = ops.mmr_select(
        asked, rows.reshape(120, 16), 8, relevance_weight=0.5, segments=segments, normalize=True
    ).indices
    assert check(picks).complaint == ""
    swapped = picks.copy()
    swapped[1, [0, 5]] = swapped[1, [5, 0]]
    assert "query 1, pick 0" in check(swapped).complaint
    again = picks.copy()
    again[2, 7] = again[2, 0]
    assert "query 2, pick 7" in check(again).complaint
    assert "shape" in check(picks[:, :3]).complaint
