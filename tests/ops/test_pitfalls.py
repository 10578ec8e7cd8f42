"""Faults that users of vector searches meet and that no other test rules out; tests/house/pitfalls.toml lists all."""

from __future__ import annotations

import multiprocessing
import os
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from prismem_core import ops
from prismem_core.errors import ArgumentError
from prismem_core.ops.inputs import unit_rows

RNG = np.random.default_rng(11)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("normalize", [False, True])
def test_a_nan_score_is_never_ranked(normalize: bool) -> None:
    keys = unit_rows(RNG, 60, 9)
    keys[::3] = np.nan
    for k in (1, 40, 60):
        found = ops.top_k(keys[1:3], keys, k, normalize=normalize, nonfinite="skip")
        assert not np.isnan(found.scores).any()
        assert not np.isin(found.indices, np.arange(0, 60, 3)).any()
        assert found.counts.tolist() == [min(k, 40)] * 2
    picks = ops.mmr_select(keys[1:3], keys, 60, relevance_weight=0.5, normalize=normalize, nonfinite="skip")
    assert not np.isin(picks.indices, np.arange(0, 60, 3)).any()


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("normalize", [False, True])
def test_a_zero_vector_scores_zero_against_everything(normalize: bool) -> None:
    rows = np.concatenate([unit_rows(RNG, 20, 33), np.zeros((2, 33), np.float32)])
    scores = ops.similarity(rows, rows, normalize=normalize)
    assert (scores[20:] == 0.0).all()
    assert (scores[:, 20:] == 0.0).all()
    found = ops.top_k(rows[20:], rows, 22, normalize=normalize)
    assert (found.scores == 0.0).all()
    assert found.indices.tolist() == [list(range(22))] * 2


@pytest.mark.usefixtures("backend")
def test_normalising_what_is_normalised_changes_nothing_but_rounding() -> None:
    rows = RNG.standard_normal((80, 40)).astype(np.float32) * np.float32(7)
    once = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    twice = (once / np.linalg.norm(once, axis=1, keepdims=True)).astype(np.float32)
    expected = ops.top_k(rows[:9], rows, 10, normalize=True)
    for keys in (once, twice):
        found = ops.top_k(keys[:9], keys, 10, normalize=True)
        assert found.indices.tolist() == expected.indices.tolist()
        np.testing.assert_allclose(found.scores, expected.scores, atol=3e-7)
    # Whether lengths count is the caller's word and never guessed: unit rows give the same either way, others do not.
    np.testing.assert_allclose(ops.top_k(once[:9], once, 10).scores, expected.scores, atol=3e-7)
    assert not np.allclose(ops.top_k(rows[:9], rows, 10).scores, expected.scores, atol=0.1)


@pytest.mark.usefixtures("backend")
def test_scores_fall_and_a_higher_score_is_the_closer_row() -> None:
    keys = unit_rows(RNG, 50, 12)
    query = keys[7:8] + np.float32(0.01)
    found = ops.top_k(query, keys, 50, normalize=True)
    assert found.indices[0, 0] == 7
    assert (np.diff(found.scores[0]) <= 0).all()
    distances = np.linalg.norm(keys[found.indices[0]] - query / np.linalg.norm(query), axis=1)
    assert (np.diff(distances) >= -1e-6).all()
    assert np.abs(found.scores).max() <= 1.0


@pytest.mark.usefixtures("backend")
def test_a_weight_of_zero_is_a_value() -> None:
    keys = np.array([[1, 0, 0], [1, 0.01, 0], [0, 1, 0], [0, 0, 1]], np.float32)
    query = np.array([[1, 0.2, 0.1]], np.float32)
    none = ops.mmr_select(query, keys, 4, relevance_weight=0.0, normalize=True)
    # After the most relevant row only unlikeness counts: the rows at right angles come before its near twin.
    assert none.indices.tolist() == [[1, 3, 2, 0]]
    half = ops.mmr_select(query, keys, 4, relevance_weight=0.9, normalize=True)
    assert half.indices.tolist() != none.indices.tolist()


