"""VectorIndex with certified codes: they change nothing but time, whatever happens to the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismem_core import VectorIndex, ops
from prismem_core.errors import ArgumentError, VectorIndexError
from prismem_core.index import SearchResult
from tests.index.conftest import DTYPES, METRICS, kept

PAGE = 4096


def mixture(count: int, dim: int, seed: int = 0) -> np.ndarray:
    """Rows around fifty centres, off the origin, as embeddings are; a tenth stands there twice."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((50, dim)) + 0.5
    rows = centres[rng.integers(0, 50, count)] + 0.4 * rng.standard_normal((count, dim))
    rows[: count // 10] = rows[count // 2 : count // 2 + count // 10]
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


VALUES = mixture(6000, 48)
QUERIES = mixture(7, 48, seed=1)


def same(found: SearchResult, expected: SearchResult) -> None:
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores.view(np.uint32), expected.scores.view(np.uint32))
    np.testing.assert_array_equal(found.counts, expected.counts)


def searches(index: VectorIndex) -> list[SearchResult]:
    rng = np.random.default_rng(3)
    mask = rng.random(len(index)) < 0.5
    arguments: list[dict[str, Any]] = [
        {},
        {"filter": mask},
        {"filter": rng.random((7, len(index))) < 0.3},
        {"filter": index.ids[mask]},
        {"filter": index.ids[:50]},
        {"min_score": 0.5},
        {"min_score": 0.9, "filter": mask},
    ]
    found = [index.search(QUERIES, k, **options) for k in (1, 10, 100) for options in arguments]
    found += [index.search(QUERIES[:1], 10), index.search(QUERIES, 10**6)]
    return [
        *found,
        index.mmr(QUERIES, 10, relevance_weight=0.6),
        index.mmr(QUERIES, 5, relevance_weight=0, filter=mask),
    ]


def plain_and_coded(**options: Any) -> tuple[VectorIndex, VectorIndex]:
    return VectorIndex(48, codes="never", **options), VectorIndex(48, codes="always", **options)


def agree(plain: VectorIndex, coded: VectorIndex) -> None:
    assert (plain.stats().coded, coded.stats().coded) == (False, True)
    for found, expected in zip(searches(coded), searches(plain), strict=True):
        same(found, expected)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("metric", METRICS)
def test_codes_change_no_bit(dtype: str, metric: str) -> None:
    pair = plain_and_coded(dtype=dtype, metric=metric)
    for index in pair:
        index.add(VALUES)
    agree(*pair)
    normalize, bits = metric == "cosine", {"dtype": "bfloat16"} if dtype == "bfloat16" else {}
    expected = ops.top_k(QUERIES, kept(VALUES, dtype), 10, normalize=normalize, **bits)
    same(pair[1].search(QUERIES, 10), SearchResult(expected.scores, expected.indices, expected.counts))


@pytest.mark.parametrize("metric", METRICS)
def test_codes_follow_every_change(metric: str, tmp_path: Path) -> None:
    plain, coded = pair = plain_and_coded(metric=metric)
    rng = np.random.default_rng(5)
    for begin, end in ((0, 3), (3, 1500), (1500, 1501), (1501, 6000)):
        for index in pair:
            index.add(VALUES[begin:end])
    agree(plain, coded)
    changed = rng.permutation(6000)[:700]
    # Rows that were bad hits become the best ones, among them neighbours, ends of blocks and the last one.
    changed = np.unique([*changed, 0, 15, 16, 17, 5999])
    for index in pair:
        index.update(changed, QUERIES[changed % 7])
    agree(plain, coded)
    for gone in (changed[:100], rng.permutation(np.setdiff1d(np.arange(6000), changed))[:2500]):
        for index in pair:
            index.remove(gone)
        agree(plain, coded)
    assert coded.stats().removed == 0, "slots have moved"
    for index in pair:
        index.add(VALUES[gone[:1000]])
        index.remove(index.ids[::1000])
    agree(plain, coded)
    for index in pair:
        index.save(tmp_path / "index")
    agree(plain, coded)
    agree(plain, VectorIndex.load(tmp_path / "index"))
    for index in pair:
        index.remove(index.ids)
        index.add(VALUES[:2000])
    agree(plain, coded)


