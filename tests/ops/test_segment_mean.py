"""segment_mean: as exact as an exactly summed list, NaN for nothing, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismem_core import ops
from prismem_core.errors import ArgumentError


@pytest.mark.usefixtures("backend")
def test_means() -> None:
    means = ops.segment_mean(np.array([1, 2, 3, -4], np.float32), [0, 2, 2, 4])
    assert means.dtype == np.float64
    assert means[[0, 2]].tolist() == [1.5, -0.5]
    assert math.isnan(means[1])
    assert ops.segment_mean(np.zeros(0, np.float32), [0]).shape == (0,)


@pytest.mark.usefixtures("backend")
def test_nothing_is_lost_by_cancellation() -> None:
    assert ops.segment_mean(np.array([1e16, 1.0, 1.0, -1e16]), [0, 4]).tolist() == [0.5]
    assert ops.segment_mean(np.array([0.1] * 10), [0, 10]).tolist() == [0.1]


@pytest.mark.usefixtures("backend")
def test_values_that_are_not_finite_stay_in_their_segment() -> None:
    means = ops.segment_mean(np.array([1, np.inf, 2, np.nan, np.inf, -np.inf, 3]), [0, 2, 3, 4, 6, 7])
    assert means.tolist()[:2] == [math.inf, 2.0]
    assert np.isnan(means[[2, 3]]).all()
    assert means[4] == 3.0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=60))
def test_scores_are_averaged_like_an_exact_sum(values: list[float]) -> None:
    exact = math.fsum(values) / len(values)
    for variant in ops.instruction_sets():
        with ops.use(f"cpu/{variant}"):
            got = ops.segment_mean(np.array(values), [0, len(values)])[0]
        assert abs(got - exact) <= 2 * math.ulp(exact) + 1e-30


def test_errors_name_the_argument() -> None:
    values = np.zeros(4, np.float32)
    with pytest.raises(ArgumentError, match="offsets: the last segment ends at 5, but there are 4 values"):
        ops.segment_mean(values, [0, 5])
    with pytest.raises(ArgumentError, match="offsets: expected numbers from 0 that never fall, got 1 at position 2"):
        ops.segment_mean(values, [0, 2, 1])
    with pytest.raises(ArgumentError, match="offsets: expected numbers from 0 that never fall, got -1 at position 0"):
        ops.segment_mean(values, [-1, 2])
    with pytest.raises(ArgumentError, match="offsets: expected one number more"):
        ops.segment_mean(values, [])
    with pytest.raises(ArgumentError, match="values: expected 1 axes"):
        ops.segment_mean(values[None], [0, 1])
    with pytest.raises(ArgumentError, match="values: expected float32 or float64, got float16"):
        ops.segment_mean(values.astype(np.float16), [0, 1])
