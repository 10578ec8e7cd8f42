"""Views of the caller's memory: what is read in place, what is copied, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prismem_core.arrays import Place, common_place, place_of, plain, readable, rows
from prismem_core.errors import ArgumentError
from prismem_core.ops.inputs import layouts


def test_rows_are_read_in_place_wherever_they_can_be() -> None:
    values = np.arange(35, dtype=np.float32).reshape(5, 7)
    copied = {"transposed", "sliced", "reversed columns", "unaligned"}
    seen = set()
    for label, laid in layouts(values):
        view = rows(laid, "x")
        seen.add(label)
        assert np.shares_memory(view.data, laid) == (label not in copied), label
        np.testing.assert_array_equal(view.float64(), laid)
    assert copied < seen


def test_arrays_without_elements_are_left_alone() -> None:
    for shape in ((0, 5), (5, 0), (0, 0)):
        assert rows(np.zeros(shape, np.float32), "x").data.shape == shape
    assert readable(np.zeros((3, 0), np.float32).T).shape == (0, 3)


def test_structured_fields_that_fall_between_elements_are_copied() -> None:
    packed = np.zeros(4, np.dtype([("tag", "u1"), ("vector", "f4", (3,))], align=False))
    packed["vector"] = np.arange(12).reshape(4, 3)
    view = rows(packed["vector"], "x")
    assert not np.shares_memory(view.data, packed)
    assert view.float64().tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]


def test_exact_values_of_every_kind() -> None:
    bits = np.array([[0x3F80, 0xC000, 0x7F80, 0x0001]], np.uint16)
    assert rows(bits, "x", dtype="bfloat16").float64().tolist() == [[1.0, -2.0, np.inf, 2.0**-133]]
    halves = np.array([[1.5, -6e-8]], np.float16)
    assert rows(halves, "x").float64().tolist() == [[1.5, -(2.0**-24)]]
    assert (rows(halves, "x").kind, rows(halves, "x").count, rows(halves, "x").dim) == ("float16", 1, 2)


def test_places() -> None:
    here = np.zeros((1, 1), np.float32)
    assert place_of(here, "x") == Place("numpy", "cpu", 0)
    assert common_place(x=None, y=here) == common_place() == Place("numpy", "cpu")
    assert str(Place("torch", "cuda", 1)) == "torch arrays on cuda:1"
    for wrong in ([1.0], 1.0, None, "text", memoryview(b"1")):
        with pytest.raises(ArgumentError, match="x: expected an array of numpy, torch or cupy, got"):
            place_of(wrong, "x")


def test_memory_maps_are_arrays_of_numpy(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "rows", np.float32, "w+", shape=(2, 3))
    assert np.shares_memory(rows(mapped, "x").data, mapped)


def test_plain_arrays() -> None:
    assert plain(np.zeros(2, np.bool_), "mask", ("bool",), (1, 2)).tolist() == [False, False]
    with pytest.raises(ArgumentError, match="mask: expected bool, got int64"):
        plain(np.zeros(2, np.int64), "mask", ("bool",), (1, 2))
    with pytest.raises(ArgumentError, match=r"mask: expected 1 or 2 axes, got shape \(\)"):
        plain(np.zeros((), np.bool_), "mask", ("bool",), (1, 2))
