"""Certified codes with Triton: no score is above its bound, whatever the rows; searches find what they find without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.kernels.triton import calls

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from prismem_core import ops  # noqa: E402
from prismem_core.arrays import Rows  # noqa: E402
from prismem_core.kernels.triton import codes, codes_kernel, launch  # noqa: E402
from prismem_core.kernels.triton.codes import Codes  # noqa: E402
from prismem_core.kernels.triton.row_scales import row_scales  # noqa: E402
from prismem_core.kernels.triton.similarity import similarity  # noqa: E402
from prismem_core.ops.similarity import exact_scores  # noqa: E402

Array = NDArray[Any]


@triton.jit
def write_bounds(
    high, low, constants, sums, values, scale, error, length, out, num_queries, num_keys, width,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    query = tl.arange(0, BQ).to(tl.int64)
    key = tl.arange(0, BN).to(tl.int64)
    inside, within = query < num_queries, key < num_keys
    bounds = codes_kernel.bounds_of_tile(
        high, low, constants, sums, values, scale, error, length, query, inside, key, within, num_queries, width,
        BQ, BN, BD, PACKED,
    )  # fmt: skip
    tl.store(out + query[:, None] * num_keys + key[None, :], bounds, mask=inside[:, None] & within[None, :])


def bounds_of(queries: Any, made: Codes) -> Array:
    """The bounds (m, n) that a search computes."""
    encoded = codes.encode_queries(queries, made, row_scales(queries, device=calls.DEVICE), calls.DEVICE)
    count, width = queries.shape[0], made.values.shape[1]
    out = calls.garbage(count, made.count, kind="float32")
    write_bounds[(1,)](
        *encoded, made.values, made.scale, made.error, made.length, out, count, made.count, width,
        BQ=launch.power_of_two(max(count, 16)), BN=launch.power_of_two(max(made.count, 16)), BD=128,
        PACKED=made.bits == 4,
    )  # fmt: skip
    return np.asarray(out.numpy())


def rows_of(tensor: Any) -> Rows:
    kind = launch.kind_of(tensor)
    if kind == "bfloat16":
        return Rows("rows", tensor.view(torch.int16).numpy().view(np.uint16), kind)
    return Rows("rows", tensor.numpy(), kind)


def assert_no_score_is_above(queries: Any, keys: Any, bits: int, normalize: bool) -> Array:
    """Neither the real number nor what a kernel computes, which may round against the bound; returns what is lost."""
    made = codes.encode(keys, bits, normalize=normalize, device=calls.DEVICE)
    bounds = bounds_of(queries, made).astype(np.float64)
    exact = exact_scores(rows_of(queries), rows_of(keys), normalize)
    computed = calls.garbage(*exact.shape, kind="float32")
    similarity(queries, keys, normalize, computed, None, device=calls.DEVICE)
    assert not np.isnan(bounds).any()
    real = ~np.isnan(exact)
    assert (bounds >= exact)[real].all()
    shown = computed.numpy()
    assert (bounds >= shown)[~np.isnan(shown)].all()
    return np.asarray((bounds - exact)[np.isfinite(bounds) & real])


def isotropic(rng: np.random.Generator, count: int, dim: int) -> Array:
    return np.asarray(rng.standard_normal((count, dim)), np.float32)


def near_equal(rng: np.random.Generator, count: int, dim: int) -> Array:
    """Rows that differ in the last bits."""
    row = rng.standard_normal(dim)
    return np.asarray(row * (1 + 2.0**-23 * rng.integers(-3, 4, (count, dim))), np.float32)


def spikes(rng: np.random.Generator, count: int, dim: int) -> Array:
    """One large element a row, so that codes of all others are 0."""
    rows = 1e-3 * rng.standard_normal((count, dim))
    rows[np.arange(count), rng.integers(0, dim, count)] = 1e3
    return np.asarray(rows, np.float32)


def scales(rng: np.random.Generator, count: int, dim: int) -> Array:
    """Lengths from subnormal numbers to the largest, some zero."""
    rows = rng.standard_normal((count, dim)) * 10.0 ** rng.uniform(-44, 37, (count, 1))
    rows[::7] = 0.0
    return np.asarray(rows, np.float32)


def edges(rng: np.random.Generator, count: int, dim: int) -> Array:
    """Values at the edge between two codes, where rests are largest."""
    rows = (rng.integers(-127, 127, (count, dim)) + 0.5) / 127
    rows[:, 0] = 1.0
    return np.asarray(rows, np.float32)


MAKERS = (isotropic, near_equal, spikes, scales, edges)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("make", MAKERS)
def test_no_score_is_above_its_bound(make: Any, bits: int, normalize: bool) -> None:
    rng = np.random.default_rng(11)
    for dim in (1, 31, 257):
        for kind in ("float32", "float16", "bfloat16")[: 3 if dim == 31 else 1]:
            keys, queries = make(rng, 60, dim), make(rng, 9, dim)
            if kind == "float16":
                keys, queries = np.clip(keys, -6e4, 6e4), np.clip(queries, -6e4, 6e4)
            if kind == "bfloat16":  # the interpreter reads subnormal numbers of this kind as others
                keys, queries = (np.where(np.abs(rows) < 2.0**-126, 0, rows) for rows in (keys, queries))
            queries[0] = keys[3]
            queries[1] = -keys[4]
            with np.errstate(over="ignore"):
                assert_no_score_is_above(calls.of_kind(queries, kind), calls.of_kind(keys, kind), bits, normalize)


@pytest.mark.parametrize("bits", [8, 4])
def test_queries_along_the_rest_of_a_row_come_close_to_the_bound(bits: int) -> None:
    """Where Cauchy and Schwarz give equality, what the bound adds is little more than it must."""
    rng = np.random.default_rng(12)
    keys = edges(rng, 40, 200)
    tensor = torch.from_numpy(keys)
    made = codes.encode(tensor, bits, normalize=False, device=calls.DEVICE)
    if bits == 8:
        values = made.values[:, :200].numpy().astype(np.float64)
    else:
        packed = made.values.numpy().astype(np.int64)
        values = np.concatenate([(packed & 15) - 8, (packed >> 4) - 8], axis=1)[:, :200].astype(np.float64)
    rests = keys.astype(np.float64) - made.scale.numpy()[:, None].astype(np.float64) * values
    lengths = np.linalg.norm(rests, axis=1)
    assert (made.error.numpy() >= lengths).all()
    assert (made.error.numpy() <= 1.001 * lengths).all()
    queries = torch.from_numpy(rests.astype(np.float32))
    assert_no_score_is_above(queries, tensor, bits, False)
    bounds, exact = bounds_of(queries, made), exact_scores(rows_of(queries), rows_of(tensor), False)
    own = np.arange(40)
    lost = bounds[own, own] - exact[own, own]
    assert (lost <= 2e-3 * np.linalg.norm(rests, axis=1) * np.linalg.norm(keys, axis=1)).all()


def test_rows_that_are_not_finite_have_no_bound() -> None:
    keys = np.ones((8, 5), np.float32)
    keys[1, 2], keys[2, 0], keys[3, 4], keys[4] = np.nan, np.inf, -np.inf, 3e38
    queries = np.ones((3, 5), np.float32)
    queries[1] = 0.0
    for bits in (8, 4):
        made = codes.encode(torch.from_numpy(keys), bits, normalize=False, device=calls.DEVICE)
        bounds = bounds_of(torch.from_numpy(queries), made)
        assert np.isinf(bounds[:, 1:4]).all()
        assert np.isinf(bounds[[0, 2], 4]).all()
        assert np.isfinite(bounds[:, [0, 5, 6, 7]]).all()
        queries_not_finite = np.full((1, 5), np.nan, np.float32)
        assert np.isinf(bounds_of(torch.from_numpy(queries_not_finite), made)).all()


@pytest.fixture
def searched_again(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many queries of each search were not proven by their codes."""
    found: list[int] = []
    plain = codes._search_again

    def noted(pair: Any, order: Any, total: Any, *rest: Any) -> None:
        found.append(int(total.item()))
        plain(pair, order, total, *rest)

    monkeypatch.setattr(codes, "_search_again", noted)
    return found


