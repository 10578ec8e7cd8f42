"""similarity: exact half precision, mixed kinds, zero vectors, values that are not finite, strides."""

from __future__ import annotations

import numpy as np
import pytest

from prismem_core import ops
from prismem_core.errors import ArgumentError
from prismem_core.ops.inputs import bfloat16_bits, layouts, special_rows, unit_rows


def from_bits(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


@pytest.mark.usefixtures("backend")
def test_every_half_is_read_exactly() -> None:
    one = np.ones((1, 1), np.float32)
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    finite = halves[np.isfinite(halves)][:, None]
    assert ops.similarity(one, finite)[0].tolist() == finite[:, 0].astype(np.float32).tolist()
    nine = np.repeat(finite[::97], 9, axis=1)  # whole vectors and a tail
    assert ops.similarity(np.eye(9, dtype=np.float32), nine).T.tolist() == nine.astype(np.float32).tolist()


@pytest.mark.usefixtures("backend")
def test_every_bfloat16_is_read_exactly() -> None:
    bits = np.arange(65536, dtype=np.uint16)
    bits = bits[np.isfinite(from_bits(bits))][:, None]
    one = np.ones((1, 1), np.float32)
    assert ops.similarity(one, bits, dtype="bfloat16")[0].tolist() == from_bits(bits)[:, 0].tolist()


@pytest.mark.usefixtures("backend")
def test_half_products_neither_overflow_nor_vanish() -> None:
    large, small = np.full((1, 64), 60000, np.float16), np.full((1, 64), 6e-8, np.float16)
    assert ops.similarity(large, large)[0, 0] == pytest.approx(64 * 6e4**2, rel=1e-3)
    exact = float(small[0, 0].astype(np.float64)) ** 2 * 64
    assert ops.similarity(small, small)[0, 0] == pytest.approx(exact, rel=1e-6)
    assert ops.similarity(small, large, normalize=True)[0, 0] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.usefixtures("backend")
def test_kinds_may_be_mixed() -> None:
    rng = np.random.default_rng(3)
    x, y = unit_rows(rng, 4, 30), unit_rows(rng, 9, 30)
    bits = bfloat16_bits(y)
    exact = x.astype(np.float64) @ from_bits(bits).astype(np.float64).T
    np.testing.assert_allclose(ops.similarity(x, bits, dtype="bfloat16"), exact, rtol=0, atol=1e-6)
    half = x.astype(np.float16)
    exact = half.astype(np.float64) @ from_bits(bits).astype(np.float64).T
    np.testing.assert_allclose(ops.similarity(half, bits, dtype="bfloat16"), exact, rtol=0, atol=1e-6)


@pytest.mark.usefixtures("backend")
def test_ml_dtypes_and_bits_are_the_same_rows() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(5)
    x, y = unit_rows(rng, 3, 17), unit_rows(rng, 5, 17)
    typed = y.astype(ml_dtypes.bfloat16)
    assert np.array_equal(typed.view(np.uint16), bfloat16_bits(y))
    expected = ops.similarity(x, bfloat16_bits(y), dtype="bfloat16")
    for label, laid in layouts(bfloat16_bits(y)):
        if label != "broadcast":
            got = ops.similarity(x, laid.view(ml_dtypes.bfloat16))
            assert got.tobytes() == expected.tobytes(), label


@pytest.mark.usefixtures("backend")
def test_zero_vectors_have_cosine_zero() -> None:
    rows = np.array([[0, 0], [-0.0, 0], [3, 4]], np.float32)
    assert ops.similarity(rows, rows, normalize=True).tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 1]]


@pytest.mark.usefixtures("backend")
def test_rows_that_are_not_finite() -> None:
    rows = special_rows()
    with pytest.raises(ArgumentError, match="y: row 3 holds NaN or infinity"):
        ops.similarity(rows[:1], rows)
    with pytest.raises(ArgumentError, match="x: row 6 holds NaN or infinity"):
        ops.similarity(rows[[0, 0, 0, 0, 0, 0, 6]], rows[:1], normalize=True)
    cosines = ops.similarity(rows, rows, normalize=True, nonfinite="skip")
    unusable = ~np.isfinite(rows).all(axis=1)
    assert np.isnan(cosines[unusable]).all()
    assert np.isnan(cosines[:, unusable]).all()
    assert np.isfinite(cosines[~unusable][:, ~unusable]).all()


@pytest.mark.usefixtures("backend")
def test_layouts_give_the_same_bits() -> None:
    rng = np.random.default_rng(9)
    x, y = unit_rows(rng, 6, 37), unit_rows(rng, 21, 37)
    expected = ops.similarity(x, y).tobytes()
    for label, laid in layouts(y):
        if label != "broadcast":
            assert ops.similarity(x, laid).tobytes() == expected, label


@pytest.mark.usefixtures("backend")
def test_rows_too_far_apart_for_32_bits_of_bytes() -> None:
    """Row i lies i * 2**29 floats away: offsets of bytes and of elements need 64 bits."""
    try:
        memory = np.zeros(2**32 + 16, np.uint8)  # never touched pages take no memory
    except MemoryError:
        pytest.skip("no room to reserve 4 GiB of addresses")
    rows = memory[: 2**32 + 16].view(np.float32)
    far = np.lib.stride_tricks.as_strided(rows, (3, 4), (2**31, 4))
    far[:] = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert ops.similarity(far, np.eye(4, dtype=np.float32)).tolist() == far.tolist()


def test_uint16_needs_a_word() -> None:
    bits = np.zeros((1, 2), np.uint16)
    with pytest.raises(ArgumentError, match=r'x: uint16 could mean anything; pass dtype="bfloat16"'):
        ops.similarity(bits, bits)
