"""Codes of rows: no bound is below its score, none is far above it, and codes grow and change with their rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from prismem_core import _native, ops
from prismem_core.ops.inputs import SIZES, unit_rows

Floats = NDArray[np.float32]
BITS = (4, 8, 0)


def bounds(codes: _native.RowCodes, queries: Any, count: int, bits: int, isa: str) -> Floats:
    out = np.full((len(queries), count), np.nan, np.float32)
    codes.bounds(queries, bits, out, isa=isa)
    return out


def check(queries: Any, keys: Any, normalize: bool) -> None:
    """No instruction set, however it made the codes, gives a bound below a canonical score."""
    for isa in ops.instruction_sets():
        codes = _native.RowCodes(keys, normalize, isa=isa)
        with ops.use(f"cpu/{isa}"):
            scores = ops.similarity(queries, keys, normalize=normalize, nonfinite="skip")
        for bits in BITS:
            short = np.argwhere(bounds(codes, queries, len(keys), bits, isa) < scores)
            assert len(short) == 0, f"{isa}, {bits} bits: {short.tolist()}"


def lengths(rng: np.random.Generator, low: int, high: int) -> Callable[[Floats], Floats]:
    return lambda rows: (rows.astype(np.float64) * 10.0 ** rng.integers(low, high, (len(rows), 1))).astype(np.float32)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_no_bound_is_below_its_score(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    count, dim = data.draw(st.integers(1, 70)), data.draw(st.sampled_from([*SIZES, 8, 24, 128, 300]))
    keys = rng.standard_normal((count, dim)).astype(np.float32)
    queries = rng.standard_normal((3, dim)).astype(np.float32)
    changes: dict[str, Callable[[Floats], Floats]] = {
        "as they are": lambda rows: rows,
        "tiny": lengths(rng, -45, -30),
        "huge": lengths(rng, 10, 17),
        "any length": lengths(rng, -44, 18),
        "small": lengths(rng, -24, -14),
        "beyond": lengths(rng, 17, 37),
        "spikes": lambda rows: np.where(rng.random(rows.shape) < 0.05, np.float32(1e3) * rows, rows),
        "equal": lambda rows: np.broadcast_to(rows[:1], rows.shape).copy(),
        "nearly equal": lambda rows: rows[:1] + np.float32(1e-6) * rows,
        "shifted": lambda rows: rows + np.float32(100.0),
        "holes": lambda rows: np.where(rng.random(rows.shape) < 0.5, np.float32(0.0), rows),
        "zeros": lambda rows: rows * (rng.random((len(rows), 1)) < 0.5).astype(np.float32),
        "whole": np.round,
    }
    with np.errstate(over="ignore"):
        keys = changes[data.draw(st.sampled_from(sorted(changes)))](keys).astype(np.float32)
        queries = changes[data.draw(st.sampled_from(sorted(changes)))](queries).astype(np.float32)
    if data.draw(st.booleans()):
        queries[0] = keys[rng.integers(0, count)]
        queries[1] = -keys[rng.integers(0, count)]
    check(queries, keys, data.draw(st.booleans()))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
@pytest.mark.parametrize("normalize", [False, True])
def test_rows_and_queries_without_a_bound_are_never_ruled_out(bad: float, normalize: bool) -> None:
    rng = np.random.default_rng(1)
    keys, queries = unit_rows(rng, 40, 20), unit_rows(rng, 3, 20)
    keys[[3, 17], 5] = bad
    queries[1, 2] = bad
    check(queries, keys, normalize)


def round_up_bfloat(value: float) -> float:
    bits = int(np.float32(value).view(np.uint32))
    return float(np.array(((bits + 0xFFFF) >> 16) << 16, np.uint32).view(np.float32))


@pytest.mark.parametrize("dim", [16, 100, 384])
@pytest.mark.parametrize(("bits", "step"), [(8, 1), (4, 16)])
def test_rows_as_far_from_their_codes_as_can_be(dim: int, bits: int, step: int) -> None:
    """Each value is at the edge of its cell, each query along a residual: Cauchy and Schwarz give equality."""
    rng = np.random.default_rng(dim)
    scale = round_up_bfloat(1.0 + 2.0**-20) / 128.0
    cells = rng.integers(-7, 7, (64, dim)) * step
    # Just below the next cell: the reconstruction in the middle is half a cell away.
    rows = np.float64(scale) * (cells + (0.4999 if bits == 8 else 15.4999))
    rows[:, 0] = 127.0 / 128.0  # fixes the scale
    rows = np.concatenate([rows, -rows])  # the centre is 0
    keys = rows.astype(np.float32)
    middle = cells if bits == 8 else cells + 8
    residuals = rows[:64] - scale * middle
    residuals[:, 0] = 0.0
    queries = residuals.astype(np.float32)
    check(queries, keys, normalize=False)
    for isa in ops.instruction_sets():
        codes = _native.RowCodes(keys, False, isa=isa)
        own = np.diag(bounds(codes, queries, 128, bits, isa)[:, :64])
        scores = np.diag(ops.similarity(queries, keys)[:, :64])
        gap = (own - scores) / np.linalg.norm(residuals, axis=1) ** 2
        # What is left is the rounding of the stored length, at most 2^-7, and dimension 0, which has a residual too.
        assert (gap >= 0.0).all()
        assert gap.max() < 2.0**-7 + 0.5 / dim


@pytest.mark.parametrize("normalize", [False, True])
def test_bounds_are_sharp(normalize: bool) -> None:
    rng = np.random.default_rng(3)
    keys, queries = unit_rows(rng, 500, 384), unit_rows(rng, 4, 384)
    for isa in ops.instruction_sets():
        codes = _native.RowCodes(keys, normalize, isa=isa)
        scores = ops.similarity(queries, keys, normalize=normalize)
        for bits, most in ((4, 0.19), (8, 0.02), (0, 0.085)):
            assert (bounds(codes, queries, 500, bits, isa) - scores).max() < most


def contents(codes: _native.RowCodes, queries: Any, count: int) -> list[bytes]:
    return [bounds(codes, queries, count, bits, isa).tobytes() for bits in BITS for isa in ops.instruction_sets()]


@pytest.mark.parametrize("normalize", [False, True])
def test_codes_grow_shrink_and_change_with_their_rows(normalize: bool) -> None:
    rng = np.random.default_rng(4)
    rows, queries = unit_rows(rng, 300, 37), unit_rows(rng, 2, 37)
    grown = _native.RowCodes(rows[:101], normalize)
    grown.extend(rows[:102])
    grown.extend(rows)
    check_against = _native.RowCodes(rows[:101], normalize)
    check_against.extend(rows)
    assert contents(grown, queries, 300) == contents(check_against, queries, 300)
    assert not (bounds(grown, queries, 300, 8, "") < ops.similarity(queries, rows, normalize=normalize)).any()

    changed = rows.copy()
    changed[50:70] *= np.float32(-3.0)
    grown.encode(changed, 50, 70)
    assert not (bounds(grown, queries, 300, 8, "") < ops.similarity(queries, changed, normalize=normalize)).any()
    grown.encode(rows, 50, 70)
    assert contents(grown, queries, 300) == contents(check_against, queries, 300)

    grown.truncate(77)
    check_against.truncate(77)
    assert grown.bytes == check_against.bytes < _native.RowCodes(rows, normalize).bytes
    assert contents(grown, queries, 77) == contents(check_against, queries, 77)
    grown.extend(rows)
    check_against.extend(rows)
    assert contents(grown, queries, 300) == contents(check_against, queries, 300)


def test_a_row_that_is_mended_brings_the_codes_back() -> None:
    rng = np.random.default_rng(5)
    rows, queries = unit_rows(rng, 1200, 24), unit_rows(rng, 2, 24)
    broken = rows.copy()
    broken[[40, 1150], 3] = np.nan
    encoded = ops.encode(broken)
    assert not encoded.codes.regular
    encoded.codes.encode(rows, 40, 41)
    assert not encoded.codes.regular
    encoded.codes.truncate(1150)
    assert encoded.codes.regular
    encoded.codes.extend(rows)
    assert encoded.codes.regular
    broken[:] = rows
    for part, wanted in zip(ops.top_k(queries, encoded, 5), ops.top_k(queries, rows, 5), strict=True):
        np.testing.assert_array_equal(part, wanted)


def test_what_would_read_past_the_rows_is_refused() -> None:
    rows = np.ones((20, 8), np.float32)
    codes = _native.RowCodes(rows, False)
    calls: list[Callable[[], None]] = [
        lambda: codes.extend(rows[:19]),
        lambda: codes.extend(rows[:, :7].copy()),
        lambda: codes.encode(rows, 5, 21),
        lambda: codes.encode(rows[:10], 5, 15),
        lambda: codes.encode(rows, -1, 3),
        lambda: codes.truncate(-1),
        lambda: codes.bounds(rows, 5, np.empty((20, 20), np.float32)),
        lambda: codes.bounds(rows, 8, np.empty((20, 19), np.float32)),
        lambda: codes.bounds(rows[:, :7].copy(), 8, np.empty((20, 20), np.float32)),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="expected"):
            call()