def test_codes_stay_exact_where_they_prove_nothing() -> None:
    rng = np.random.default_rng(8)
    for values in (
        rng.standard_normal((5000, 48)).astype(np.float32),
        np.ldexp(rng.standard_normal((5000, 48)), rng.integers(-60, 40, (5000, 1))).astype(np.float32),
        np.zeros((5000, 48), np.float32),
        np.ones((5000, 48), np.float32),
        rng.integers(-1, 2, (5000, 48)).astype(np.float32),
        np.full((5000, 48), 1e-42, np.float32),
    ):
        for metric in METRICS:
            pair = plain_and_coded(metric=metric)
            for index in pair:
                index.add(values)
            agree(*pair)


def test_automatic_codes_come_when_they_have_paid() -> None:
    index = VectorIndex(48)
    index.add(VALUES)
    first = index.search(QUERIES[:1], 10)
    for _ in range(31):
        index.search(QUERIES[:1], 10)
    assert not index.stats().coded
    assert index.stats().code_bytes == 0
    same(index.search(QUERIES[:1], 10), first)
    stats = index.stats()
    assert stats.coded
    assert stats.code_bytes > 6000 * 48
    assert 0 < stats.code_seconds < 60
    batch = VectorIndex(48)
    batch.add(VALUES)
    batch.search(np.tile(QUERIES, (10, 1)), 10)
    assert not batch.stats().coded
    batch.search(QUERIES, 10, filter=[3])
    assert batch.stats().coded


def test_automatic_codes_are_not_made_for_few_rows() -> None:
    index = VectorIndex(48)
    index.add(VALUES[:4000])
    index.search(np.tile(QUERIES, (100, 1)), 10)
    index.search(QUERIES, 10)
    assert not index.stats().coded
    index.build_codes()
    assert index.stats().coded
    expected = VectorIndex(48, codes="never")
    expected.add(VALUES[:4000])
    agree(expected, index)


def test_codes_never_come_unasked_but_come_when_asked() -> None:
    index = VectorIndex(48, codes="never")
    index.add(VALUES)
    for _ in range(40):
        index.search(QUERIES, 10)
    assert not index.stats().coded
    index.build_codes()
    before = index.stats().code_seconds
    index.build_codes()
    assert index.stats().code_seconds > before
    index.add(VALUES[:100])
    expected = VectorIndex(48, codes="never")
    expected.add(VALUES)
    expected.add(VALUES[:100])
    agree(expected, index)


def test_the_centre_is_found_anew_as_an_index_grows() -> None:
    """The first rows lie elsewhere: codes around them would prove little about the others."""
    plain, coded = pair = plain_and_coded()
    for index in pair:
        index.add(-VALUES[:20])
        for begin in range(0, 6000, 500):
            index.add(VALUES[begin : begin + 500])
    agree(plain, coded)


# In the file.


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    index = VectorIndex(48, dtype="float16", metric="cosine", codes="always")
    index.add(VALUES)
    index.save(tmp_path / "index")
    return tmp_path / "index"


def test_codes_are_saved_loaded_and_mapped(saved: Path) -> None:
    plain = VectorIndex(48, dtype="float16", metric="cosine", codes="never")
    plain.add(VALUES)
    loaded, opened = VectorIndex.load(saved), VectorIndex.open(saved, verify=True)
    agree(plain, loaded)
    agree(plain, opened)
    assert loaded.stats().code_bytes > 6000 * 48
    assert (opened.stats().code_bytes, opened.stats().code_seconds) == (0, 0.0)
    for index in (plain, loaded):
        index.add(QUERIES)
        index.update(index.ids[:3], VALUES[7:10])
        index.remove(index.ids[100:3000])
    agree(plain, loaded)
    without = VectorIndex.load(saved, codes="never")
    assert not without.stats().coded
    opened.build_codes()
    assert opened.stats().code_bytes > 6000 * 48
    same(opened.search(QUERIES, 10), without.search(QUERIES, 10))
    opened.save(saved)
    assert VectorIndex.open(saved).stats().coded
    without.save(saved)
    assert not VectorIndex.open(saved).stats().coded
    mapped = VectorIndex.open(saved)
    for _ in range(6):
        mapped.search(QUERIES, 10)
    assert mapped.stats().coded, "a mapped index makes codes in memory as any other"
    same(mapped.search(QUERIES, 10), without.search(QUERIES, 10))


