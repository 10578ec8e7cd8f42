"""Eq. 7 on hand-made cases and on the golden vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scripted_laboratory import golden_tasks

from prismem_core.evolution.case_selection import (
    case_weights,
    combination_counts,
    eligible_cases,
    representative_cases,
    select_cases,
    weakest_cases,
)
from prismem_core.tasks.capability import CAPABILITIES

EVERY = np.ones(4, dtype=bool)
NONE_SELECTED = np.zeros(4, dtype=np.int64)


def test_a_score_of_exactly_delta_is_not_eligible() -> None:
    current = np.array([0.8, 0.79, 0.1 + 0.7, 0.0])
    assert eligible_cases(np.array([True, True, True, False]), current, 0.8).tolist() == [False, True, False, False]


def test_weight_grows_with_earlier_success_and_falls_with_repetition() -> None:
    history = np.array([[1.0, 0.0, 0.5, 0.0], [0.0, 0.0, 0.5, 0.0]])
    weights = case_weights(history, np.array([0, 1, 0, 1]), np.array([0, 1, 2, 0]))
    assert weights.tolist() == [1.5, 0.25, 0.5, 0.5]


def test_without_history_the_numerator_is_one() -> None:
    assert case_weights(np.zeros((0, 4)), NONE_SELECTED, NONE_SELECTED).tolist() == [1.0] * 4


def test_combinations_are_exact_sets_and_count_every_selected_case() -> None:
    secondary = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0]], dtype=bool)
    selected, combination = combination_counts(secondary, [[0, 1], [0], [3]])
    assert selected.tolist() == [2, 1, 0, 1]
    assert combination.tolist() == [2, 1, 2, 1]


def test_order_is_weight_then_score_then_position() -> None:
    weights = np.array([0.5, 1.0, 1.0, 1.0])
    assert select_cases(EVERY, weights, np.array([0.0, 0.3, 0.1 + 0.2, 0.1]), 3) == [3, 1, 2]
    assert select_cases(np.zeros(4, dtype=bool), weights, np.zeros(4), 3) == []


def test_weakest_cases_are_the_lowest_scores() -> None:
    assert weakest_cases(EVERY, np.array([0.2, 0.1, 0.2, 0.0]), 3) == [3, 1, 0]


def test_representatives_prefer_the_least_shown_then_the_weakest() -> None:
    primary = np.array([0, 0, 0, 2])
    current = np.array([0.1, 0.4, 0.3, 0.7])
    eligible = np.array([True, True, True, True])
    assert representative_cases(primary, eligible, np.array([1, 0, 0, 5]), current, 5) == [2, 3]
    assert representative_cases(primary, eligible, np.array([1, 1, 1, 5]), current, 5) == [0, 3]
    assert representative_cases(primary, np.array([False, False, False, True]), NONE_SELECTED, current, 5) == [3]


def test_vector(case_vector: dict[str, Any]) -> None:
    labels = golden_tasks(case_vector["tasks"])
    position = {t.id: i for i, t in enumerate(labels)}
    secondary = np.array([[c in t.secondary for c in CAPABILITIES] for t in labels], dtype=bool)
    current = np.array([case_vector["current_scores"][t.id] for t in labels], dtype=np.float64)
    history = np.array(
        [[scores.get(t.id, np.nan) for t in labels] for scores in case_vector["history_scores"]], dtype=np.float64
    ).reshape(-1, len(labels))
    member = np.array([t.primary == case_vector["target"] for t in labels])
    eligible = eligible_cases(member, current, case_vector["delta"])
    batches = [[position[t] for t in batch] for batch in case_vector["earlier_batches"]]
    weights = case_weights(history, *combination_counts(secondary, batches))
    chosen = select_cases(eligible, weights, current, case_vector["k"])
    assert [labels[i].id for i in chosen] == case_vector["expect"]["selected"]
    actual = {labels[i].id: weights[i] for i in np.flatnonzero(eligible)}
    assert actual == pytest.approx(case_vector["expect"]["weights"], abs=1e-9)