def clusters(rng: np.random.Generator, count: int, dim: int) -> Array:
    """Whole numbers: a few rows near each centre, so that the best keys stand out, and all scores are exact."""
    centres = 8 * rng.integers(-2, 3, (count // 20, dim))
    return np.asarray(centres[np.arange(count) % len(centres)] + rng.integers(-1, 2, (count, dim)), np.float32)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("bits", [8, 4])
def test_hits_are_those_of_the_definition(bits: int, count: int, searched_again: list[int]) -> None:
    rng = np.random.default_rng(13)
    keys = clusters(rng, 1100, 70)
    queries = keys[rng.integers(0, 1100, count)] + rng.integers(-1, 2, (count, 70)).astype(np.float32)
    masks = (None, rng.random(1100) < 0.8, rng.random((count, 1100)) < 0.8)
    for kind in ("float32", "float16", "bfloat16"):
        left, right = calls.of_kind(queries, kind), calls.of_kind(keys, kind)
        made = codes.encode(right, bits, normalize=False, device=calls.DEVICE)
        for mask, min_score in zip(masks, (None, 1500.0, -100.0), strict=True):
            if kind == "bfloat16" and mask is not None:
                continue
            call = ops.TOP_K.check(queries, keys, 7, mask=mask, min_score=min_score)
            noted = calls.flag()
            mask_tensor = None if mask is None else torch.from_numpy(mask)
            found = calls.hits_of_codes(left, right, made, 7, mask=mask_tensor, min_score=min_score, noted=noted)
            for part, wanted in zip(found, ops.TOP_K.reference(call), strict=True):
                np.testing.assert_array_equal(part, wanted)
            assert noted.item() == calls.UNTOUCHED
    if bits == 8:
        assert searched_again == [0] * 7  # codes alone prove what stands out


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("make", [*MAKERS, clusters])
def test_whatever_the_rows_hits_agree_with_the_definition(make: Any, normalize: bool, bits: int) -> None:
    rng = np.random.default_rng(14)
    keys, queries = make(rng, 1050, 33), make(rng, 60, 33)[:2]
    queries[1] = keys[500]
    nonfinite = "skip" if make is scales else "raise"
    call = ops.TOP_K.check(queries, keys, 5, normalize=normalize, nonfinite=nonfinite)
    made = codes.encode(torch.from_numpy(keys), bits, normalize=normalize, device=calls.DEVICE)
    found = calls.hits_of_codes(torch.from_numpy(queries), torch.from_numpy(keys), made, 5)
    assert ops.TOP_K.agrees(found, call) is None


def test_what_codes_do_not_prove_is_searched_again(searched_again: list[int]) -> None:
    rng = np.random.default_rng(15)
    keys = np.asarray(rng.integers(-2, 3, (20, 40))[rng.integers(0, 20, 1100)], np.float32)  # each row 55 times
    queries = np.asarray(rng.integers(-2, 3, (37, 40)), np.float32)
    queries[::3] = 0.0  # all scores are equal
    call = ops.TOP_K.check(queries, keys, 16)
    made = codes.encode(torch.from_numpy(keys), 8, normalize=False, device=calls.DEVICE)
    found = calls.hits_of_codes(torch.from_numpy(queries), torch.from_numpy(keys), made, 16)
    for part, wanted in zip(found, ops.TOP_K.reference(call), strict=True):
        np.testing.assert_array_equal(part, wanted)
    assert 13 <= searched_again[0] < 37


def test_scores_that_are_not_finite_are_found_and_reported() -> None:
    rng = np.random.default_rng(16)
    keys = clusters(rng, 1100, 12)
    keys[[77, 900], 3] = np.nan, np.inf
    queries = np.ones((2, 12), np.float32)
    call = ops.TOP_K.check(queries, keys, 4, nonfinite="skip")
    tensors = torch.from_numpy(queries), torch.from_numpy(keys)
    made = codes.encode(tensors[1], 8, normalize=False, device=calls.DEVICE)
    noted = calls.flag()
    found = calls.hits_of_codes(*tensors, made, 4, noted=noted)
    assert found.indices[:, 0].tolist() == [900, 900]
    for part, wanted in zip(found, ops.TOP_K.reference(call), strict=True):
        np.testing.assert_array_equal(part, wanted)
    assert noted.item() == 77
    mask = np.ones(1100, np.bool_)
    mask[[77, 900]] = False
    noted = calls.flag()
    calls.hits_of_codes(*tensors, made, 4, mask=torch.from_numpy(mask), noted=noted)
    assert noted.item() == calls.UNTOUCHED
    keys[:200] = np.nan  # more than are scored: such a search is made again
    made = codes.encode(tensors[1], 8, normalize=False, device=calls.DEVICE)
    noted = calls.flag()
    call = ops.TOP_K.check(queries, keys, 4, nonfinite="skip")
    found = calls.hits_of_codes(*tensors, made, 4, noted=noted)
    np.testing.assert_array_equal(found.indices, ops.TOP_K.reference(call).indices)
    assert noted.item() == 0


def test_codes_of_rows_that_are_added_are_those_of_all_rows() -> None:
    rng = np.random.default_rng(17)
    keys = torch.from_numpy(isotropic(rng, 50, 9))
    for bits in (8, 4):
        whole = codes.encode(keys, bits, normalize=True, device=calls.DEVICE)
        grown = codes.empty(60, 9, bits, True, device=calls.DEVICE)
        for first, last in ((0, 20), (20, 20), (20, 50)):
            codes.encode_into(keys[first:last].clone(), grown, first, device=calls.DEVICE)
        for name in ("values", "scale", "error", "length"):
            assert torch.equal(getattr(grown.of(0, 50), name), getattr(whole, name))
        assert whole.bytes == 50 * codes.row_bytes(9, bits)


@pytest.mark.parametrize("sm", [80, 90])
@pytest.mark.parametrize("bits", [8, 4])
def test_the_tiles_of_a_device_give_the_same(sm: int, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "sm_of", lambda device: sm)
    rng = np.random.default_rng(18)
    keys = clusters(rng, 1100, 70)
    for count in (1, 20):
        queries = keys[rng.integers(0, 1100, count)]
        call = ops.TOP_K.check(queries, keys, 7)
        made = codes.encode(torch.from_numpy(keys), bits, normalize=False, device=calls.DEVICE)
        found = calls.hits_of_codes(torch.from_numpy(queries), torch.from_numpy(keys), made, 7)
        for part, wanted in zip(found, ops.TOP_K.reference(call), strict=True):
            np.testing.assert_array_equal(part, wanted)