def sections(data: bytes) -> list[tuple[int, int, int]]:
    """Kind, offset and length of each."""
    count = int.from_bytes(data[20:24], "little")
    entries = [data[64 + 32 * i : 96 + 32 * i] for i in range(count)]
    return [tuple(int.from_bytes(e[a:b], "little") for a, b in ((0, 4), (8, 16), (16, 24))) for e in entries]  # type: ignore[misc]


def test_damaged_codes_are_found(saved: Path) -> None:
    data = saved.read_bytes()
    listed = sections(data)
    groups = 6
    assert [(kind, size) for kind, _, size in listed] == [
        (1, 6000 * 96),
        (2, 6000 * 8),
        (3, 375 * (128 + 64 * groups)),
        (4, 6000 * 64),
        (5, 6000 * 2),
        (6, 48 * 4),
    ]
    for kind, offset, size in listed:
        for place in (offset, offset + size // 2, offset + size - 1, offset + -(-size // PAGE) * PAGE - 1):
            flipped = bytearray(data)
            flipped[place] ^= 16
            saved.write_bytes(flipped)
            for read in (VectorIndex.load, lambda path: VectorIndex.open(path, verify=True)):
                with pytest.raises(VectorIndexError, match="is damaged: the section at byte"):
                    read(saved)
            if kind >= 3:
                # Unread checksums: the answer may be wrong, but the hits it gives are scored from the rows.
                found = VectorIndex.open(saved).search(QUERIES[:1], 5)
                assert found.counts.tolist() <= [5]


def test_code_sections_of_wrong_sizes_are_refused(saved: Path) -> None:
    from prismem_core._native import crc32c

    data = saved.read_bytes()
    for number in range(2, 6):
        for change in (-8, 8):
            bent = bytearray(data)
            at = 64 + 32 * number + 16
            size = int.from_bytes(bent[at : at + 8], "little") + change
            bent[at : at + 8] = size.to_bytes(8, "little")
            bent[PAGE - 4 : PAGE] = crc32c(bytes(bent[: PAGE - 4])).to_bytes(4, "little")
            saved.write_bytes(bent)
            for read in (VectorIndex.load, VectorIndex.open):
                with pytest.raises(VectorIndexError, match=r"its codes do not have the size|a section lies outside"):
                    read(saved)
    bent = bytearray(data)
    bent[64 + 32 * 3] = 99
    bent[PAGE - 4 : PAGE] = crc32c(bytes(bent[: PAGE - 4])).to_bytes(4, "little")
    saved.write_bytes(bent)
    with pytest.raises(VectorIndexError, match="a section is missing"):
        VectorIndex.open(saved)


def test_codes_without_bounds_are_not_saved(tmp_path: Path) -> None:
    plain, coded = pair = plain_and_coded()
    for index in pair:
        index.add(VALUES)
        index.add(np.full((1, 48), 1e19, np.float32))
    agree(plain, coded)
    coded.save(tmp_path / "index")
    assert not VectorIndex.open(tmp_path / "index").stats().coded


def test_rows_too_long_for_codes() -> None:
    index = VectorIndex(20_000)
    with pytest.raises(ArgumentError, match="codes: expected at most 16384 dimensions, got 20000"):
        index.build_codes()
    with pytest.raises(ArgumentError, match="codes: expected at most 16384 dimensions, got 20000"):
        VectorIndex(20_000, codes="always")


@pytest.mark.parametrize(
    "make", [lambda codes: VectorIndex(3, codes=codes), lambda codes: VectorIndex.load("x", codes=codes)]
)
def test_errors_of_the_policy(make: Any) -> None:
    for codes in ("int8", None, True):
        with pytest.raises(ArgumentError, match="codes: expected one of never, auto, always"):
            make(codes)
