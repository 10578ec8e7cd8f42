"""The native selections skip what cannot win: their picks and scores are still those of the plain loop, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from prismem_core import ops
from prismem_core.ops.inputs import bfloat16_bits, layouts, unit_rows
from tests.ops.conftest import skip_unless_runnable

Array = NDArray[Any]
NATIVE = ("cpu/portable", "cpu/avx2", "cpu/avx512")


@pytest.fixture(params=NATIVE)
def native(request: pytest.FixtureRequest) -> str:
    skip_unless_runnable(request.param)
    return str(request.param)


def plain_loop(
    relevance: Array, similarity: Array, candidates: Array, k: int, weight: float
) -> tuple[list[int], list[np.float32]]:
    """Every candidate against every pick, in the order of the definition; similarity[pick, candidate]."""
    left = np.zeros(len(relevance), np.bool_)
    left[candidates] = True
    penalty = np.full(len(relevance), -np.inf)
    picks: list[int] = []
    scores: list[np.float32] = []
    while len(picks) < min(k, len(candidates)):
        values = weight * relevance - (1.0 - weight) * penalty if picks else relevance
        pick = int(np.where(left, values, -np.inf).argmax())
        scores.append(np.float32(values[pick] if picks else weight * values[pick]))
        picks.append(pick)
        left[pick] = False
        penalty = np.maximum(penalty, similarity[pick])
    return picks, scores


def assert_exact(
    queries: Array,
    keys: Array,
    k: int,
    *,
    weight: float,
    normalize: bool,
    mask: Array | None = None,
    least: float | None = None,
    dtype: str | None = None,
) -> None:
    """What the op picks is what the plain loop picks from the scores that `similarity` gives, and has the same bits."""
    found = ops.mmr_select(
        queries, keys, k, relevance_weight=weight, normalize=normalize, mask=mask, min_relevance=least, dtype=dtype
    )
    relevance = ops.similarity(queries, keys, normalize=normalize, dtype=dtype)
    similarity = ops.similarity(keys, keys, normalize=normalize, dtype=dtype).astype(np.float64)
    for row in range(len(queries)):
        allowed = np.ones(len(keys), np.bool_) if mask is None else mask if mask.ndim == 1 else mask[row]
        enough = np.ones(len(keys), np.bool_) if least is None else relevance[row] >= np.float32(least)
        picks, scores = plain_loop(
            relevance[row].astype(np.float64), similarity, np.flatnonzero(allowed & enough), k, weight
        )
        count = int(found.counts[row])
        assert found.indices[row, :count].tolist() == picks
        assert found.scores[row, :count].tobytes() == np.array(scores, np.float32).tobytes()


def near_rows(rng: np.random.Generator, count: int, dim: int) -> tuple[Array, Array]:
    """One query (1, d) and what a search finds for it: rows of length 1 near it, in clusters of about 12."""
    query = unit_rows(rng, 1, dim)
    centres = unit_rows(rng, max(2, count // 12), dim)
    rows = query * rng.uniform(0.6, 1.0, (count, 1)) + 0.7 * centres[rng.integers(0, len(centres), count)]
    rows = rows + 0.5 * unit_rows(rng, count, dim)
    return query, np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def test_thousands_of_small_selections(native: str) -> None:
    rng = np.random.default_rng(21)
    with ops.use(native, threads=1):
        for round_number in range(1500):
            count, dim, k = (int(rng.integers(1, most)) for most in (70, 40, 80))
            keys = unit_rows(rng, count, dim)
            if round_number % 3 == 0:
                keys = keys[rng.integers(0, count, count)]  # duplicates
            if round_number % 3 == 1:
                keys = np.round(2 * rng.standard_normal((count, dim))).astype(np.float32)  # scores that are equal
            queries = keys[:1] + (0 if round_number % 2 else unit_rows(rng, 2, dim))
            assert_exact(
                queries.astype(np.float32),
                keys,
                k,
                weight=(0.0, 0.5, 0.7, 1.0, float(rng.random()))[round_number % 5],
                normalize=round_number % 7 < 4,
                mask=rng.random(count) < 0.7 if round_number % 4 == 0 else None,
                least=0.0 if round_number % 11 == 0 else None,
            )


def scaled_rows(rng: np.random.Generator, rows: Array) -> Array:
    return rows * rng.uniform(1e-3, 1e3, (len(rows), 1)).astype(np.float32)


def with_zero_rows(rng: np.random.Generator, rows: Array) -> Array:
    return rows * (rng.random((len(rows), 1)) < 0.8).astype(np.float32)


def with_a_spike(rng: np.random.Generator, rows: Array) -> Array:
    spiked = rows.copy()
    spiked[:, 0] += 30 * rng.random(len(rows), np.float32)
    return spiked


POOLS: dict[str, Callable[[np.random.Generator, Array], Array]] = {
    "clustered": lambda _, rows: rows,
    "all lengths": scaled_rows,
    "zero rows": with_zero_rows,
    "duplicates": lambda rng, rows: rows[rng.integers(0, len(rows) // 8, len(rows))],
    "one row many times": lambda _, rows: np.repeat(rows[:1], len(rows), axis=0),
    "whole numbers": lambda _, rows: np.round(9 * rows),
    "one large dimension": with_a_spike,
    "lengths beyond the sketch": lambda _, rows: rows * np.float32(1e12),
    "smallest lengths": lambda _, rows: rows * np.float32(1e-13),
    "lengths beyond float sums": lambda _, rows: np.where(np.arange(len(rows))[:, None] % 2, rows, rows * 1e-22),
}


@pytest.mark.parametrize("pool", list(POOLS))
@pytest.mark.parametrize("normalize", [False, True])
def test_large_pools(native: str, pool: str, normalize: bool) -> None:
    rng = np.random.default_rng(22)
    with ops.use(native, threads=1):
        for count, k, dim, weight in (
            (530, 90, 16, 0.5),
            (641, 150, 33, 0.3),
            (150, 150, 70, 0.6),
            (520, 80, 130, 0.9),
        ):
            query, rows = near_rows(rng, count, dim)
            assert_exact(query, POOLS[pool](rng, rows).astype(np.float32), k, weight=weight, normalize=normalize)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_large_pools_at_the_ends_of_the_weight(native: str, weight: float) -> None:
    rng = np.random.default_rng(23)
    query, rows = near_rows(rng, 600, 48)
    with ops.use(native, threads=1):
        assert_exact(query, rows, 600, weight=weight, normalize=True)
        assert_exact(query, np.round(4 * rows), 600, weight=weight, normalize=False)


def test_large_pools_of_every_kind_stride_and_filter(native: str) -> None:
    rng = np.random.default_rng(24)
    query, rows = near_rows(rng, 700, 40)
    with ops.use(native, threads=1):
        assert_exact(query, rows.astype(np.float16), 120, weight=0.5, normalize=True)
        assert_exact(bfloat16_bits(query), bfloat16_bits(rows), 120, weight=0.5, normalize=False, dtype="bfloat16")
        for _, laid in layouts(rows):
            assert_exact(query, laid, 80, weight=0.6, normalize=True)
        assert_exact(query, rows, 100, weight=0.5, normalize=True, mask=rng.random(700) < 0.9)
        assert_exact(query, rows, 100, weight=0.5, normalize=True, least=0.5)


def test_ragged_pools_of_both_ways_in_one_call(native: str) -> None:
    rng = np.random.default_rng(25)
    lengths = [0, 640, 3, 129, 700, 1, 60]
    found = [near_rows(rng, max(length, 1), 36) for length in lengths]
    queries = np.concatenate([query for query, _ in found])
    keys = np.concatenate([rows[:length] for (_, rows), length in zip(found, lengths, strict=True)])
    segments = ops.Segments.from_lengths(lengths)
    with ops.use(native, threads=3):
        together = ops.mmr_select(queries, keys, 90, relevance_weight=0.4, normalize=True, segments=segments)
    with ops.use(native, threads=1):
        for row, (query, rows) in enumerate(found):
            alone = ops.mmr_select(query, rows[: lengths[row]], 90, relevance_weight=0.4, normalize=True)
            count = int(together.counts[row])
            assert count == min(90, lengths[row]) == int(alone.counts[0])
            assert together.indices[row, :count].tolist() == alone.indices[0].tolist()
            assert together.scores[row, :count].tobytes() == alone.scores[0].tobytes()


def test_instruction_sets_of_fused_products_give_the_same_bits() -> None:
    rng = np.random.default_rng(26)
    query, rows = near_rows(rng, 700, 100)
    results = []
    for variant in ("cpu/avx2", "cpu/avx512"):
        skip_unless_runnable(variant)
        with ops.use(variant):
            results.append(ops.mmr_select(query, rows, 200, relevance_weight=0.5, normalize=True))
    assert [part.tobytes() for part in results[0]] == [part.tobytes() for part in results[1]]


@pytest.mark.parametrize("count", [40, 700])
def test_scores_that_are_not_finite_are_never_skipped_over(native: str, count: int) -> None:
    rng = np.random.default_rng(27)
    keys = rng.integers(-3, 4, (count, 6)).astype(np.float32)
    keys[::9, 0] = np.inf
    keys[::11, 1] = -np.inf
    keys[::13, 2] = np.nan
    keys[::17] *= np.float32(1e38)  # relevance is finite, similarity is not
    query = np.array([[0.0, 0.0, 0.0, 1.0, -1.0, 1.0], [1.0, 1.0, 0.0, 1.0, -1.0, 1.0]], np.float32)
    for weight in (0.0, 0.5, 1.0):
        arguments: dict[str, Any] = {"k": 150, "relevance_weight": weight, "nonfinite": "skip"}
        with ops.use("reference"):
            expected = ops.mmr_select(query, keys, **arguments)
        with ops.use(native):
            found = ops.mmr_select(query, keys, **arguments)
        for part, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(part, wanted)


def test_given_similarities_thousands_of_times(native: str) -> None:
    rng = np.random.default_rng(28)
    with ops.use(native, threads=1):
        for round_number in range(1500):
            count, k = int(rng.integers(1, 60)), int(rng.integers(1, 70))
            weight = (0.0, 0.5, 1.0, float(rng.random()))[round_number % 4]
            levels = (3, 1000)[round_number % 2]  # many equal scores, or few
            relevance = (rng.integers(-levels, levels + 1, (1, count)) / levels).astype(np.float32)
            similarity = (rng.integers(-levels, levels + 1, (count, count)) / levels).astype(np.float32)
            found = ops.mmr_select_from(relevance, similarity, k, relevance_weight=weight)
            picks, scores = plain_loop(
                relevance[0].astype(np.float64), similarity.T.astype(np.float64), np.arange(count), k, weight
            )
            assert found.indices[0].tolist() == picks
            assert found.scores[0].tobytes() == np.array(scores, np.float32).tobytes()
