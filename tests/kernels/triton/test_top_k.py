"""top_k with Triton: the examples of the op, whole numbers bit for bit however work is cut, and what is flagged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

pytest.importorskip("torch")
pytest.importorskip("triton")

from prismem_core import ops
from prismem_core.kernels.triton import candidates, table, top_k
from prismem_core.kernels.triton.row_scales import row_scales
from prismem_core.ops.inputs import bfloat16_bits, special_rows, unit_rows
from tests.kernels.triton import calls, searches

# Partial sums of rows 7 and 8 of the special ones leave float32's range, and what follows depends on their order.
EXAMPLES = [
    example
    for example in ops.TOP_K.examples(np.random.default_rng(7))
    if example.label != "special" or example.arguments["normalize"]
]
SMALL = {"top_k": (16, 64, 16), "top_k masked": (32, 32, 16), "top_k unaligned": (16, 32, 32), "top_k one": (1, 32, 16)}


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles and splits even of few keys."""
    for op, sizes in SMALL.items():
        monkeypatch.setitem(table.INTERPRETED, op, table.Config(*sizes))
    monkeypatch.setattr(top_k, "PROGRAMS_PER_PROCESSOR", 3)


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.label for example in EXAMPLES])
def test_agrees_with_the_definition(example: ops.Example) -> None:
    call = ops.TOP_K.check(**example.arguments)
    noted = calls.flag() if call.raises else None
    assert ops.TOP_K.agrees(searches.cut(searches.hits(call, noted)), call) is None
    assert noted is None or noted.item() == calls.UNTOUCHED


@pytest.mark.parametrize("rows", ["all but sums that overflow", "those that overflow"])
def test_special_values(rows: str) -> None:
    special = special_rows()
    queries = np.delete(special, [7, 8], axis=0) if rows.startswith("all") else special[7:9]
    call = ops.TOP_K.check(queries, special, 9, nonfinite="skip")
    found = searches.cut(searches.hits(call))
    if rows.startswith("all"):
        assert ops.TOP_K.agrees(found, call) is None
    else:
        assert not np.isnan(found.scores).any()
        assert found.scores[0, 0] == np.inf


def whole(rng: np.random.Generator, count: int, dim: int) -> NDArray[np.float32]:
    """Whole numbers so small that every sum is exact, with -0.0 among them."""
    values = rng.integers(-3, 4, (count, dim)).astype(np.float32)
    values[values == 0] *= rng.choice([-1.0, 1.0])
    return values


def checked(values: NDArray[Any], keys: NDArray[Any], k: int, kind: str, **rest: Any) -> Any:
    if kind == "bfloat16":
        return ops.TOP_K.check(bfloat16_bits(values), bfloat16_bits(keys), k, dtype="bfloat16", **rest)
    return ops.TOP_K.check(values.astype(kind), keys.astype(kind), k, **rest)


