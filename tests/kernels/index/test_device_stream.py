"""Rows beyond the memory of a device: brought in while others are searched, never written over or read too early."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prismem_core import VectorIndex
from prismem_core.index.device_blocks import Block, BlockSizes
from tests.kernels.index.recorder import Recorder
from tests.kernels.index.stand_ins import LAUNCHERS, index_on_device, top_k, torch

SIZES = BlockSizes(least=512, most=4096, host=320)  # 10 rows of 8 numbers a piece on the host
RNG = np.random.default_rng(3)
ROWS = RNG.integers(-3, 4, (300, 8)).astype(np.float32)
QUERIES = RNG.integers(-3, 4, (5, 8)).astype(np.float32)


def watched(recorder: Recorder, fail_at: int | None = None) -> Any:
    """Kernels whose searches the recorder sees; the one numbered `fail_at` fails."""
    searches = 0

    def seen(queries: Any, keys: Any, *rest: Any, **options: Any) -> None:
        nonlocal searches
        recorder.search(keys)
        searches += 1
        if searches - 1 == fail_at:
            raise RuntimeError("the kernel failed")
        top_k(queries, keys, *rest, **options)

    return replace(LAUNCHERS, top_k=seen)


def streamed(recorder: Recorder, memory_bytes: int, **options: Any) -> VectorIndex:
    launchers = watched(recorder, options.pop("fail_at", None))
    index = index_on_device(8, memory_bytes=memory_bytes, sizes=SIZES, launchers=launchers, streams=recorder, **options)
    index.add(ROWS)
    return index


def blocks_of(index: VectorIndex) -> list[Block]:
    blocks: list[Block] = index._store._blocks.blocks  # type: ignore[attr-defined]
    return blocks


def expected(queries: np.ndarray, k: int) -> Any:
    plain = VectorIndex(8, codes="never")
    plain.add(ROWS)
    return plain.search(queries, k)


@pytest.mark.parametrize("memory_bytes", [0, 1000, 5000, 9000])
def test_copies_and_searches_are_ordered_where_they_must_and_free_where_they_can(memory_bytes: int) -> None:
    recorder = Recorder()
    index = streamed(recorder, memory_bytes)
    stats = index.stats()
    assert stats.streamed_bytes > 0
    assert stats.row_bytes - stats.streamed_bytes <= memory_bytes
    for _ in range(3):
        found = index.search(QUERIES, 7)
        recorder.finished()
        for one, other in zip(found, expected(QUERIES, 7), strict=True):
            np.testing.assert_array_equal(one, other)
    copies = [operation for operation in recorder.operations if operation.writes]
    pieces = len(copies) // 3
    used = [(min(300, block.end) - block.start) for block in blocks_of(index) if block.on_host]
    assert pieces == sum(-(-rows // 10) for rows in used), "each row once a search"
    assert len({operation.buffer for operation in copies}) == 2, "two buffers, which are kept"
    assert recorder.races() == []
    assert recorder.settled == 0, "nobody waits on the host between the pieces"
    # While the search of each piece runs, the copy of the next one may run.
    assert len(recorder.overlaps()) >= 3 * (pieces - 1)


@pytest.mark.parametrize("deaf_to", ["searches", "copies"])
def test_without_either_wait_there_are_races(deaf_to: str) -> None:
    recorder = Recorder(deaf_to=deaf_to)
    streamed(recorder, 0).search(QUERIES, 7)
    assert recorder.races() != []


def test_copies_are_one_piece_ahead() -> None:
    """The copy of piece n + 2 waits for the search of piece n and for no later one."""
    recorder = Recorder()
    streamed(recorder, 0).search(QUERIES, 7)
    copies = [place for place, operation in enumerate(recorder.operations) if operation.writes]
    searches = [place for place, operation in enumerate(recorder.operations) if not operation.writes]
    assert len(copies) == len(searches) == 30
    for number, place in enumerate(copies):
        behind = recorder.operations[place].behind
        assert [search in behind for search in searches] == [other <= number - 2 for other in range(30)]
    for number, place in enumerate(searches):
        behind = recorder.operations[place].behind
        assert [copy in behind for copy in copies] == [other <= number for other in range(30)]


def test_after_a_failed_search_both_streams_are_waited_for() -> None:
    recorder = Recorder()
    index = streamed(recorder, 0, fail_at=4)
    with pytest.raises(RuntimeError, match="the kernel failed"):
        index.search(QUERIES, 7)
    assert recorder.settled == 1
    found = index.search(QUERIES, 7)
    np.testing.assert_array_equal(found.ids, expected(QUERIES, 7).ids)
    assert recorder.races() == []


def test_searches_of_several_threads_take_turns_at_the_buffers() -> None:
    recorder = Recorder()
    index = streamed(recorder, 2000)
    wanted, failures = expected(QUERIES, 7), []

    def work() -> None:
        try:
            for _ in range(10):
                np.testing.assert_array_equal(index.search(QUERIES, 7).ids, wanted.ids)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []


def test_rows_on_the_host_are_changed_like_those_on_the_device() -> None:
    index, plain = streamed(Recorder(), 3000), VectorIndex(8, codes="never")
    plain.add(ROWS)
    for change in (
        lambda one: one.update([3, 299, 150], ROWS[:3]),
        lambda one: one.remove(np.arange(20, 295)),
        lambda one: one.add(torch.from_numpy(ROWS[::-1].copy()) if one is index else ROWS[::-1].copy()),
        lambda one: one.remove(np.arange(300, 590)),
    ):
        change(index)
        change(plain)
        np.testing.assert_array_equal(index.get(index.ids), plain.get(plain.ids))
        for filter in (None, index.ids[::7], index.ids[::2]):
            found, wanted = index.search(QUERIES, 9, filter=filter), plain.search(QUERIES, 9, filter=filter)
            np.testing.assert_array_equal(found.ids, wanted.ids)
