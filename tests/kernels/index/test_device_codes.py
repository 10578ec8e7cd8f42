"""Codes of an index on a device: made when they should be, true to the rows after every change, never needed.

The stand-in for codes compares them with the rows in each search.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from prismem_core import VectorIndex
from prismem_core.errors import ArgumentError, NoImplementation
from prismem_core.index import device_codes
from prismem_core.index.device_blocks import BlockSizes
from tests.kernels.index.stand_ins import LAUNCHERS, StandInCodes, index_on_device, launchers_with_codes, torch

RNG = np.random.default_rng(5)
ROWS = RNG.integers(-3, 4, (300, 6)).astype(np.float32)
QUERIES = RNG.integers(-3, 4, (4, 6)).astype(np.float32)
LARGE = BlockSizes(1 << 20, 1 << 20, 1 << 20)


def made(codes: str, **options: Any) -> tuple[VectorIndex, StandInCodes]:
    launchers = launchers_with_codes()
    return index_on_device(6, codes=codes, launchers=launchers, **options), launchers.codes


def agrees(index: VectorIndex) -> None:
    plain = VectorIndex(6, codes="never")
    plain.add(index.get(index.ids), index.ids)
    for filter in (None, RNG.random(len(index)) < 0.5, RNG.random((4, len(index))) < 0.5, index.ids[:9]):
        found, wanted = index.search(QUERIES, 7, filter=filter), plain.search(QUERIES, 7, filter=filter)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("policy", ["always", "int8", "int4"])
@pytest.mark.parametrize("memory_bytes", [None, 8000])
def test_codes_follow_every_change(policy: str, memory_bytes: int | None) -> None:
    index, codes = made(policy, memory_bytes=memory_bytes)
    index.add(ROWS[:100])
    assert index.stats().coded
    assert index.stats().code_bytes > 0
    agrees(index)
    assert codes.searches > 0
    index.add(ROWS[100:])
    stats = index.stats()
    assert stats.coded, "of all rows that are on the device"
    if memory_bytes is not None:
        assert stats.streamed_bytes > 0
        assert stats.row_bytes - stats.streamed_bytes + stats.code_bytes <= memory_bytes
    agrees(index)
    index.update([0, 99, 150, 299, 7], ROWS[:5] + 1)
    agrees(index)
    index.remove(np.arange(10, 290))
    assert index.stats().removed == 0, "the rows have moved"
    agrees(index)
    index.add(ROWS)
    index.remove(index.ids[::9])
    agrees(index)


def test_room_that_was_reserved_is_room_for_codes_too() -> None:
    index, _ = made("int8", memory_bytes=20_000, sizes=BlockSizes(1000, 8000, 1000))
    index.reserve(250)
    index.reserve(500)
    for begin in range(0, 500, 100):
        index.add(np.tile(ROWS, (2, 1))[begin : begin + 100])
        stats = index.stats()
        assert stats.row_bytes - stats.streamed_bytes + stats.code_bytes <= 20_000
    assert stats.coded
    assert stats.streamed_bytes > 0
    agrees(index)


def test_an_update_encodes_the_rows_that_changed_and_no_others() -> None:
    index, codes = made("int8", sizes=LARGE)
    index.add(ROWS)
    before = codes.encoded
    index.update([5, 200, 17], ROWS[:3] + 1)
    assert codes.encoded == before + 3
    agrees(index)
    assert codes.encoded == before + 3


def test_codes_never_come_unasked_but_come_when_asked() -> None:
    index, codes = made("never")
    index.add(ROWS)
    agrees(index)
    assert (codes.encoded, index.stats().coded, index.stats().code_bytes) == (0, False, 0)
    index.build_codes()
    stats = index.stats()
    assert stats.coded
    assert stats.code_bytes == stats.capacity * StandInCodes.row_bytes(6, 8)
    assert stats.code_seconds > 0
    agrees(index)
    assert codes.searches > 0
    index.build_codes()
    assert codes.encoded == 600
    assert index.stats().code_bytes == stats.code_bytes


def test_automatic_codes_come_when_they_have_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_codes, "FEWEST_BYTES", 5000)
    monkeypatch.setattr(device_codes, "WORTHWHILE", 2.0)
    index, codes = made("auto")
    index.add(ROWS[:200])
    for _ in range(20):
        index.search(QUERIES, 3)
    assert not index.stats().coded, "too few rows"
    index.add(ROWS[200:])
    index.search(QUERIES, 3)
    index.search(np.tile(QUERIES, (40, 1)), 3)
    index.search(QUERIES, 3)
    assert not index.stats().coded, "8 queries in two calls; the batch of 160 does not count"
    index.search(QUERIES[:1], 3)
    assert index.stats().coded
    agrees(index)
    assert codes.searches > 0


def test_automatic_codes_need_room_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_codes, "FEWEST_BYTES", 0)
    monkeypatch.setattr(device_codes, "WORTHWHILE", 2.0)
    index, codes = made("auto", memory_bytes=12_000, sizes=BlockSizes(1000, 10_000, 1000))
    index.add(ROWS)
    assert index.stats().streamed_bytes == 0
    for _ in range(20):
        index.search(QUERIES, 3)
    assert (index.stats().coded, codes.encoded) == (False, 0)


def test_automatic_codes_are_not_made_where_they_are_hardly_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_codes, "FEWEST_BYTES", 0)
    index, codes = made("auto")
    index.add(ROWS)
    for _ in range(20):
        index.search(QUERIES, 3)
    assert (index.stats().coded, codes.encoded) == (False, 0)


def test_large_batches_are_searched_without() -> None:
    index, codes = made("int8")
    index.add(ROWS)
    index.search(np.tile(QUERIES, (33, 1)), 3)
    assert codes.searches == 0
    index.search(np.tile(QUERIES, (32, 1)), 3)
    assert codes.searches > 0


def test_without_memory_for_codes_there_are_none_and_a_note(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, codes = made("int8", memory_bytes=90_000, sizes=BlockSizes(1000, 8000, 1000))

    def short(*arguments: Any, **options: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with caplog.at_level(logging.WARNING, "prismem_core"), monkeypatch.context() as patch:
        patch.setattr(codes, "empty", short)
        index.add(ROWS[:200])
    assert [record.message for record in caplog.records] == [
        "cpu has no memory for codes: the index is searched without them; build_codes() tries again"
    ]
    stats = index.stats()
    assert (stats.coded, stats.code_bytes, codes.searches) == (False, 0, 0)
    agrees(index)
    index.build_codes()
    assert index.stats().coded
    full, _ = made("never", memory_bytes=9000, sizes=BlockSizes(1000, 8000, 1000))
    full.add(ROWS[:200])
    with pytest.raises(MemoryError, match="the codes of 200 rows exceed the memory left on cpu"):
        full.build_codes()
    agrees(full)
    stats = full.stats()
    assert full._store._memory.held == stats.row_bytes - stats.streamed_bytes  # type: ignore[attr-defined]


def test_a_shortage_while_an_update_is_followed_costs_no_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    index, codes = made("int8", sizes=LARGE)
    index.add(ROWS)

    def short(*arguments: Any, **options: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(codes, "encode", short)
        index.update([100], ROWS[:1] + 1)
    assert index.stats().coded, "made anew from row 100 on"
    agrees(index)
    with monkeypatch.context() as patch:
        patch.setattr(codes, "encode", short)
        patch.setattr(codes, "encode_into", short)
        index.update([100], ROWS[:1] + 2)
    assert not index.stats().coded
    agrees(index)


def test_kernels_or_dimensions_without_codes_say_so() -> None:
    plain = index_on_device(6, codes="int8", launchers=LAUNCHERS)
    plain.add(ROWS)
    agrees(plain)
    with pytest.raises(NoImplementation, match="codes: the backend 'stand-in' has none; use the kernels of Triton"):
        plain.build_codes()
    long = index_on_device(100, codes="int8", launchers=launchers_with_codes())
    long.add(np.ones((3, 100), np.float32))
    assert long.search(np.ones((1, 100), np.float32), 1).ids.tolist() == [[0]]
    with pytest.raises(ArgumentError, match="codes: rows of 100 dimensions are searched without codes on a device"):
        long.build_codes()