@pytest.mark.usefixtures("backend")
def test_the_order_of_picks_is_that_of_selection_and_scores_are_those_of_the_moment() -> None:
    keys, queries = unit_rows(RNG, 70, 24), unit_rows(RNG, 3, 24)
    weight = 0.4
    found = ops.mmr_select(queries, keys, 12, relevance_weight=weight)
    relevance = queries.astype(np.float64) @ keys.astype(np.float64).T
    alike = keys.astype(np.float64) @ keys.astype(np.float64).T
    for row in range(3):
        picks = found.indices[row].tolist()
        moments = [
            weight * relevance[row, pick] - ((1 - weight) * alike[pick, picks[:step]].max() if step else 0.0)
            for step, pick in enumerate(picks)
        ]
        np.testing.assert_allclose(found.scores[row], moments, atol=1e-6)
        # A shorter selection is the beginning of a longer one.
        assert ops.mmr_select(queries, keys, 5, relevance_weight=weight).indices[row].tolist() == picks[:5]


@pytest.mark.parametrize(
    "call",
    [
        lambda left, right: ops.similarity(left, right),
        lambda left, right: ops.top_k(left, right, 3),
        lambda left, right: ops.mmr_select(left, right, 3, relevance_weight=0.5),
        lambda left, right: ops.segment_max_similarity(left, right),
    ],
    ids=["similarity", "top_k", "mmr_select", "segment_max_similarity"],
)
def test_a_mismatch_names_both_sizes_and_arguments(call: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(np.zeros((2, 384), np.float32), np.zeros((5, 768), np.float32))
    message = str(caught.value)
    assert "(2, 384)" in message
    assert "(5, 768)" in message
    assert message.split(":")[0] in ("y", "keys", "items")


@pytest.mark.parametrize("normalize", [False, True])
def test_no_call_copies_the_corpus(normalize: bool) -> None:
    wide = np.zeros((4000, 600), np.float32)
    wide[:, :512] = RNG.standard_normal((4000, 512))
    for keys in (np.ascontiguousarray(wide[:, :512]), wide[:, :512], wide[::-1, :512]):
        queries = keys[:2].copy()
        for call in (
            lambda: ops.top_k(queries, keys, 5, normalize=normalize),  # noqa: B023
            lambda: ops.mmr_select(queries, keys, 5, relevance_weight=0.5, normalize=normalize),  # noqa: B023
            lambda: ops.segment_max_similarity(queries, keys, normalize=normalize),  # noqa: B023
        ):
            tracemalloc.start()
            call()
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < keys.nbytes // 20


def test_read_only_rows_are_read_where_they_are() -> None:
    keys = unit_rows(RNG, 30, 7)
    expected = ops.top_k(keys[:3], keys, 4)
    keys.flags.writeable = False
    found = ops.top_k(keys[:3], keys, 4)
    assert found.indices.tolist() == expected.indices.tolist()
    before = keys.copy()
    ops.mmr_select(keys[:3], keys, 4, relevance_weight=0.5, normalize=True)
    np.testing.assert_array_equal(keys, before)


def test_several_threads_read_the_same_rows() -> None:
    keys = unit_rows(RNG, 3000, 64)
    expected = [ops.top_k(keys[i : i + 3], keys, 7) for i in range(8)]
    wrong: list[int] = []

    def search(number: int) -> None:
        for _ in range(10):
            found = ops.top_k(keys[number : number + 3], keys, 7)
            same = (found.indices == expected[number].indices).all() and (found.scores == expected[number].scores).all()
            if not same:
                wrong.append(number)

    threads = [threading.Thread(target=search, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def _search_in_child(keys: np.ndarray, queue: Any) -> None:
    queue.put(ops.top_k(keys[:64], keys, 3).indices.tolist())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_an_op_works_in_a_forked_child_after_it_ran_on_threads() -> None:
    keys = unit_rows(RNG, 4000, 128)
    with ops.use(threads=3):
        expected = ops.top_k(keys[:64], keys, 3).indices.tolist()
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=_search_in_child, args=(keys, queue))
        child.start()
        try:
            assert queue.get(timeout=60) == expected
        finally:
            child.join(60)
