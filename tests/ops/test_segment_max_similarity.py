"""segment_max_similarity: empty sets, ties, negative maxima, groups, golden diagnostics."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismem_core import ops
from prismem_core.errors import ArgumentError


@pytest.mark.usefixtures("backend", "poisoned")
def test_empty_sets_ties_and_negative_maxima() -> None:
    items = np.array([[-2, 0], [-1, 0], [-1, 0], [3, 1]], np.float32)
    evidence = np.array([[1, 0], [1, 0], [0, 1], [0, 0]], np.float32)
    segments = ops.Segments.grouped([(0, 3), (1, 1), (1, 4)], [0, 1, 2, 2])
    found = ops.segment_max_similarity(evidence, items, segments)
    assert found.values.tolist() == [-1, 0, 1, 0]
    assert found.indices.tolist() == [1, -1, 2, 0]
    nothing = ops.segment_max_similarity(evidence, items[:0])
    assert (nothing.values.tolist(), nothing.indices.tolist()) == ([0] * 4, [-1] * 4)
    assert ops.segment_max_similarity(evidence[:0], items).values.shape == (0,)


@pytest.mark.usefixtures("backend")
def test_rows_that_are_not_finite() -> None:
    items = np.ones((300, 3), np.float32)
    items[200] = np.nan
    evidence = np.ones((2, 3), np.float32)
    with pytest.raises(ArgumentError, match="items: row 200 holds NaN"):
        ops.segment_max_similarity(evidence, items, ops.Segments([0, 130, 300]))
    found = ops.segment_max_similarity(evidence, items, ops.Segments([199, 200, 201]), nonfinite="skip")
    assert (found.values.tolist(), found.indices.tolist()) == ([3, 0], [0, -1])


@pytest.mark.usefixtures("backend")
def test_golden_diagnostics(golden: Callable[[str], Any]) -> None:
    vectors = golden("diagnostics")
    checked = 0
    for task in vectors["tasks"]:
        expect = vectors["expect_tasks"][task["id"]]
        seen: list[dict[str, Any]] = []
        for piece in task["evidence"]:
            if piece["text"].strip() and all(piece["text"] != earlier["text"] for earlier in seen):
                seen.append(piece)
        if expect["n_evidence"] != len(seen) or not seen:
            continue  # repeats that only differ in form are the business of the evaluation
        evidence = np.array([piece["emb"] for piece in seen], np.float32)
        sets = [task["retrieved"]] + [piece["oracle"] for piece in seen]
        dim = evidence.shape[1]
        items = np.concatenate([np.array(rows, np.float32).reshape(len(rows), dim) for rows in sets])
        segments = ops.Segments.from_lengths([len(rows) for rows in sets], [0] * len(seen) + list(range(1, len(sets))))
        values, _ = ops.segment_max_similarity(np.concatenate([evidence] * 2), items, segments, normalize=True)
        ret, idx = ops.segment_mean(values, [0, len(seen), 2 * len(seen)])
        assert math.isclose(ret, expect["d_ret"], abs_tol=1e-6)
        assert math.isclose(idx, expect["d_idx"], abs_tol=1e-6)
        checked += 1
    assert checked > 0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whole_numbers_give_exactly_the_definition(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    e, n, d = (data.draw(st.integers(0, limit)) for limit in (60, 300, 12))
    evidence, items = rng.integers(-2, 3, (e, d)).astype(np.float32), rng.integers(-2, 3, (n, d)).astype(np.float32)
    segments = ops.Segments(np.sort(rng.integers(0, n + 1, 6)), rng.integers(0, 5, e))
    with ops.use("reference"):
        expected = ops.segment_max_similarity(evidence, items, segments)
    for variant in ops.instruction_sets():
        with ops.use(f"cpu/{variant}"):
            found = ops.segment_max_similarity(evidence, items, segments)
        for part, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(part, wanted)
