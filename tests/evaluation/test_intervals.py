"""Bootstrap intervals: they cover, they repeat, and what has no interval says so."""

from __future__ import annotations

import builtins
import warnings
from typing import Any

import numpy as np
import pytest

from prismem_core.errors import ArgumentError, SettingsError
from prismem_core.evaluation.intervals import (
    Interval,
    difference_interval,
    grouped_interval,
    interval,
    paired_interval,
)


def test_an_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    found = [interval(rng.exponential(1.0, 80).tolist(), seed=i) for i in range(100)]
    covered = sum(f.low <= 1.0 <= f.high for f in found if f.low is not None and f.high is not None)
    assert 86 <= covered <= 100
    assert all(f.low is not None and f.high is not None and f.low < f.mean < f.high for f in found)


def test_the_same_values_and_seed_give_the_same_interval() -> None:
    values = np.random.default_rng(1).random(30).tolist()
    assert interval(values, seed=4) == interval(values, seed=4) != interval(values, seed=5)


def test_values_that_differ_by_rounding_alone_give_no_warning() -> None:
    values = [0.3, 0.1 + 0.2, 0.3, 0.3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = interval(values)
    assert found.low == pytest.approx(0.3) == found.high


def test_what_has_no_width_and_what_has_no_interval() -> None:
    assert interval([0.25]) == Interval(0.25, None, None, 1)
    assert interval([0.5, 0.5, 0.5]) == Interval(0.5, 0.5, 0.5, 3)
    two = interval([0.2, 0.4])
    assert two.low is not None and two.high is not None and 0.2 <= two.low < two.high <= 0.4


def test_differences_are_paired() -> None:
    base = np.random.default_rng(2).random(50) * 10
    better = base + 0.1 + 0.01 * np.random.default_rng(3).standard_normal(50)
    found = paired_interval(better.tolist(), base.tolist())
    assert found.excludes_zero and abs(found.mean - 0.1) < 0.01
    assert not paired_interval(base.tolist(), base[::-1].tolist()).excludes_zero


def test_differences_of_two_samples_are_not_paired() -> None:
    rng = np.random.default_rng(5)
    found = [difference_interval(rng.normal(1, 1, 60).tolist(), rng.normal(0.5, 2, 40).tolist()) for _ in range(60)]
    covered = sum(f.low <= 0.5 <= f.high for f in found if f.low is not None and f.high is not None)
    assert 52 <= covered <= 60
    assert difference_interval([1.0, 1.0], [0.5, 0.5, 0.5]) == Interval(0.5, 0.5, 0.5, 2)
    assert difference_interval([1.0], [0.5, 0.0]) == Interval(0.75, None, None, 1)
    one, other = rng.random(30).tolist(), rng.random(20).tolist()
    there, back = difference_interval(one, other), difference_interval(other, one)
    assert there == difference_interval(one, other) and there.n == 20
    assert there.mean == -back.mean and there.low is not None and there.low < there.mean
    # One sample without any spread leaves the correction undefined, and the other one's interval.
    flat = difference_interval([1.0, 1.0, 1.0], [0.2, 0.4, 0.1])
    assert flat.low is not None and flat.high is not None and 0.59 < flat.low < flat.high < 0.91
    with pytest.raises(ArgumentError, match="at least one finite value"):
        difference_interval([], [1.0])


def test_groups_count_alike_and_are_resampled_by_themselves() -> None:
    rng = np.random.default_rng(6)
    draws = [(rng.normal(0.2, 0.1, 60), rng.normal(0.8, 0.3, 12)) for _ in range(100)]
    found = [grouped_interval([one.tolist(), other.tolist()]) for one, other in draws]
    covered = sum(f.low <= 0.5 <= f.high for f in found if f.low is not None and f.high is not None)
    assert 86 <= covered <= 100
    # That the groups differ is no chance, and adds nothing to the interval.
    near = grouped_interval([[0.0, 0.01] * 20, [0.99, 1.0] * 20])
    assert near.low is not None and near.high is not None and near.high - near.low < 0.005
    assert grouped_interval([[0.0, 0.0, 0.0], [1.0, 1.0]]) == Interval(0.5, 0.5, 0.5, 5)
    assert grouped_interval([[0.0], [1.0]]) == Interval(0.5, None, None, 2)
    assert grouped_interval([[0.0], [1.0, 1.0]]) == Interval(0.5, 0.5, 0.5, 3)
    # A group of one value shifts the interval of the other and adds nothing to it.
    one = rng.random(30).tolist()
    alone, beside = interval(one), grouped_interval([one, [0.0]])
    assert alone.low is not None and beside.low is not None
    assert beside.low == pytest.approx(alone.low / 2)
    with pytest.raises(ArgumentError, match="at least one group"):
        grouped_interval([])
    with pytest.raises(ArgumentError, match="at least one finite value"):
        grouped_interval([[0.1], []])


@pytest.mark.parametrize("values", [[], [float("nan")], [[0.1], [0.2]]])
def test_what_is_no_list_of_numbers_is_refused(values: Any) -> None:
    with pytest.raises(ArgumentError, match="at least one finite value"):
        interval(values)


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(ArgumentError, match="2 and 1 values"):
        paired_interval([1.0, 2.0], [1.0])


def test_without_scipy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *args: Any) -> Any:
        if name.startswith("scipy"):
            raise ImportError(name)
        return original(name, *args)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(SettingsError, match=r"prismem-core\[statistics\]"):
        interval([0.1, 0.2])
