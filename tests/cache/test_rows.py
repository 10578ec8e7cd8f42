"""Rows: entries of float32 arrays read into and written from one matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismem_core.cache import ExecutionCache, encode_array
from prismem_core.errors import ArgumentError, CacheError

from .conftest import key


@pytest.fixture(params=["memory", "disk"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> ExecutionCache:
    return ExecutionCache(None if request.param == "memory" else tmp_path / "cache")


def some_rows(count: int, dimension: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(7).standard_normal((count, dimension), dtype=np.float32)


@pytest.mark.parametrize("dimension", [1, 3, 64, 1024, 1025])
@pytest.mark.parametrize("count", [0, 1, 7, 300])
def test_rows_come_back_where_their_keys_stand(cache: ExecutionCache, count: int, dimension: int) -> None:
    rows = some_rows(count, dimension)
    cache.put_rows("e", [key(i) for i in range(count)], rows)
    order = np.random.default_rng(1).permutation(count)
    got, found = cache.get_rows("e", [key(int(i)) for i in order], dimension)
    assert got.dtype == np.float32 and got.shape == (count, dimension) and got.flags.writeable
    assert np.array_equal(got, rows[order])
    assert found.tolist() == [True] * count


def test_a_row_is_the_entry_that_put_array_makes(cache: ExecutionCache) -> None:
    rows = some_rows(3, 5)
    cache.put_rows("e", [key(0), key(1)], rows[:2])
    cache.put_array("e", key(2), rows[2])
    assert cache.get("e", key(0)) == encode_array(rows[0])
    assert np.array_equal(cache.get_array("e", key(1)), rows[1])
    assert np.array_equal(cache.get_rows("e", [key(2), key(0)], 5)[0], rows[[2, 0]])


def test_missing_rows_are_zeros(cache: ExecutionCache) -> None:
    rows = some_rows(2, 4)
    cache.put_rows("e", [key(0), key(1)], rows)
    asked = [key("absent"), key(1), key("too"), key(0), key(1)]
    expected = np.stack([np.zeros(4), rows[1], np.zeros(4), rows[0], rows[1]])
    out = np.full((5, 4), np.nan, np.float32)
    for got, found in (
        cache.get_rows("e", asked, 4),
        cache.get_rows("e", asked, 4, verify=False),
        cache.get_rows("e", asked),
        cache.get_rows("e", asked, out=out),
    ):
        assert np.array_equal(got, expected)
        assert found.tolist() == [False, True, False, True, True]
    assert np.array_equal(out, expected)
    assert cache.counters()["e"].hits == 4 * 3
    assert cache.counters()["e"].misses == 4 * 2


def test_without_a_dimension_and_without_a_row_there_are_no_columns(cache: ExecutionCache) -> None:
    got, found = cache.get_rows("e", [key(1), key(2)])
    assert got.shape == (2, 0) and found.tolist() == [False, False]
    assert cache.get_rows("e", [])[0].shape == (0, 0)


def test_rows_given_out_are_the_callers_own(cache: ExecutionCache) -> None:
    rows = some_rows(2, 4)
    before = rows.copy()
    cache.put_rows("e", [key(0), key(1)], rows)
    rows[:] = 0
    got, _ = cache.get_rows("e", [key(0), key(1)], 4)
    got[:] = -1
    assert np.array_equal(cache.get_rows("e", [key(0), key(1)], 4)[0], before)


@pytest.mark.parametrize(
    "other", [np.ones(5, np.float32), np.ones(4), np.ones((2, 2), np.float32), np.ones(0, np.float32)]
)
def test_an_entry_that_is_no_such_row_is_named(cache: ExecutionCache, other: np.ndarray[Any, Any]) -> None:
    cache.put_rows("e", [key(0)], some_rows(1, 4))
    cache.put_array("e", key(1), other)
    for dimension in (4, None):
        with pytest.raises(ArgumentError, match=key(1)):
            cache.get_rows("e", [key(0), key(1)], dimension)
    cache.put("e", key(2), b"no array")
    with pytest.raises(ArgumentError, match=key(2)):
        cache.get_rows("e", [key(2)], 4)


@pytest.mark.parametrize(
    "out",
    [
        np.zeros((2, 4)),
        np.zeros((3, 4), np.float32),
        np.zeros((2, 5), np.float32),
        np.zeros((4, 2), np.float32).T,
        np.zeros((2, 8), np.float32)[:, ::2],
        np.broadcast_to(np.zeros(4, np.float32), (2, 4)),
        np.float32(0),
        np.zeros(8, np.float32),
        [[0.0] * 4] * 2,
    ],
)
def test_rows_go_into_a_whole_matrix_only(cache: ExecutionCache, out: Any) -> None:
    with pytest.raises(ArgumentError, match=r"out must be a writable float32 array of shape \(2, 4\) in C order, got"):
        cache.get_rows("e", [key(0), key(1)], 4, out=out)


@pytest.mark.parametrize("dimension", [-1, 1.5, True, "4"])
def test_a_dimension_is_a_number_of_elements(cache: ExecutionCache, dimension: Any) -> None:
    with pytest.raises(ArgumentError, match="dimension must be"):
        cache.get_rows("e", [key(0)], dimension)


@pytest.mark.parametrize("rows", [np.zeros((2, 4)), np.zeros(4, np.float32), np.zeros((2, 4), ">f4"), [[1.0]], None])
def test_only_a_float32_matrix_is_put(cache: ExecutionCache, rows: Any) -> None:
    with pytest.raises(ArgumentError, match=r"rows must be a float32 array of shape \(n, d\), got"):
        cache.put_rows("e", [key(0), key(1)], rows)
    with pytest.raises(ArgumentError, match="got 2 for 1 keys"):
        cache.put_rows("e", [key(0)], np.zeros((2, 4), np.float32))
    assert cache.counters() == {}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_refused_with_their_place(cache: ExecutionCache, bad: float) -> None:
    rows = some_rows(3, 4)
    rows[2, 1] = bad
    with pytest.raises(CacheError, match=r"not finite at \(2, 1\)"):
        cache.put_rows("e", [key(i) for i in range(3)], rows)
    assert not cache.contains("e", [key(i) for i in range(3)]).any()


def test_rows_of_any_layout_are_put_by_value(cache: ExecutionCache) -> None:
    rows = some_rows(6, 8)
    for i, layout in enumerate((rows[::2], rows[:3, ::-1], np.asfortranarray(rows[:3]))):
        cache.put_rows(f"e{i}", [key(n) for n in range(3)], layout)
        got, found = cache.get_rows(f"e{i}", [key(n) for n in range(3)], layout.shape[1])
        assert found.all() and np.array_equal(got, layout)


def test_each_row_has_its_cost(cache: ExecutionCache) -> None:
    cache.put_rows("e", [key(0), key(1)], some_rows(2, 4), cost=[3, 4])
    cache.put_rows("e", [key(2)], some_rows(1, 4), cost=np.float32(5))
    assert {e.key: e.cost for e in cache.entries()} == {key(0): 3, key(1): 4, key(2): 5}
    with pytest.raises(ArgumentError, match="got 1 for 2 values"):
        cache.put_rows("e", [key(0), key(1)], some_rows(2, 4), cost=[3])


def test_a_damaged_row_is_a_missing_one(tmp_path: Path) -> None:
    rows = some_rows(3, 100)
    with ExecutionCache(tmp_path) as cache:
        cache.put_rows("e", [key(i) for i in range(3)], rows)
    [segment] = tmp_path.glob("segment-*")
    data = bytearray(segment.read_bytes())
    data[data.index(rows[1].tobytes()) + 50] ^= 1
    segment.write_bytes(data)
    with ExecutionCache(tmp_path, read_only=True) as cache:
        got, found = cache.get_rows("e", [key(i) for i in range(3)], 100)
        assert found.tolist() == [True, False, True]
        assert np.array_equal(got, rows * found[:, None])
        assert cache.counters()["e"].damaged == 1
