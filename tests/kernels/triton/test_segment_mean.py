"""segment_mean with Triton: the examples of the op, pieces of long segments, values that are not finite."""

from __future__ import annotations

import math

import numpy as np
import pytest

from prismem_core import ops
from tests.kernels.triton import calls

EXAMPLES = list(ops.SEGMENT_MEAN.examples(np.random.default_rng(7)))


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.label for example in EXAMPLES])
def test_agrees_with_the_definition(example: ops.Example) -> None:
    call = ops.SEGMENT_MEAN.check(**example.arguments)
    assert ops.SEGMENT_MEAN.agrees(calls.means(call), call) is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_long_segments_are_cut_and_put_together(dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls.segment_mean, "SHORT", 8)
    monkeypatch.setattr(calls.segment_mean, "PIECE", 32)
    rng = np.random.default_rng(1)
    values = (rng.standard_normal(900) * 10.0 ** rng.integers(-20, 20, 900)).astype(dtype)
    offsets = np.array([0, 0, 3, 11, 12, 44, 45, 300, 300, 309, 900])
    call = ops.SEGMENT_MEAN.check(values, offsets)
    found = calls.means(call)
    assert ops.SEGMENT_MEAN.agrees(found, call) is None
    whole = ops.SEGMENT_MEAN.check(np.arange(900).astype(dtype), offsets)
    with ops.use("reference"):
        np.testing.assert_array_equal(calls.means(whole), ops.segment_mean(whole.values, offsets))


def test_nothing_is_lost_by_cancellation_across_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls.segment_mean, "SHORT", 2)
    monkeypatch.setattr(calls.segment_mean, "PIECE", 3)
    values = np.array([1e16, 1.0, 1.0, -1e16, 1e-3, 1e30, 1e-9, -1e30, 2.0, -2.0])
    found = calls.means(ops.SEGMENT_MEAN.check(values, [0, 5, 10]))
    np.testing.assert_array_equal(found, [2.001 / 5, 1e-9 / 5])


@pytest.mark.parametrize("short", [2, 512])
def test_values_that_are_not_finite_stay_in_their_segment(short: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls.segment_mean, "SHORT", short)
    values = np.array([1, np.inf, 2, 3, np.nan, 4, 5, np.inf, -np.inf, 6, -np.inf, 7, 8], np.float32)
    found = calls.means(ops.SEGMENT_MEAN.check(values, [0, 3, 4, 7, 9, 10, 13]))
    assert found[[0, 1, 4, 5]].tolist() == [math.inf, 3.0, 6.0, -math.inf]
    assert np.isnan(found[[2, 3]]).all()
