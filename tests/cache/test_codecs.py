"""The codecs: JSON values and arrays come back equal, fresh and typed; what must not be stored is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from prismem_core.cache import ExecutionCache, decode_array, decode_json, encode_array, encode_json
from prismem_core.errors import ArgumentError, CacheError

from .conftest import key

JSON_VALUES: list[Any] = [
    None,
    True,
    0,
    -1.5e-300,
    2**70,
    "",
    'naïve 日本語 🙂 \u2028 \\ " \n \0',
    "\ud800 alone",
    [],
    {},
    [[], {}, [None]],
    {"b": [1, 2.0, "x"], "a": {"": False}, "ключ": "значение"},
]


@pytest.mark.parametrize("value", JSON_VALUES)
def test_json_values_come_back_equal(value: Any) -> None:
    cache = ExecutionCache()
    cache.put_json("s", key(1), value)
    got = cache.get_json("s", key(1))
    assert got == value
    assert type(got) is type(value)


def test_json_is_stored_canonically() -> None:
    cache = ExecutionCache()
    cache.put_json("s", key(1), {"b": "é", "a": [1, {"d": 1, "c": 2}]})
    assert cache.get("s", key(1)) == '{"a":[1,{"c":2,"d":1}],"b":"é"}'.encode()


@pytest.mark.parametrize("value", [math.nan, math.inf, [1, {"a": -math.inf}], {1, 2}, b"bytes", object(), {(1, 2): 3}])
def test_what_json_cannot_say_is_refused_and_not_stored(value: Any) -> None:
    cache = ExecutionCache()
    with pytest.raises(CacheError, match="cannot be stored as JSON"):
        cache.put_json("s", key(1), value)
    with pytest.raises(CacheError, match="cannot be stored as JSON"):
        cache.get_or_compute_json("s", key(1), lambda: value)
    assert cache.get("s", key(1)) is None


def test_json_in_circles_or_too_deep_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(200_000):
        deep = [deep]
    for value in (circle, deep):
        with pytest.raises(CacheError):
            encode_json(value)
    while deep:  # taken apart by hand: the interpreter would recurse
        deep = deep[0]
    with pytest.raises(CacheError):
        decode_json(b"[" * 200_000 + b"]" * 200_000)


def test_a_json_value_given_out_is_the_callers_own() -> None:
    cache = ExecutionCache()
    value = {"list": [1, 2]}
    cache.put_json("s", key(1), value)
    value["list"].append(3)
    first = cache.get_json("s", key(1))
    first["list"].clear()
    assert cache.get_json("s", key(1)) == {"list": [1, 2]}


def test_the_first_caller_gets_what_later_ones_get() -> None:
    cache = ExecutionCache()
    made = {"pair": (1, 2)}
    first = cache.get_or_compute_json("s", key(1), lambda: made)
    assert first == {"pair": [1, 2]}
    first["pair"].append(3)
    assert cache.get_or_compute_json("s", key(1), lambda: pytest.fail("computed twice")) == {"pair": [1, 2]}
    assert made == {"pair": (1, 2)}


def test_a_stored_null_is_not_computed_again() -> None:
    cache = ExecutionCache()
    assert cache.get_or_compute_json("s", key(1), lambda: None) is None
    assert cache.get_or_compute_json("s", key(1), lambda: pytest.fail("computed twice")) is None


@pytest.mark.parametrize("data", [b"", b"{", b"NaN", b'{"a": Infinity}', b"\xff", encode_array(np.ones(3))])
def test_bytes_that_are_no_json_are_refused(data: bytes) -> None:
    cache = ExecutionCache()
    cache.put("s", key(1), data)
    with pytest.raises(CacheError):
        cache.get_json("s", key(1))


TEXTS = ["", "naïve 日本語 🙂 \0 \n", "\ud800 alone", "x" * 10_000]


@pytest.mark.parametrize("value", TEXTS, ids=range(len(TEXTS)))
def test_texts_come_back_equal(value: str) -> None:
    cache = ExecutionCache()
    cache.put_text("s", key(1), value)
    assert cache.get_text("s", key(1)) == value
    assert cache.get_text("s", key(2)) is None


@pytest.mark.parametrize("value", [b"bytes", None, 3, ["text"]])
def test_what_is_no_text_is_refused(value: Any) -> None:
    cache = ExecutionCache()
    with pytest.raises(ArgumentError, match="value must be str"):
        cache.put_text("s", key(1), value)
    assert cache.get("s", key(1)) is None


def test_bytes_that_are_no_text_are_refused() -> None:
    cache = ExecutionCache()
    cache.put("s", key(1), b"\xff\xfe")
    with pytest.raises(CacheError, match="not text"):
        cache.get_text("s", key(1))


DTYPES = ["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
SHAPES: list[tuple[int, ...]] = [(), (1,), (7,), (0,), (3, 0, 2), (2, 3), (1, 2, 3, 4), (1,) * 32]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_arrays_come_back_equal_fresh_and_writable(dtype: str, shape: tuple[int, ...]) -> None:
    value = np.random.default_rng(5).integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
    cache = ExecutionCache()
    cache.put_array("s", key(1), value)
    got = cache.get_array("s", key(1))
    assert got is not None
    assert got.dtype == value.dtype and got.dtype.isnative
    assert got.shape == shape
    assert np.array_equal(got, value)
    assert got.flags.writeable and got.flags.c_contiguous and got.flags.aligned
    got[...] = 1
    again = cache.get_array("s", key(1))
    assert again is not None and np.array_equal(again, value)


def test_the_extremes_of_each_dtype_survive() -> None:
    for dtype in DTYPES[1:]:
        limits = np.finfo(dtype) if dtype.startswith("f") else np.iinfo(dtype)
        value = np.array([limits.min, limits.max, 0], dtype)
        assert np.array_equal(decode_array(encode_array(value)), value)
    zeros = decode_array(encode_array(np.array([-0.0, 5e-324])))
    assert np.signbit(zeros[0]) and zeros[1] == 5e-324


LAYOUTS: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
    "transposed": lambda a: a.T,
    "sliced": lambda a: a[::2, 1:],
    "reversed": lambda a: a[::-1, ::-1],
    "broadcast": lambda a: np.broadcast_to(a[0], (4, a.shape[1])),
    "column order": np.asfortranarray,
    "big endian": lambda a: a.astype(">f4"),
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_any_layout_and_byte_order_is_stored_by_value(name: str) -> None:
    value = LAYOUTS[name](np.arange(30, dtype=np.float32).reshape(5, 6))
    got = decode_array(encode_array(value))
    assert got.dtype == np.float32 and got.dtype.isnative
    assert np.array_equal(got, value)


def test_changing_an_array_after_it_was_put_changes_nothing() -> None:
    cache = ExecutionCache()
    value = np.arange(4.0)
    cache.put_array("s", key(1), value)
    value[:] = -1
    assert np.array_equal(cache.get_array("s", key(1)), np.arange(4.0))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_numbers_that_are_not_finite_are_refused_with_their_place(bad: float, dtype: str) -> None:
    cache = ExecutionCache()
    value = np.zeros((3, 4), dtype)
    value[2, 1] = bad
    with pytest.raises(CacheError, match=r"not finite at \(2, 1\)"):
        cache.put_array("s", key(1), value)
    with pytest.raises(CacheError, match="not finite"):
        cache.put_array("s", key(1), np.array(bad, dtype))
    assert cache.get_array("s", key(1)) is None


@pytest.mark.parametrize(
    "value",
    [
        np.array([object()]),
        np.array(["text"]),
        np.array([b"bytes"]),
        np.array([1j]),
        np.array(["2023-05-08"], "M8[D]"),
        np.zeros(2, [("a", "f4")]),
        np.zeros(2, np.longdouble),
    ],
    ids=lambda value: str(value.dtype),
)
def test_other_dtypes_are_refused(value: np.ndarray[Any, Any]) -> None:
    with pytest.raises(CacheError, match="dtype"):
        encode_array(value)


@pytest.mark.parametrize("value", [[1.0, 2.0], 1.0, None, np.float32(1), np.ma.masked_array([1, 2], [True, False])])
def test_what_is_no_plain_array_is_refused(value: Any) -> None:
    with pytest.raises(ArgumentError, match="numpy array"):
        encode_array(value)


def test_arrays_come_in_the_order_of_their_keys() -> None:
    cache = ExecutionCache()
    for i in range(3):
        cache.put_array("s", key(i), np.full((2, i), i, np.float32))
    got = cache.get_arrays("s", [key(2), key("absent"), key(0), key(2)])
    assert [None if a is None else a.shape for a in got] == [(2, 2), None, (2, 0), (2, 2)]
    assert got[0] is not None and got[3] is not None
    got[0][:] = 9
    assert np.array_equal(got[3], np.full((2, 2), 2))


def test_bytes_that_are_no_array_are_refused() -> None:
    sound = encode_array(np.arange(6, dtype=np.int64).reshape(2, 3))
    huge = sound[:8] + (2**62).to_bytes(8, "little") + (4).to_bytes(8, "little") + sound[24:]
    negative = (
        sound[:8] + (-2).to_bytes(8, "little", signed=True) + (-3).to_bytes(8, "little", signed=True) + sound[24:]
    )
    objects = sound[:4] + b"O8\0" + sound[7:]
    for data in (
        b"",
        b"PMA1",
        sound[:-1],
        sound + b"\0",
        b"X" + sound[1:],
        objects,
        huge,
        negative,
        b"[1,2]",
        b"\x80\x04N.",
    ):
        with pytest.raises(CacheError, match="not an array"):
            decode_array(data)
    for cut in range(len(sound)):
        with pytest.raises(CacheError):
            decode_array(sound[:cut])
