"""segment_max_similarity with codes gives what it gives without them, bit for bit, on every instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismem_core import ops
from prismem_core.errors import ArgumentError
from prismem_core.ops.inputs import bfloat16_bits, layouts, special_rows, unit_rows

KINDS = ("isotropic", "mixture", "repeated", "near", "lengths", "spikes", "whole", "zeros")


def rows_of_kind(rng: np.random.Generator, kind: str, count: int, dim: int) -> np.ndarray[Any, Any]:
    rows = rng.standard_normal((count, dim))
    if kind == "mixture":
        rows = 0.5 * rows + rng.standard_normal((20, dim))[rng.integers(0, 20, count)] + rng.standard_normal(dim)
    elif kind == "repeated":
        rows = rng.standard_normal((3, dim))[rng.integers(0, 3, count)]
    elif kind == "near":
        rows = rng.standard_normal((1, dim)) + 1e-4 * rows
    elif kind == "lengths":
        rows *= 10.0 ** rng.integers(-18, 17, (count, 1))
    elif kind == "spikes":
        rows = np.where(rng.random((count, dim)) < 0.02, 50 * rows, 0.01 * rows)
    elif kind == "whole":
        rows = np.round(rows)
    elif kind == "zeros":
        rows[rng.random(count) < 0.5] = 0.0
    return rows.astype(np.float32)


def check(evidence: Any, items: Any, segments: ops.Segments | None, **arguments: Any) -> None:
    """Codes change neither values nor indices, whoever made them, and with any number of threads."""
    normalize, dtype = arguments.get("normalize", False), arguments.get("dtype")
    for variant in ops.instruction_sets():
        with ops.use(f"cpu/{variant}", threads=1):
            expected = ops.segment_max_similarity(evidence, items, segments, **arguments)
            encoded = ops.encode(items, normalize=normalize, dtype=dtype)
        for threads in (1, 3):
            with ops.use(f"cpu/{variant}", threads=threads):
                found = ops.segment_max_similarity(evidence, encoded, segments, **arguments)
            for part, wanted in zip(found, expected, strict=True):
                np.testing.assert_array_equal(np.asarray(part).view(np.uint8), np.asarray(wanted).view(np.uint8))


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_codes_change_no_bit(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    dim = data.draw(st.sampled_from([1, 2, 3, 7, 8, 9, 16, 17, 31, 40, 64, 96, 100, 129]))
    kind = data.draw(st.sampled_from(KINDS))
    groups = data.draw(st.sampled_from([1, 3, 12, 40]))
    lengths = rng.integers(0, data.draw(st.sampled_from([2, 20, 60, 330])), groups)
    lengths[rng.random(groups) < 0.1] = 0
    items = rows_of_kind(rng, kind, int(lengths.sum()), dim)
    if data.draw(st.booleans()):  # private sets
        segments = ops.Segments.from_lengths(lengths)
        evidence = rows_of_kind(rng, kind, groups, dim)
    else:  # shared sets, some of them nobody's
        count = data.draw(st.sampled_from([0, 1, 2, 5, 14, 60, 130]))
        segments = ops.Segments.from_lengths(lengths, rng.integers(0, groups, count))
        evidence = rows_of_kind(rng, kind, count, dim)
    if len(items) and len(evidence) and data.draw(st.booleans()):
        evidence[: len(evidence) // 2] = items[rng.integers(0, len(items), len(evidence) // 2)]
    check(evidence, items, segments, normalize=data.draw(st.booleans()))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("kinds", ["half items", "half evidence", "bfloat"])
def test_kinds_of_rows(kinds: str, normalize: bool) -> None:
    rng = np.random.default_rng(17)
    lengths = rng.integers(0, 90, 60)
    items, evidence = unit_rows(rng, int(lengths.sum()), 72), unit_rows(rng, 60, 72)
    segments = ops.Segments.from_lengths(lengths)
    groups = ops.Segments.from_lengths(lengths, np.repeat(np.arange(6), 10))
    for cut in (segments, groups):
        if kinds == "half items":
            check(evidence, items.astype(np.float16), cut, normalize=normalize)
        elif kinds == "half evidence":
            check(evidence.astype(np.float16), items, cut, normalize=normalize)
        else:
            check(bfloat16_bits(evidence), bfloat16_bits(items), cut, normalize=normalize, dtype="bfloat16")


@pytest.mark.parametrize("normalize", [False, True])
def test_every_layout_of_rows(normalize: bool) -> None:
    rng = np.random.default_rng(19)
    items, evidence = unit_rows(rng, 150, 24), unit_rows(rng, 9, 24)
    segments = ops.Segments.grouped([(0, 150), (5, 6), (7, 40), (33, 149)], [0, 0, 0, 0, 1, 2, 2, 3, 3])
    for _, laid in layouts(items):
        check(evidence, laid, segments, normalize=normalize)
    for _, laid in layouts(evidence):
        check(laid, items, segments, normalize=normalize)


@pytest.mark.parametrize("shared", [False, True])
def test_segments_anywhere(shared: bool) -> None:
    rng = np.random.default_rng(23)
    items = unit_rows(rng, 700, 40)
    items[100:200] = items[300:400]
    ranges = [(begin, begin + length) for begin in range(40) for length in (0, 1, 2, 15, 16, 17, 33, 256, 257, 600)]
    ranges += [(700 - length, 700) for length in (0, 1, 5, 16, 31, 700)]
    groups = np.repeat(np.arange(len(ranges)), 4 if shared else 1)
    check(unit_rows(rng, len(groups), 40), items, ops.Segments.grouped(ranges, groups))


def test_one_segment_of_all_items() -> None:
    rng = np.random.default_rng(29)
    items = unit_rows(rng, 3000, 64)
    for count in (1, 2, 3, 47, 48, 49, 200):
        check(unit_rows(rng, count, 64), items, None)


@pytest.mark.parametrize("normalize", [False, True])
def test_ties_go_to_the_first_item(normalize: bool) -> None:
    rng = np.random.default_rng(31)
    row = unit_rows(rng, 1, 50)
    items = np.repeat(row, 400, axis=0)
    evidence = np.concatenate([row, unit_rows(rng, 5, 50)])
    segments = ops.Segments.grouped([(0, 400), (3, 300)], [0, 0, 0, 1, 1, 1])
    check(evidence, items, segments, normalize=normalize)
    found = ops.segment_max_similarity(evidence, ops.encode(items, normalize=normalize), segments, normalize=normalize)
    assert found.indices.tolist() == [0] * 6


@pytest.mark.parametrize("normalize", [False, True])
def test_rows_that_are_not_finite(normalize: bool) -> None:
    special = special_rows()
    rng = np.random.default_rng(37)
    items = np.concatenate([special, rng.standard_normal((300, 3)).astype(np.float32), special])
    for segments in (None, ops.Segments.grouped([(0, 20), (15, 311), (4, 322)], np.arange(len(special)) % 3)):
        check(special, items, segments, normalize=normalize, nonfinite="skip")
    items = np.ones((300, 3), np.float32)
    items[[200, 250]] = np.nan
    encoded = ops.encode(items, normalize=normalize)
    for variant in ops.instruction_sets():
        with ops.use(f"cpu/{variant}"):
            with pytest.raises(ArgumentError, match="items: row 200 holds NaN"):
                ops.segment_max_similarity(items[:4], encoded, normalize=normalize)
            with pytest.raises(ArgumentError, match="evidence: row 1 holds NaN"):
                ops.segment_max_similarity(items[199:201], encoded, ops.Segments([0, 100, 200]), normalize=normalize)


@pytest.mark.parametrize("normalize", [False, True])
def test_evidence_of_all_lengths_in_one_task(normalize: bool) -> None:
    """Very short and very long evidence is coded in double precision, between evidence whose bounds wait to be used."""
    rng = np.random.default_rng(39)
    lengths = rng.integers(20, 120, 300)
    items, evidence = unit_rows(rng, int(lengths.sum()), 256), unit_rows(rng, 300, 256)
    evidence *= np.float32(10) ** rng.choice([0, 0, -30, -15, 13, 15], (300, 1)).astype(np.float32)
    check(evidence, items, ops.Segments.from_lengths(lengths), normalize=normalize)


def test_codes_that_prove_nothing() -> None:
    """Rows so alike that every bound overlaps: most tasks run without codes, and nothing changes."""
    rng = np.random.default_rng(41)
    lengths = rng.integers(20, 60, 400)
    items = (rng.standard_normal((1, 64)) + 1e-6 * rng.standard_normal((int(lengths.sum()), 64))).astype(np.float32)
    check(unit_rows(rng, 400, 64), items, ops.Segments.from_lengths(lengths))


def test_codes_of_another_metric_are_left_alone() -> None:
    rng = np.random.default_rng(43)
    items, evidence = 3 * unit_rows(rng, 90, 20), unit_rows(rng, 4, 20)
    for normalize in (False, True):
        plain = ops.segment_max_similarity(evidence, items, normalize=normalize)
        coded = ops.segment_max_similarity(evidence, ops.encode(items, normalize=not normalize), normalize=normalize)
        for part, wanted in zip(coded, plain, strict=True):
            np.testing.assert_array_equal(part, wanted)


def test_the_definition_and_wrong_arguments() -> None:
    rng = np.random.default_rng(47)
    items, evidence = unit_rows(rng, 30, 12), unit_rows(rng, 3, 12)
    encoded = ops.encode(items)
    with ops.use("reference"):
        reference = ops.segment_max_similarity(evidence, encoded)
    assert reference.indices.tolist() == ops.segment_max_similarity(evidence, encoded).indices.tolist()
    with pytest.raises(ArgumentError, match="items: expected 5 dimensions"):
        ops.segment_max_similarity(unit_rows(rng, 2, 5), encoded)
    with pytest.raises(ArgumentError, match="a range ends at 31, but items has 30 rows"):
        ops.segment_max_similarity(evidence, encoded, ops.Segments.grouped([(0, 31)], [0, 0, 0]))
