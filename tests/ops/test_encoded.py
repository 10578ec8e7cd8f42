"""encode: searches with codes give what searches without codes give, bit for bit, whatever the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismem_core import ops
from prismem_core.errors import ArgumentError
from prismem_core.ops.inputs import bfloat16_bits, unit_rows

ROWS = 1100  # above the size from which codes are used at all


def same(found: ops.TopK, expected: ops.TopK) -> None:
    for part, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(part, wanted)


def check(queries: Any, keys: Any, k: int, *, dtype: str | None = None, **arguments: Any) -> None:
    """With codes made by any instruction set, for either metric, on one thread and on several."""
    normalize = arguments.get("normalize", False)
    for variant in ops.instruction_sets():
        for threads in (1, 3):
            with ops.use(f"cpu/{variant}", threads=threads):
                expected = ops.top_k(queries, keys, k, dtype=dtype, **arguments)
                for made_for in (normalize, not normalize) if threads == 1 else (normalize,):
                    encoded = ops.encode(keys, normalize=made_for, dtype=dtype)
                    same(ops.top_k(queries, encoded, k, dtype=dtype, **arguments), expected)


def rows_of_kind(rng: np.random.Generator, kind: str, count: int, dim: int) -> np.ndarray[Any, Any]:
    rows = rng.standard_normal((count, dim))
    if kind == "mixture":
        rows = 0.5 * rows + rng.standard_normal((20, dim))[rng.integers(0, 20, count)] + rng.standard_normal(dim)
    elif kind == "repeated":
        rows = rows[rng.integers(0, min(30, count), count)]
    elif kind == "near":
        rows = rows[:1] + 1e-4 * rows
    elif kind == "lengths":
        rows *= 10.0 ** rng.integers(-18, 17, (count, 1))
    elif kind == "spikes":
        rows = np.where(rng.random((count, dim)) < 0.02, 50 * rows, 0.01 * rows)
    elif kind == "whole":
        rows = np.round(rows)
    elif kind == "zeros":
        rows[rng.random(count) < 0.5] = 0.0
    return rows.astype(np.float32)


KINDS = ("isotropic", "mixture", "repeated", "near", "lengths", "spikes", "whole", "zeros")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_codes_change_no_bit(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    kind = data.draw(st.sampled_from(KINDS))
    count, dim = data.draw(st.integers(ROWS, 5000)), data.draw(st.sampled_from([1, 2, 5, 8, 9, 16, 33, 64, 100, 257]))
    many = data.draw(st.sampled_from([1, 2, 3, 13, 40]))
    keys = rows_of_kind(rng, kind, count, dim)
    queries = rows_of_kind(rng, kind, many, dim)
    if data.draw(st.booleans()):
        queries = keys[rng.integers(0, count, many)] * np.float32(data.draw(st.sampled_from([1.0, -1.0, 0.3])))
    check(
        queries,
        keys,
        data.draw(st.sampled_from([1, 2, 10, 60])),
        normalize=data.draw(st.booleans()),
        mask=data.draw(st.sampled_from([None, rng.random(count) < 0.5, rng.random((many, count)) < 0.3])),
        min_score=data.draw(st.sampled_from([None, 0.0, 0.25])),
    )


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("normalize", [False, True])
def test_rows_of_half_precision(kind: str, normalize: bool) -> None:
    rng = np.random.default_rng(5)
    values, queries = unit_rows(rng, 3000, 50), unit_rows(rng, 7, 50)
    keys = values.astype(np.float16) if kind == "float16" else bfloat16_bits(values)
    check(queries, keys, 10, normalize=normalize, dtype="bfloat16" if kind == "bfloat16" else None)


def test_rows_at_any_distance() -> None:
    rng = np.random.default_rng(6)
    wide = unit_rows(rng, 2 * ROWS, 40)
    queries = unit_rows(rng, 3, 24)
    for keys in (wide[::2, :24], wide[::-1, 8:32], np.broadcast_to(wide[:1, :24], (ROWS, 24)), wide[:, :24].T.copy().T):
        check(queries, keys, 9)


def test_what_is_not_finite_is_reported_as_without_codes() -> None:
    rng = np.random.default_rng(7)
    keys, queries = unit_rows(rng, ROWS, 24), unit_rows(rng, 3, 24)
    keys[700, 3] = np.nan
    encoded = ops.encode(keys)
    with pytest.raises(ArgumentError, match="keys: row 700 holds NaN"):
        ops.top_k(queries, encoded, 4)
    same(ops.top_k(queries, encoded, 4, nonfinite="skip"), ops.top_k(queries, keys, 4, nonfinite="skip"))
    seen = np.arange(ROWS) != 700
    same(ops.top_k(queries, encoded, 4, mask=seen), ops.top_k(queries, keys, 4, mask=seen))
    queries[1, 0] = np.inf
    with pytest.raises(ArgumentError, match="queries: row 1 holds NaN or infinity"):
        ops.top_k(queries, ops.encode(keys[:700]), 4)
    huge = unit_rows(rng, ROWS, 24) * np.float32(1e25)
    with pytest.raises(ArgumentError, match="too large for float32"):
        ops.top_k(huge[:2], ops.encode(huge), 4)


def test_more_queries_than_are_prepared_at_a_time() -> None:
    rng = np.random.default_rng(10)
    keys, queries = unit_rows(rng, 4100, 16), unit_rows(rng, 4200, 16)
    mask = rng.random((4200, 4100)) < 0.5
    check(queries, keys, 3, mask=mask)
    queries[4150, 1] = np.nan
    with pytest.raises(ArgumentError, match="queries: row 4150 holds NaN"):
        ops.top_k(queries, ops.encode(keys), 3)


@pytest.mark.parametrize("many", [1, 20])
@pytest.mark.parametrize("kind", ["mixture", "isotropic", "near"])
def test_searches_that_let_many_rows_wait(many: int, kind: str) -> None:
    rng = np.random.default_rng(11)
    keys = rows_of_kind(rng, kind, 20_000, 24)
    keys[15_000:] = keys[rng.integers(0, 15_000, 5_000)]  # ties with rows seen before
    queries = rows_of_kind(rng, kind, many, 24)
    for normalize in (False, True):
        check(queries, keys, 200, normalize=normalize, mask=rng.random(20_000) < 0.9)


def test_segments_and_the_reference_do_without_codes() -> None:
    rng = np.random.default_rng(8)
    keys, queries = unit_rows(rng, 2 * ROWS, 24), unit_rows(rng, 2, 24)
    encoded = ops.encode(keys)
    segments = ops.Segments([0, ROWS, 2 * ROWS])
    same(ops.top_k(queries, encoded, 4, segments=segments), ops.top_k(queries, keys, 4, segments=segments))
    with ops.use("reference"):
        same(ops.top_k(queries, ops.encode(keys), 4), ops.top_k(queries, keys, 4))


def test_what_encoded_rows_say() -> None:
    keys = unit_rows(np.random.default_rng(9), 1000, 64)
    encoded = ops.encode(keys, normalize=True)
    assert len(encoded) == 1000
    assert encoded.array is keys
    assert encoded.normalize
    assert 1000 * 64 <= encoded.bytes <= 1000 * (64 + 64 + 16) + 4096
    assert encoded.build_seconds > 0.0
    assert repr(encoded) == f"EncodedRows(1000 x 64 float32, cosine, {encoded.bytes} bytes of codes)"


def test_rows_without_codes() -> None:
    wide = np.ones((2, 20000), np.float32)
    for keys in (wide, wide[:0], wide[:, :0]):
        encoded = ops.encode(keys)
        assert len(encoded) == len(keys)
        same(ops.top_k(wide[:, : keys.shape[1]], encoded, 1), ops.top_k(wide[:, : keys.shape[1]], keys, 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"array": [[1.0]]}, "rows: expected an array"),
        ({"array": np.zeros(3, np.float32)}, "rows: expected two axes"),
        ({"array": np.zeros((3, 2))}, "rows: expected float32"),
        ({"array": np.zeros((3, 2), np.float32), "normalize": 1}, "normalize: expected True or False"),
    ],
)
def test_errors_name_the_argument(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ops.encode(**arguments)
    with pytest.raises(ArgumentError, match="keys: expected 3 dimensions, as queries has, got 2"):
        ops.top_k(np.zeros((1, 3), np.float32), ops.encode(np.zeros((4, 2), np.float32)), 1)