@st.composite
def arguments(draw: st.DrawFn) -> Any:
    """A call with whole numbers: many ties and copies, and every way of leaving keys out."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, keys, dim = draw(st.sampled_from([1, 2, 17, 33])), draw(st.integers(1, 300)), draw(st.integers(1, 40))
    y = whole(rng, keys, dim)
    if draw(st.booleans()):
        y = y[rng.integers(0, max(keys // 8, 1), keys)]
    sharing = draw(st.sampled_from(["all", "private", "groups"]))
    segments = None
    if sharing == "private":
        segments = ops.Segments(np.sort(np.concatenate([[0, keys], rng.integers(0, keys + 1, count - 1)])))
    elif sharing == "groups":
        ranges = [(0, keys), (keys // 3, keys), (keys // 2, keys // 2), (0, (keys + 1) // 2)]
        segments = ops.Segments.grouped(ranges, rng.choice(4, count, p=[0.5, 0.3, 0.1, 0.1]))
    shape = draw(st.sampled_from([None, (keys,), (count, keys)]))
    rest = {
        "segments": segments,
        "mask": None if shape is None else rng.random(shape) < draw(st.sampled_from([0.1, 0.9])),
        "min_score": draw(st.sampled_from([None, -1.0, 3.0])),
    }
    kind = draw(st.sampled_from(["float32", "float16", "bfloat16"]))
    return checked(whole(rng, count, dim), y, draw(st.sampled_from([1, 3, 8, 40, 300])), kind, **rest)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(call=arguments(), programs=st.sampled_from([1, 3, 100]), piece=st.sampled_from([2**30, 90]), head=st.booleans())
def test_whole_numbers_give_exactly_the_definition(
    small_tiles: None, call: Any, programs: int, piece: int, head: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(top_k, "PROGRAMS_PER_PROCESSOR", programs)
        patch.setattr(top_k, "LARGEST_PIECE", piece)
        if head:
            patch.setattr(top_k, "HEAD_FRACTION", 3)
            patch.setattr(top_k, "LEAST_HEAD", 10)
        searches.identical(searches.hits(call, calls.flag()), ops.TOP_K.reference(call))


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("sharing", [True, False])
def test_splits_that_tell_each_other_of_scores_change_nothing(
    kind: str, sharing: bool, small_tiles: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(11)
    call = checked(whole(rng, 20, 16), np.repeat(whole(rng, 150, 16), 4, axis=0), 8, kind)
    if not sharing:
        from triton.runtime.interpreter import InterpreterBuilder

        def nothing(self: Any, operation: Any, pointer: Any, value: Any, mask: Any, *rest: Any) -> Any:
            return value

        monkeypatch.setattr(InterpreterBuilder, "create_atomic_rmw", nothing)
    searches.identical(searches.hits(call), ops.TOP_K.reference(call))


@pytest.mark.parametrize("segments", [None, ops.Segments([0, 0, 41, 300, 301, 500])])
@pytest.mark.parametrize("piece", [2**30, 64])
def test_more_hits_than_a_list_holds_are_sorted(
    segments: ops.Segments | None, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(12)
    masks = rng.random((5, 500)) < 0.8
    call = checked(whole(rng, 5, 9), whole(rng, 500, 9), 70, "float32", segments=segments, mask=masks, min_score=-4.0)
    expected = ops.TOP_K.reference(call)
    monkeypatch.setattr(top_k, "LARGEST_LIST", 64)
    monkeypatch.setattr(candidates, "LARGEST_LIST", 64)
    monkeypatch.setattr(top_k, "LARGEST_PIECE", piece)
    monkeypatch.setattr(top_k, "SCRATCH_BYTES", 2 * 500 * 8)  # two queries at a time
    noted = calls.flag()
    searches.identical(searches.hits(call, noted), expected)
    assert noted.item() == calls.UNTOUCHED


@pytest.mark.parametrize("k", [200, 257, 1000])
def test_long_lists_and_all_keys(k: int) -> None:
    rng = np.random.default_rng(13)
    call = checked(whole(rng, 3, 8), whole(rng, 900, 8), k, "float16")
    searches.identical(searches.hits(call), ops.TOP_K.reference(call))


def test_lists_are_merged_in_several_rounds(small_tiles: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_k, "PROGRAMS_PER_PROCESSOR", 1000)
    rng = np.random.default_rng(14)
    call = checked(whole(rng, 1, 4), whole(rng, 8000, 4), 30, "float16")
    searches.identical(searches.hits(call), ops.TOP_K.reference(call))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_rows_through_tensor_descriptors(kind: str, normalize: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(table.INTERPRETED, "top_k", table.Config(16, 64, 32, loads="descriptor"))
    rng = np.random.default_rng(15)
    scale = np.float32(1e-20 if normalize and kind != "float16" else 1)
    call = checked(unit_rows(rng, 21, 40), scale * unit_rows(rng, 333, 40), 7, kind, normalize=normalize)
    assert ops.TOP_K.agrees(searches.cut(searches.hits(call)), call) is None


@pytest.mark.parametrize("count", [1, 3, 40])
def test_the_first_pair_without_a_finite_score_is_flagged(count: int, small_tiles: None) -> None:
    rng = np.random.default_rng(16)
    queries, keys = whole(rng, count, 12), whole(rng, 200, 12)
    queries[:, 0] = 1
    keys[[50, 130], 0] = np.nan, np.inf
    mask = np.ones(200, bool)
    segments = ops.Segments.grouped([(0, 60), (100, 200)], [1] * (count - 1) + [0])
    for given_mask, given_segments, first in (
        (None, None, 50),
        (np.arange(200) > 50, None, 130),
        (mask, segments, 130 if count > 1 else 50),
        (~np.isnan(keys).any(axis=1) & ~np.isinf(keys).any(axis=1), None, None),
    ):
        rest = {"mask": given_mask, "segments": given_segments, "min_score": 1e30}
        call = ops.TOP_K.check(queries, keys, 5, **rest)
        noted = calls.flag()
        searches.hits(call, noted)
        assert noted.item() == (calls.UNTOUCHED if first is None else first)
    call = ops.TOP_K.check(queries, keys, 5, nonfinite="skip")
    searches.identical(searches.hits(call), ops.TOP_K.reference(call))


def test_a_flag_of_sorted_hits_counts_from_the_first_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_k, "SCRATCH_BYTES", 2 * 400 * 8)
    rng = np.random.default_rng(17)
    queries, keys = whole(rng, 5, 6), whole(rng, 400, 6)
    queries[3:] = np.nan
    noted = calls.flag()
    searches.hits(ops.TOP_K.check(queries, keys, 300), noted)
    assert noted.item() == 3 * 400


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("count", [1, 5])
def test_cosines_of_rows_of_any_length(kind: str, count: int) -> None:
    rng = np.random.default_rng(18)
    lengths = np.float32(10.0) ** rng.integers(-37, 37, 300)
    queries, keys = unit_rows(rng, count, 24), lengths[:, None].astype(np.float32) * unit_rows(rng, 300, 24)
    queries *= np.float32([1e38, 1e-37, 1, 1e19, 0][:count])[:, None]
    keys[7] = 0
    call = checked(queries, keys, 20, kind, normalize=True)
    assert ops.TOP_K.agrees(searches.cut(searches.hits(call)), call) is None
    scales = row_scales(calls.tensor(call.keys), device=calls.DEVICE)
    searches.identical(searches.hits(call, key_scales=scales), searches.hits(call))


def test_rows_at_any_distance() -> None:
    rng = np.random.default_rng(19)
    queries, wide = whole(rng, 18, 32), whole(rng, 90, 64)
    for keys in (wide[:, 3:35], wide[::3, :32], np.broadcast_to(wide[:1, :32], (50, 32))):
        mask = (rng.random((2 * len(queries), 3 * len(keys))) < 0.5)[::2, ::3]
        call = ops.TOP_K.check(queries, keys, 6, mask=mask)
        searches.identical(searches.hits(call), ops.TOP_K.reference(call))


def test_a_batch_gives_what_its_queries_give_one_by_one() -> None:
    rng = np.random.default_rng(20)
    call = checked(whole(rng, 18, 16), whole(rng, 300, 16), 9, "float16")
    together = searches.hits(call)
    for row in (0, 7, 17):
        alone = searches.hits(replace(call, queries=replace(call.queries, data=call.queries.data[row : row + 1])))
        searches.identical(alone, type(together)(*(part[row : row + 1] for part in together)))
