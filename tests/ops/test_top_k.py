"""top_k: golden vectors, ties, filters, thresholds, values that are not finite, errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismem_core import ops
from prismem_core.errors import ArgumentError
from prismem_core.ops.inputs import bfloat16_bits, unit_rows
from tests.ops.conftest import numbers

# Large scores: a float32 above 8 has no neighbour within 1e-6.
SCORES = {"rtol": 2.0**-22, "atol": 1e-6}


def as_rows(values: list[Any], dim: int) -> np.ndarray:
    return np.array(numbers(values), np.float32).reshape(len(values), dim)


@pytest.mark.usefixtures("backend")
def test_golden_float(golden: Callable[[str], Any]) -> None:
    cases = golden("topk")["float"]
    assert cases
    for case in cases:
        query = as_rows([case["query"]], len(case["query"]))
        keys = as_rows(case["rows"], len(case["query"]))
        mask = None if case["mask"] is None else np.array(case["mask"], np.bool_)
        found = ops.top_k(query, keys, case["k"], normalize=case["normalize"], mask=mask, nonfinite="skip")
        assert found.indices[0].tolist() == case["expect"]["indices"], case["name"]
        np.testing.assert_allclose(found.scores[0], numbers(case["expect"]["scores"]), **SCORES)
        assert found.counts.tolist() == [len(case["expect"]["indices"])]


@pytest.mark.usefixtures("backend")
def test_golden_low_precision(golden: Callable[[str], Any]) -> None:
    cases = golden("topk")["low_precision"]
    assert cases
    for case in cases:
        bits, query = np.array(case["rows_bits"], np.uint16), np.array([case["query_bits"]], np.uint16)
        dtype = "bfloat16"
        if case["dtype"] == "fp16":
            bits, query, dtype = bits.view(np.float16), query.view(np.float16), None
        every = ops.similarity(query, bits, dtype=dtype)
        np.testing.assert_allclose(every[0], case["expect"]["all_scores"], rtol=0, atol=1e-5)
        found = ops.top_k(query, bits, case["k"], dtype=dtype)
        assert found.indices[0].tolist() == case["expect"]["indices"]
        np.testing.assert_allclose(found.scores[0], case["expect"]["scores"], rtol=0, atol=1e-5)


@pytest.mark.usefixtures("backend")
def test_golden_ragged(golden: Callable[[str], Any]) -> None:
    cases = golden("topk")["ragged"]
    assert cases
    for case in cases:
        queries = np.array(case["queries"], np.float32)
        keys = np.concatenate([as_rows(rows, queries.shape[1]) for rows in case["rows"]])
        segments = ops.Segments.from_lengths([len(rows) for rows in case["rows"]])
        found = ops.top_k(queries, keys, case["k"], normalize=case["normalize"], segments=segments)
        for row, expect in enumerate(case["expect"]):
            count = int(found.counts[row])
            width = found.indices.shape[1]
            assert count == sum(index >= 0 for index in expect["indices"])
            assert found.indices[row].tolist() == expect["indices"][:width]
            np.testing.assert_allclose(found.scores[row], numbers(expect["scores"])[:width], **SCORES)


@pytest.mark.usefixtures("backend")
def test_ties_go_to_the_lowest_index_wherever_the_row_lies() -> None:
    keys = np.zeros((300, 9), np.float32)
    keys[[5, 64, 127, 128, 129, 299]] = np.linspace(-1, 2, 9, dtype=np.float32)
    query = np.linspace(1, 2, 9, dtype=np.float32)[None]
    for normalize in (False, True):
        found = ops.top_k(query, keys, 8, normalize=normalize)
        assert found.indices.tolist() == [[5, 64, 127, 128, 129, 299, 0, 1]]
        assert len(set(found.scores[0, :6].tolist())) == 1


@pytest.mark.usefixtures("backend")
def test_more_than_there_is_and_nothing() -> None:
    keys = np.eye(3, dtype=np.float32)
    assert ops.top_k(keys, keys, 10**30).indices.tolist() == [[0, 1, 2], [1, 0, 2], [2, 0, 1]]
    for queries, some, k, shape in ((keys, keys, 0, (3, 0)), (keys[:0], keys, 2, (0, 2)), (keys, keys[:0], 2, (3, 0))):
        found = ops.top_k(queries, some, k)
        assert found.scores.shape == found.indices.shape == shape
        assert found.counts.tolist() == [0] * len(queries)


@pytest.mark.usefixtures("backend")
def test_filters_come_before_the_selection() -> None:
    keys = np.arange(100, dtype=np.float32)[:, None]
    query = np.ones((1, 1), np.float32)
    low = np.arange(100) < 3
    assert ops.top_k(query, keys, 3, mask=low).indices.tolist() == [[2, 1, 0]]
    assert ops.top_k(query, keys, 3, mask=low, min_score=1.0).indices.tolist() == [[2, 1]]
    assert ops.top_k(query, keys, 3, mask=low & False).indices.shape == (1, 0)


@pytest.mark.usefixtures("backend")
def test_min_score_is_inclusive_in_the_score_the_caller_sees() -> None:
    keys = np.array([[0.7], [0.69], [0.71]], np.float32)
    found = ops.top_k(np.ones((1, 1), np.float32), keys, 3, min_score=0.7)
    assert found.indices.tolist() == [[2, 0]]
    assert (found.scores >= 0.7).all()
    assert ops.top_k(np.ones((1, 1), np.float32), keys, 3, min_score=float("inf")).counts.tolist() == [0]
    assert ops.top_k(np.ones((1, 1), np.float32), keys, 3, min_score=-float("inf")).counts.tolist() == [3]


@pytest.mark.usefixtures("backend")
def test_a_row_that_is_not_finite_is_named() -> None:
    queries, keys = np.ones((3, 4), np.float32), np.ones((200, 4), np.float32)
    keys[150, 2] = np.nan
    with pytest.raises(ArgumentError, match="keys: row 150 holds NaN"):
        ops.top_k(queries, keys, 2)
    assert ops.top_k(queries, keys, 2, mask=np.arange(200) != 150).counts.tolist() == [2, 2, 2]
    assert ops.top_k(queries, keys, 200, nonfinite="skip").counts.tolist() == [199, 199, 199]
    segments = ops.Segments.grouped([(0, 150), (140, 200)], [0, 0, 0])
    assert ops.top_k(queries, keys, 2, segments=segments).counts.tolist() == [2, 2, 2]
    with pytest.raises(ArgumentError, match="keys: row 150 holds NaN"):
        ops.top_k(queries, keys, 2, segments=ops.Segments.grouped([(0, 150), (140, 200)], [0, 0, 1]))
    queries[1, 0] = np.inf
    with pytest.raises(ArgumentError, match="queries: row 1 holds NaN or infinity"):
        ops.top_k(queries, keys[:100], 2)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(("groups", "named"), [([0, 1, 1], 20), ([1, 0, 0], 150)])
def test_of_several_bad_rows_the_first_query_names_its_own(groups: list[int], named: int) -> None:
    queries, keys = np.ones((3, 4), np.float32), np.ones((200, 4), np.float32)
    keys[[20, 150, 160]] = np.nan
    segments = ops.Segments([0, 100, 200], groups)
    calls = (
        lambda: ops.top_k(queries, keys, 2, segments=segments),
        lambda: ops.mmr_select(queries, keys, 2, relevance_weight=0.5, segments=segments),
        lambda: ops.segment_max_similarity(queries, keys, segments),
    )
    for call in calls:
        with pytest.raises(ArgumentError, match=f": row {named} holds NaN"):
            call()


@pytest.mark.usefixtures("backend")
def test_a_product_beyond_float32_is_told_apart() -> None:
    big = np.full((1, 2), 3e38, np.float32)
    with pytest.raises(ArgumentError, match="too large for float32"):
        ops.top_k(big, big, 1)
    assert ops.top_k(big, big, 1, nonfinite="skip").scores.tolist() == [[np.inf]]
    assert ops.top_k(big, big, 1, normalize=True).scores[0, 0] == pytest.approx(1.0, abs=1e-6)
    canceling = np.array([[3e38, -3e38]], np.float32)
    assert ops.top_k(big, canceling, 1).scores.tolist() == [[0.0]]


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1.0, 1e20, 1e30])
def test_cosines_do_not_depend_on_lengths(scale: float) -> None:
    rng = np.random.default_rng(2)
    queries, keys = rng.standard_normal((3, 21)), rng.standard_normal((30, 21))
    plain = ops.top_k(queries.astype(np.float32), keys.astype(np.float32), 5, normalize=True)
    scaled = ops.top_k((scale * queries).astype(np.float32), (scale * keys).astype(np.float32), 5, normalize=True)
    assert scaled.indices.tolist() == plain.indices.tolist()
    np.testing.assert_allclose(scaled.scores, plain.scores, rtol=0, atol=2e-6)


@pytest.mark.usefixtures("backend")
def test_cosines_never_pass_one() -> None:
    rows = np.random.default_rng(4).standard_normal((200, 13)).astype(np.float32)
    scores = ops.similarity(np.concatenate([rows, -rows]), rows, normalize=True)
    assert scores.max() <= 1.0
    assert scores.min() >= -1.0


KINDS = ("float32", "float16", "bfloat16")
FUSING_SETS = ("avx2", "avx512")
"""The sets with fused multiply-adds: their scores are the same to the last bit."""


def of_kind(values: np.ndarray, kind: str) -> tuple[np.ndarray, str | None]:
    """Rows of a kind, and the word for what their bits mean."""
    if kind == "bfloat16":
        return bfloat16_bits(values), "bfloat16"
    return values.astype(kind), None


def one_by_one(scores: np.ndarray, k: int, allowed: np.ndarray, least: float | None) -> tuple[list[int], list[float]]:
    """The hits of a row of scores, by sorting all of them."""
    eligible = allowed & ~np.isnan(scores)
    if least is not None:
        eligible &= scores >= np.float32(least)
    index = np.flatnonzero(eligible)
    order = index[np.argsort(-scores[index].astype(np.float64), kind="stable")][:k]
    return order.tolist(), scores[order].tolist()


@pytest.mark.parametrize("variant", list(ops.instruction_sets()))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("count", "dim"), [(1, 8), (1, 21), (2, 16), (3, 40), (5, 9), (7, 64), (13, 24), (49, 32), (60, 7)]
)
def test_selection_inside_is_a_sort_of_all_scores(variant: str, kind: str, count: int, dim: int) -> None:
    """Every width of tile, every tail, rows in place and copied: the scores are those of `similarity`, batch or not."""
    rng = np.random.default_rng(count * 1000 + dim)
    queries, (keys, dtype) = (
        rng.standard_normal((count, dim)).astype(np.float32),
        of_kind(unit_rows(rng, 700, dim), kind),
    )
    queries, _ = of_kind(queries, kind)
    masks = (None, rng.random(700) < 0.6, rng.random((count, 700)) < 0.3)
    with ops.use(f"cpu/{variant}", threads=1):
        for normalize in (False, True):
            scores = ops.similarity(queries, keys, normalize=normalize, dtype=dtype)
            single = [
                ops.similarity(queries[i : i + 1], keys, normalize=normalize, dtype=dtype)[0] for i in range(count)
            ]
            assert scores.tobytes() == np.stack(single).tobytes()
            for k, mask, least in itertools.product((1, 10, 129, 700), masks, (None, 0.05)):
                found = ops.top_k(queries, keys, k, normalize=normalize, mask=mask, min_score=least, dtype=dtype)
                for row in range(count):
                    allowed = np.ones(700, np.bool_) if mask is None else mask if mask.ndim == 1 else mask[row]
                    hits = int(found.counts[row])
                    expected = one_by_one(scores[row], k, allowed, least)
                    assert (found.indices[row, :hits].tolist(), found.scores[row, :hits].tolist()) == expected


@pytest.mark.skipif(not set(FUSING_SETS) <= set(ops.instruction_sets()), reason="not on this CPU")
@pytest.mark.parametrize("kind", KINDS)
def test_sets_with_fused_products_agree_bit_for_bit(kind: str) -> None:
    rng = np.random.default_rng(8)
    for count, dim in ((1, 384), (1, 5), (3, 100), (8, 384), (50, 129), (64, 1024)):
        queries, (keys, dtype) = unit_rows(rng, count, dim), of_kind(rng.standard_normal((300, dim)), kind)
        for normalize in (False, True):
            results = []
            for variant in FUSING_SETS:
                with ops.use(f"cpu/{variant}"):
                    scores = ops.similarity(queries, keys, normalize=normalize, dtype=dtype)
                    found = ops.top_k(queries, keys, 20, normalize=normalize, dtype=dtype)
                    results.append([scores.tobytes(), *(part.tobytes() for part in found)])
            assert results[0] == results[1], (count, dim, normalize)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("count", [1, 4, 50])
def test_ties_at_the_last_place_keep_the_first_rows(count: int) -> None:
    """A late row that ties with the worst hit must not replace it; one that is better by a bit must."""
    keys = np.full((1000, 16), 1.0, np.float32)
    keys[:, 0] = 0.0
    keys[[100, 500, 900], 0] = 1.0
    keys[[300, 700], 0] = np.float32(2.0**-18)
    found = ops.top_k(np.ones((count, 16), np.float32), keys, 8)
    assert found.indices.tolist() == [[100, 500, 900, 300, 700, 0, 1, 2]] * count
    copies = np.repeat(np.linspace(1, 2, 16, dtype=np.float32)[None], 600, axis=0)
    for normalize in (False, True):
        found = ops.top_k(copies[:count], copies, 5, normalize=normalize)
        assert found.indices.tolist() == [[0, 1, 2, 3, 4]] * count


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("count", [1, 3, 50])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_late_row_that_is_not_finite_is_named_although_it_could_be_no_hit(count: int, value: float) -> None:
    queries, keys = np.ones((count, 24), np.float32), np.full((900, 24), 0.5, np.float32)
    keys[:10] = 9.0
    keys[[777, 850], 3] = value
    for normalize in (False, True):
        with pytest.raises(ArgumentError, match="keys: row 777 holds NaN or infinity"):
            ops.top_k(queries, keys, 3, normalize=normalize)
    found = ops.top_k(queries, keys, 900, nonfinite="skip")
    last = {True: 898, False: 900}[bool(np.isnan(value))]
    assert found.counts.tolist() == [last] * count
    if value == np.inf:
        assert found.indices[:, :2].tolist() == [[777, 850]] * count
    if value == -np.inf:
        assert found.indices[:, -2:].tolist() == [[777, 850]] * count
        assert (found.scores[:, -2:] == -np.inf).all()
        assert ops.top_k(queries, keys, 900, nonfinite="skip", min_score=-3e38).counts.tolist() == [898] * count


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("least", [-1.0, 0.0, -0.0, 1.0, 1e-45, -1e-45])
def test_min_score_is_inclusive_at_the_edge_of_every_cosine(least: float) -> None:
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((300, 33)).astype(np.float32)
    keys = np.concatenate([rows, -rows, np.zeros((4, 33), np.float32)])
    scores = ops.similarity(rows[:9], keys, normalize=True)
    found = ops.top_k(rows[:9], keys, len(keys), normalize=True, min_score=least)
    assert found.counts.tolist() == (scores >= np.float32(least)).sum(axis=1).tolist()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whole_numbers_give_exactly_the_definition(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    m, n, d = (data.draw(st.integers(0, limit)) for limit in (5, 300, 20))
    queries, keys = rng.integers(-2, 3, (m, d)).astype(np.float32), rng.integers(-2, 3, (n, d)).astype(np.float32)
    mask = data.draw(st.sampled_from([None, rng.random(n) < 0.5, rng.random((m, n)) < 0.5]))
    segments = None
    if data.draw(st.booleans()):
        segments = ops.Segments(np.sort(rng.integers(0, n + 1, m + 1)))
    arguments: dict[str, Any] = {
        "k": data.draw(st.integers(0, 320)),
        "mask": mask,
        "segments": segments,
        "min_score": data.draw(st.sampled_from([None, -1.0, 0.0, 2.0])),
    }
    with ops.use("reference"):
        expected = ops.top_k(queries, keys, **arguments)
    for variant in ops.instruction_sets():
        with ops.use(f"cpu/{variant}"):
            found = ops.top_k(queries, keys, **arguments)
        for part, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(part, wanted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": -1}, "k: expected a whole number of at least 0, got -1"),
        ({"k": 1.5}, "k: expected"),
        ({"k": True}, "k: expected"),
        ({"queries": np.zeros(3, np.float32)}, r"queries: expected two axes .* pass queries\[None, :\]"),
        ({"keys": np.zeros((4, 2), np.float32)}, r"keys: expected 3 dimensions, as queries has, got 2"),
        ({"keys": [[1.0, 2.0, 3.0]]}, "keys: expected an array .* got list"),
        ({"mask": np.zeros(4)}, "mask: expected bool, got float64"),
        ({"mask": np.zeros(5, np.bool_)}, r"mask: expected shape \(4,\) or \(2, 4\)"),
        ({"segments": [0, 4]}, "segments: expected ops.Segments"),
        ({"segments": ops.Segments([0, 4])}, "segments: made for 1 rows, but queries has 2"),
        ({"segments": ops.Segments([0, 4, 5])}, "segments: a range ends at 5, but keys has 4 rows"),
        ({"min_score": float("nan")}, "min_score: .* NaN"),
        ({"min_score": "0"}, "min_score: expected a number"),
        ({"nonfinite": "ignore"}, 'nonfinite: expected "raise" or "skip"'),
        ({"normalize": 1}, "normalize: expected True or False"),
        ({"dtype": "float16"}, "dtype: expected None or"),
        ({"keys": np.ma.masked_array(np.zeros((4, 3), np.float32))}, "keys: a masked array"),
    ],
)
def test_errors_name_the_argument(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"queries": np.zeros((2, 3), np.float32), "keys": np.zeros((4, 3), np.float32), "k": 1}
    with pytest.raises(ArgumentError, match=message):
        ops.top_k(**{**arguments, **change})
