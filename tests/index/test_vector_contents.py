"""VectorIndex: adding, updating, removing and reading rows; what is refused leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import prismem_core
from prismem_core import VectorIndex
from prismem_core.errors import ArgumentError
from prismem_core.ops.inputs import layouts, unit_rows
from tests.index.conftest import DTYPES, as_float32, kept

EXTREMES = [0, -1, 7, 2**63 - 1, -(2**63)]


def rows(count: int, dim: int = 4, seed: int = 0) -> np.ndarray:
    return unit_rows(np.random.default_rng(seed), count, dim)


def state(index: VectorIndex) -> tuple[list[int], list[list[float]]]:
    return index.ids.tolist(), index.get(index.ids).tolist()


def test_any_int64_is_an_id() -> None:
    index, values = VectorIndex(4), rows(5)
    assert index.add(values, EXTREMES).tolist() == EXTREMES
    assert index.ids.tolist() == EXTREMES
    assert index.ids.dtype == np.int64
    for position, id in enumerate(EXTREMES):
        assert id in index
        np.testing.assert_array_equal(index.get([id]), values[position : position + 1])
    for other in (1, 2**63, -(2**63) - 1, 2**70, "7", None, 7.0):
        assert other not in index
    assert np.int32(7) in index
    assert len(index) == 5
    with pytest.raises(ArgumentError, match="no automatic id is left after 9223372036854775806"):
        index.add(values)


def test_automatic_ids_follow_the_largest_ever_used() -> None:
    index = VectorIndex(4)
    assert index.add(rows(0)).tolist() == []
    assert index.add(rows(2)).tolist() == [0, 1]
    assert index.add(rows(2), [-5, 40]).tolist() == [-5, 40]
    index.remove([40])
    assert index.add(rows(2)).tolist() == [41, 42]
    negative = VectorIndex(4)
    negative.add(rows(1), [-3])
    assert negative.add(rows(1)).tolist() == [0]


def test_order_is_that_of_adding_and_update_keeps_the_place() -> None:
    index, values = VectorIndex(4), rows(6)
    index.add(values, [5, 4, 3, 2, 1, 0])
    index.remove([4, 1])
    assert index.ids.tolist() == [5, 3, 2, 0]
    index.add(values[:1], [4])
    index.update([3, 0], values[4:])
    assert index.ids.tolist() == [5, 3, 2, 0, 4]
    np.testing.assert_array_equal(index.get([5, 3, 2, 0, 4]), values[[0, 4, 3, 5, 0]])


def test_rows_stay_where_they_belong_while_thousands_come_and_go() -> None:
    """Removing compacts now and then; the table of ids must follow."""
    rng = np.random.default_rng(1)
    index, expected = VectorIndex(3), dict[int, Any]()
    for _ in range(60):
        fresh = [int(id) for id in rng.choice(10**6, 200, replace=False) - 500_000 if int(id) not in expected]
        values = rng.standard_normal((len(fresh), 3)).astype(np.float32)
        index.add(values, fresh)
        expected.update(zip(fresh, values, strict=True))
        gone = [int(id) for id in rng.permutation(list(expected))[: rng.integers(0, 300)]]
        index.remove(gone)
        for id in gone:
            del expected[id]
        assert index.ids.tolist() == list(expected)
        assert not any(id in index for id in gone)
        np.testing.assert_array_equal(index.get(list(expected)), np.array(list(expected.values())).reshape(-1, 3))
    stats = index.stats()
    assert stats.count == len(index) == len(expected) > 1000
    assert stats.removed <= max(256, (stats.count + stats.removed) // 4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_rounded_to_nearest_even(dtype: str) -> None:
    rng = np.random.default_rng(3)
    values = np.concatenate(
        [
            np.ldexp(rng.standard_normal((500, 16)), rng.integers(-30, 14, (500, 16))).astype(np.float32),
            np.float32(
                [[0, -0.0, 1e-45, -1e-45, 6e-8, 2.98e-8, 5.96e-8, 8.94e-8, 6.1e-5, 65503.9, 65519, 1, 1, 1, 1, 1]]
            ),
            (1 + np.arange(16) * 2.0**-12).astype(np.float32)[None],
        ]
    )
    index = VectorIndex(16, dtype=dtype)
    ids = index.add(values)
    assert index.dtype == dtype
    np.testing.assert_array_equal(index.get(ids).view(np.uint32), as_float32(kept(values, dtype)).view(np.uint32))


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_every_kind_and_layout_are_taken(source: str, dtype: str) -> None:
    values = kept(rows(9, 7), source)
    plain = as_float32(values)
    if source == "bfloat16" and dtype != "bfloat16":
        values = values.view(pytest.importorskip("ml_dtypes").bfloat16)
    for label, laid in layouts(values):
        index = VectorIndex(7, dtype=dtype)
        ids = index.add(laid)
        expected = as_float32(kept(np.broadcast_to(plain[0], plain.shape) if label == "broadcast" else plain, dtype))
        np.testing.assert_array_equal(index.get(ids), expected, err_msg=label)
        index.update(ids[::-1], laid)
        np.testing.assert_array_equal(index.get(ids[::-1].tolist()), expected, err_msg=label)


def test_every_half_number_survives() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    halves = bits.view(np.float16)
    finite = np.isfinite(halves)
    index = VectorIndex(1, dtype="float16")
    ids = index.add(halves[finite][:, None])
    np.testing.assert_array_equal(index.get(ids)[:, 0], halves[finite].astype(np.float32))
    wide = VectorIndex(1, dtype="float16")
    wide.add(halves[finite].astype(np.float32)[:, None])
    np.testing.assert_array_equal(wide.get(ids), index.get(ids))


Change = Callable[[VectorIndex], object]
NAN = np.array([[0, 0, 0, 1], [0, np.nan, 0, 1]], np.float32)
INF = np.array([[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, -np.inf]], np.float32)
HUGE = np.array([[1, 1, 1, 1], [1, 1, 65520, 1]], np.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i: i.add(rows(2), [9, 11]), "id 11 is in the index already; use update"),
        (lambda i: i.add(rows(3), [7, 8, 7]), "id 7 is given twice"),
        (lambda i: i.add(rows(3), [7, 8]), "ids: expected 3, one for each row of vectors, got 2"),
        (lambda i: i.add(NAN), "vectors: row 1 holds NaN or infinity"),
        (lambda i: i.add(INF, [1, 2, 3]), "vectors: row 2 holds NaN or infinity"),
        (lambda i: i.add(HUGE), 'vectors: row 1 holds a number too large for float16, .* dtype="float32"'),
        (
            lambda i: i.add(rows(2, 5)),
            "vectors: expected 4 dimensions, as the rows of this index have, got 5; .* model",
        ),
        (lambda i: i.add(rows(1)[0]), r"vectors: expected two axes .* pass vectors\[None, :\]"),
        (lambda i: i.add(rows(1).astype(np.float64)), "vectors: expected float32, float16 or bfloat16, got float64"),
        (lambda i: i.add([[1.0, 2, 3, 4]]), "vectors: expected an array .* got list"),
        (lambda i: i.add(rows(1), [1.5]), "ids: expected int64 numbers"),
        (lambda i: i.add(rows(1), [2**63]), "ids: expected int64 numbers, got 9223372036854775808"),
        (lambda i: i.add(rows(1), [2**80]), "ids: expected int64 numbers"),
        (lambda i: i.add(rows(1), [True]), "ids: expected int64 numbers"),
        (lambda i: i.add(rows(1), 5), "ids: .* for one row pass a list of one id"),
        (lambda i: i.add(rows(1), [[1]]), "ids: expected int64 numbers"),
        (lambda i: i.update([10, 12], rows(2)), r"there is no row with id 12 \(position 1\)"),
        (lambda i: i.update([10, 11, 10], rows(3)), "id 10 is given twice"),
        (lambda i: i.update([10, 11], NAN), "vectors: row 1 holds NaN"),
        (lambda i: i.update([10], rows(2)), "ids: expected 2, one for each row of vectors, got 1"),
        (lambda i: i.update([10], rows(1, 3)), "vectors: expected 4 dimensions"),
        (lambda i: i.remove([11, 12]), "there is no row with id 12"),
        (lambda i: i.remove([11, 11]), "id 11 is given twice"),
        (lambda i: i.remove("11"), "ids: expected int64 numbers"),
        (lambda i: i.get([10, -1]), "there is no row with id -1"),
        (lambda i: i.reserve(2**62), "rows of 8 bytes each are more than an index can hold"),
        (lambda i: i.reserve(-1), "count: expected a whole number"),
    ],
)
def test_what_is_refused_changes_nothing(change: Change, message: str) -> None:
    index = VectorIndex(4, dtype="float16")
    index.add(rows(3), [10, 99, 11])
    index.remove([99])
    before = state(index)
    with pytest.raises(ArgumentError, match=message):
        change(index)
    assert state(index) == before
    assert index.add(rows(1)).tolist() == [100], "no automatic id was used up"


def test_nothing_to_do_is_valid() -> None:
    index = VectorIndex(4)
    assert index.add(rows(0), []).dtype == np.int64
    index.remove([])
    index.update([], rows(0))
    assert index.get([]).shape == (0, 4)
    assert state(index) == ([], [])
    index.add(rows(1))
    index.remove(np.empty(0, np.int64))
    assert len(index) == 1
    index.remove([0])
    assert state(index) == ([], [])
    assert index.add(rows(1)).tolist() == [1]


def test_ids_of_every_integer_form() -> None:
    index = VectorIndex(4)
    for ids in (np.uint8([1, 2]), np.int64([9, 3, 4, 0])[1:3], np.int64([6, 5])[::-1], (7, 8), np.uint64([9, 10])):
        index.add(rows(2), ids)
    assert index.ids.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 0}, "dim: expected a whole number from 1 to 16777216, got 0"),
        ({"dim": 2**24 + 1}, "dim: expected a whole number from 1 to"),
        ({"dim": 2**80}, "dim: expected a whole number from 1 to"),
        ({"dim": -1}, "dim: expected"),
        ({"dim": 3.0}, "dim: expected"),
        ({"dim": 3, "dtype": "float64"}, "dtype: expected one of float32, float16, bfloat16, got 'float64'"),
        ({"dim": 3, "metric": "l2"}, "metric: expected one of inner_product, cosine, got 'l2'"),
    ],
)
def test_errors_of_making_one(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        VectorIndex(**arguments)


def test_what_it_says_of_itself() -> None:
    assert prismem_core.VectorIndex is VectorIndex
    index = VectorIndex(300, dtype="float16", metric="cosine")
    assert (index.dim, index.dtype, index.metric, index.read_only) == (300, "float16", "cosine", False)
    index.reserve(5000)
    index.add(rows(3, 300))
    index.remove([1])
    stats = index.stats()
    assert (stats.count, stats.removed) == (2, 1)
    assert stats.capacity >= 5000
    assert stats.row_bytes >= 5000 * 600
    assert stats.id_bytes >= 5000 * 8
    assert repr(index) == "<VectorIndex of 2 rows, dim=300, dtype='float16', metric='cosine'>"


def test_torch_rows_are_read_in_place() -> None:
    torch = pytest.importorskip("torch")
    index = VectorIndex(4, dtype="bfloat16")
    tensor = torch.from_numpy(rows(5)).to(torch.bfloat16)
    ids = index.add(tensor)
    np.testing.assert_array_equal(index.get(ids), tensor.float().numpy())
    found = index.search(tensor[:2], 2)
    assert all(isinstance(part, torch.Tensor) for part in found)
    assert found.ids[:, 0].tolist() == [0, 1]
