"""Eq. 1-6 on hand-made cases, with their invariants, and on the golden vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_laboratory import golden_tasks

from prismem_core.evolution.capability_selection import (
    arg_max_priority,
    dependency_base_rate,
    error_concentration,
    incoming_pressure,
    priority,
    select_capability,
    specialist_error,
    urgency,
)
from prismem_core.tasks.capability import CAPABILITIES, Capability

F, T, P, M, A = range(5)

# Two synthesis tasks, the first of which needs temporal knowledge and fails; two other tasks score 0.5.
PRIMARY = np.array([M, M, F, T])
SECONDARY = np.zeros((4, 5), dtype=bool)
SECONDARY[0, T] = True
SCORES = np.tile([0.0, 1.0, 0.5, 0.5], (5, 1))


def test_base_rate_is_the_share_of_tasks_naming_the_secondary() -> None:
    expected = np.zeros((5, 5))
    expected[M, T] = 0.5
    assert np.array_equal(dependency_base_rate(PRIMARY, SECONDARY), expected)


def test_base_rate_diagonal_is_zero_even_if_a_task_names_its_own_primary() -> None:
    secondary = SECONDARY.copy()
    secondary[0, M] = True
    assert dependency_base_rate(PRIMARY, secondary)[M, M] == 0


def test_error_of_s_is_measured_on_the_tasks_of_p() -> None:
    scores = SCORES.copy()
    scores[T] = [1.0, 1.0, 0.25, 0.0]
    error = specialist_error(PRIMARY, scores)
    assert error[M, T] == 0.0 and error[F, T] == 0.75 and error[T, T] == 1.0
    assert error[M, F] == 0.5 and error[T, F] == 0.5
    assert not error[P].any() and not error[A].any()


def test_concentration_is_the_share_of_error_on_tasks_naming_s() -> None:
    scores = SCORES.copy()
    scores[T] = [0.25, 0.75, 0.5, 0.5]
    concentration = error_concentration(PRIMARY, SECONDARY, scores)
    assert concentration[M, T] == 0.75
    assert concentration.sum() == 0.75


def test_concentration_is_zero_without_error() -> None:
    assert not error_concentration(PRIMARY, SECONDARY, np.ones((5, 4))).any()


def test_pressure_counts_only_concentration_above_the_base_rate() -> None:
    error = np.full((2, 2), 0.5)
    concentration = np.array([[0.9, 0.75], [0.25, 0.9]])
    base_rate = np.array([[0.0, 0.5], [0.5, 0.0]])
    assert np.array_equal(incoming_pressure(error, concentration, base_rate), [[0.0, 0.125], [0.0, 0.0]])


def test_urgency_adds_the_largest_incoming_pressure() -> None:
    error = np.diag([0.1, 0.2, 0.3])
    pressure = np.array([[0.0, 0.3, 0.0], [0.5, 0.0, 0.0], [0.25, 0.25, 0.0]])
    assert np.allclose(urgency(error, pressure), [0.6, 0.5, 0.3], atol=1e-15)


def test_urgency_of_a_single_capability_is_its_own_error() -> None:
    assert urgency(np.array([[0.4]]), np.zeros((1, 1))).tolist() == [0.4]


def test_priority_halves_after_one_refinement() -> None:
    assert priority(np.array([0.5, 0.6]), np.array([0, 1])).tolist() == [0.5, 0.3]


def test_arg_max_ignores_noise_below_nine_decimals_and_absent_capabilities() -> None:
    nearly = np.array([0.3, 0.1 + 0.2, 0.9])
    assert arg_max_priority(nearly, np.array([True, True, False])) == 0
    assert arg_max_priority(nearly, np.array([False, True, False])) == 1
    with pytest.raises(ValueError, match="no capability has a training task"):
        arg_max_priority(nearly, np.zeros(3, dtype=bool))


def test_the_bottleneck_is_chosen_before_the_capability_that_shows_it() -> None:
    choice = select_capability(PRIMARY, SECONDARY, SCORES, np.zeros(5, dtype=np.int64))
    assert choice.capability is Capability.TEMPORAL
    assert choice.terms["U"]["temporal"] == 0.75 and choice.terms["I"]["multi_session_synthesis"]["temporal"] == 0.25
    assert choice.terms["counts"] == {str(c): 0 for c in CAPABILITIES}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000))
def test_an_exchange_of_tasks_changes_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    primary = rng.integers(0, 5, n)
    secondary = rng.random((n, 5)) < 0.3
    secondary[np.arange(n), primary] = False
    scores = rng.random((5, n)).round(3)
    counts = rng.integers(0, 3, 5)
    order = rng.permutation(n)
    one = select_capability(primary, secondary, scores, counts)
    two = select_capability(primary[order], secondary[order], scores[:, order], counts)
    assert one.terms == two.terms and one.capability == two.capability
    assert (one.concentration <= 1 + 1e-12).all() and (one.pressure >= 0).all() and (one.urgency <= 2).all()


def test_vector(selection_vector: dict[str, Any]) -> None:
    labels = golden_tasks(selection_vector["tasks"])
    primary = np.array([CAPABILITIES.index(t.primary) for t in labels], dtype=np.int64)
    secondary = np.array([[c in t.secondary for c in CAPABILITIES] for t in labels], dtype=bool).reshape(len(labels), 5)
    table = selection_vector["specialist_scores"]
    scores = np.array([[table[c][t.id] for t in labels] for c in CAPABILITIES], dtype=np.float64)
    counts = np.array([selection_vector["counts"][c] for c in CAPABILITIES], dtype=np.int64)
    expect = selection_vector["expect"]
    choice = select_capability(primary, secondary, scores, counts)
    for name in ("D", "e", "F", "I"):
        for p, row in expect[name].items():
            assert choice.terms[name][p] == pytest.approx(row, abs=1e-9), (name, p)
    assert choice.terms["U"] == pytest.approx(expect["U"], abs=1e-9)
    assert choice.terms["rho"] == pytest.approx(expect["rho"], abs=1e-9)
    assert str(choice.capability) == expect["choice"]
