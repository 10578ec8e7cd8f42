"""mmr_select_from: golden vectors, NaN, matrices that are not symmetric, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from prismem_core import ops
from prismem_core.errors import ArgumentError
from tests.ops.conftest import numbers


@pytest.mark.usefixtures("backend")
def test_golden_single(golden: Callable[[str], Any]) -> None:
    cases = golden("mmr")["single"]
    assert cases
    for case in cases:
        relevance = np.array([numbers(case["relevance"])], np.float32)
        size = relevance.shape[1]
        similarity = np.array(numbers(case["similarity"]), np.float32).reshape(size, size)
        found = ops.mmr_select_from(
            relevance, similarity, case["k"], relevance_weight=case["lambda"], min_relevance=case["threshold"]
        )
        assert found.indices[0].tolist() == case["expect"]["indices"], case["name"]
        np.testing.assert_allclose(found.scores[0], numbers(case["expect"]["scores"]), rtol=0, atol=1e-6)
        assert found.counts.tolist() == [len(case["expect"]["indices"])]


@pytest.mark.usefixtures("backend")
def test_golden_batches(golden: Callable[[str], Any]) -> None:
    cases = golden("mmr")["batches"]
    assert cases
    for case in cases:
        lengths, most = case["lengths"], max(case["lengths"], default=0)
        relevance = np.full((len(lengths), most), 9.0, np.float32)
        similarity = np.full((len(lengths), most, most), -9.0, np.float32)
        for row, length in enumerate(lengths):
            relevance[row, :length] = case["relevance"][row]
            similarity[row, :length, :length] = np.array(case["similarity"][row], np.float32).reshape(length, length)
        found = ops.mmr_select_from(relevance, similarity, case["k"], relevance_weight=case["lambda"], lengths=lengths)
        width = found.indices.shape[1]  # the longest row may have fewer than k
        assert found.indices.tolist() == [row[:width] for row in case["expect"]]
        assert found.counts.tolist() == [sum(index >= 0 for index in row) for row in case["expect"]]


@pytest.mark.usefixtures("backend")
def test_the_similarity_of_a_candidate_to_a_pick_is_the_one_that_counts() -> None:
    relevance = np.array([[1.0, 0.5, 0.5]], np.float32)
    similarity = np.array([[1, 0, 1], [1, 1, 0], [0, 0, 1]], np.float32)
    found = ops.mmr_select_from(relevance, similarity, 3, relevance_weight=0.5)
    assert found.indices.tolist() == [[0, 2, 1]]
    assert found.scores.tolist() == [[0.5, 0.25, -0.25]]


@pytest.mark.usefixtures("backend")
def test_a_candidate_whose_score_is_nan_is_not_picked() -> None:
    relevance = np.array([[1.0, 0.9, 0.5, np.nan]], np.float32)
    similarity = np.zeros((4, 4), np.float32)
    similarity[1, 0] = np.nan
    assert ops.mmr_select_from(relevance, similarity, 4, relevance_weight=0.5).indices.tolist() == [[0, 2]]
    similarity[1, 0], similarity[2, 1] = 0, np.nan  # not before the second pick
    assert ops.mmr_select_from(relevance, similarity, 4, relevance_weight=0.5).indices.tolist() == [[0, 1]]


@pytest.mark.usefixtures("backend")
def test_negative_similarity_is_not_clipped() -> None:
    relevance = np.array([[0.5, 0.25, 0.25]], np.float32)
    similarity = np.array([[1, -0.5, -0.25], [-0.5, 1, 0], [-0.25, 0, 1]], np.float32)
    found = ops.mmr_select_from(relevance, similarity, 2, relevance_weight=0.5)
    assert (found.indices.tolist(), found.scores.tolist()) == ([[0, 1]], [[0.25, 0.375]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"relevance": np.zeros(3, np.float32)}, "relevance: expected 2 axes"),
        ({"similarity": np.zeros((3, 2), np.float32)}, r"similarity: expected shape \(3, 3\) or \(2, 3, 3\)"),
        ({"similarity": np.zeros((3, 3))}, "similarity: expected float32, got float64"),
        ({"lengths": [1]}, "lengths: expected 2 numbers from 0 to 3"),
        ({"lengths": [1, 4]}, "lengths: expected 2 numbers from 0 to 3"),
        ({"lengths": [1.0, 2.0]}, "lengths: expected whole numbers"),
        ({"k": -2}, "k: expected"),
        ({"min_relevance": float("nan")}, "min_relevance: .*NaN"),
    ],
)
def test_errors_name_the_argument(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "relevance": np.zeros((2, 3), np.float32),
        "similarity": np.zeros((3, 3), np.float32),
        "k": 1,
        "relevance_weight": 0.5,
    }
    with pytest.raises(ArgumentError, match=message):
        ops.mmr_select_from(**{**arguments, **change})
