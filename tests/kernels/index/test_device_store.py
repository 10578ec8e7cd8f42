"""An index on a device: arrays and results, shortage of memory, threads and forks."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prismem_core import VectorIndex
from prismem_core.errors import ArgumentError, NoImplementation, VectorIndexError
from prismem_core.index import PreparedDeviceFilter
from prismem_core.index.device_blocks import BlockSizes
from prismem_core.index.device_memory import DeviceMemory
from prismem_core.ops.inputs import layouts
from tests.kernels.index.stand_ins import LAUNCHERS, TINY, index_on_device, top_k, torch

RNG = np.random.default_rng(11)
ROWS = RNG.integers(-3, 4, (200, 6)).astype(np.float32)
QUERIES = RNG.integers(-3, 4, (7, 6)).astype(np.float32)


def filled(**options: Any) -> VectorIndex:
    index = index_on_device(6, **options)
    index.add(ROWS, np.arange(200) * 3)
    return index


def plain(**options: Any) -> VectorIndex:
    index = VectorIndex(6, codes="never", **options)
    index.add(ROWS, np.arange(200) * 3)
    return index


def same(found: Any, wanted: Any) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def state(index: VectorIndex) -> tuple[Any, ...]:
    return index.ids.tolist(), index.get(index.ids).tolist(), index.add(ROWS[:0]).tolist()


# Arrays.


def test_results_come_in_the_library_of_the_queries() -> None:
    index = filled()
    found = index.search(torch.from_numpy(QUERIES), 5)
    assert all(isinstance(part, torch.Tensor) for part in found)
    assert (found.scores.dtype, found.ids.dtype, found.counts.dtype) == (torch.float32, torch.int64, torch.int64)
    same(found, plain().search(QUERIES, 5))
    same(index.mmr(torch.from_numpy(QUERIES), 5, relevance_weight=0.5), plain().mmr(QUERIES, 5, relevance_weight=0.5))
    assert all(isinstance(part, np.ndarray) for part in index.search(QUERIES, 5))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16"])
def test_rows_of_every_kind_and_layout_are_taken(source: str, dtype: str) -> None:
    tensor = torch.from_numpy(ROWS).to(getattr(torch, source))
    device, core = index_on_device(6, dtype=dtype), VectorIndex(6, dtype=dtype)
    ids = device.add(tensor)
    core.add(tensor)
    np.testing.assert_array_equal(device.get(ids), core.get(ids))
    device.update(ids[::-1].copy(), tensor.t().contiguous().t())
    core.update(ids[::-1].copy(), tensor)
    np.testing.assert_array_equal(device.get(ids), core.get(ids))
    same(device.search(tensor[:3], 4), core.search(tensor[:3], 4))


def test_numpy_rows_of_every_layout_are_taken() -> None:
    for label, laid in (*layouts(ROWS), *layouts(ROWS.astype(np.float16))):
        device, core = index_on_device(6), VectorIndex(6)
        np.testing.assert_array_equal(device.get(device.add(laid)), core.get(core.add(laid)), err_msg=label)
        same(device.search(laid[:9], 5), core.search(laid[:9], 5))


def test_rows_are_rounded_to_nearest_even() -> None:
    rng = np.random.default_rng(3)
    values = np.ldexp(rng.standard_normal((500, 16)), rng.integers(-30, 14, (500, 16))).astype(np.float32)
    values[0] = [0, -0.0, 1e-45, -1e-45, 6e-8, 2.98e-8, 5.96e-8, 8.94e-8, 6.1e-5, 65503.9, 65519, 1, 1, 1, 1, 1]
    for dtype in ("float16", "bfloat16"):
        device, core = index_on_device(16, dtype=dtype), VectorIndex(16, dtype=dtype)
        device.add(values)
        core.add(values)
        np.testing.assert_array_equal(
            device.get(device.ids).view(np.uint32), core.get(core.ids).view(np.uint32), err_msg=dtype
        )


def test_bits_stand_for_bfloat16_where_the_index_keeps_it() -> None:
    bits = torch.from_numpy(ROWS).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    index = index_on_device(6, dtype="bfloat16")
    np.testing.assert_array_equal(index.get(index.add(bits)), ROWS)
    with pytest.raises(ArgumentError, match="uint16 could mean anything"):
        filled().add(bits)


def test_masks_of_torch_are_taken_and_ids_on_the_host() -> None:
    index, core = filled(), plain()
    for one in (index, core):
        one.remove([9, 300])
    mask, masks = RNG.random(198) < 0.4, RNG.random((7, 198)) < 0.2
    for filter in (mask, masks):
        same(index.search(QUERIES, 9, filter=torch.from_numpy(filter)), core.search(QUERIES, 9, filter=filter))
    ids = torch.tensor([3, 6, 12])
    same(index.search(QUERIES, 9, filter=ids), core.search(QUERIES, 9, filter=ids.numpy()))


def test_prepared_filters_belong_to_their_index() -> None:
    index, other, core = filled(), filled(), plain()
    ids = np.arange(0, 60, 3)
    prepared = index.prepare(ids)
    assert isinstance(prepared, PreparedDeviceFilter)
    same(index.search(QUERIES, 5, filter=prepared), core.search(QUERIES, 5, filter=ids))
    for one in (index, core):
        one.remove([0, 30])
        one.add(ROWS[:1], [30])
    same(index.search(QUERIES, 5, filter=prepared), core.search(QUERIES, 5, filter=ids))
    for one, filter in ((other, prepared), (core, prepared), (index, core.prepare(ids))):
        with pytest.raises(ArgumentError, match="it was prepared by another index"):
            one.search(QUERIES, 5, filter=filter)
    with pytest.raises(ArgumentError, match="it is prepared already"):
        index.prepare(prepared)  # type: ignore[arg-type]
    masked = index.prepare(np.arange(199) < 50)
    index.update([30], ROWS[5:6])
    assert index.search(QUERIES, 5, filter=masked).counts.tolist() == [5] * 7
    index.remove([3])
    with pytest.raises(ArgumentError, match="its mask was prepared before rows were added or removed"):
        index.search(QUERIES, 5, filter=masked)


def test_a_prepared_mask_is_a_copy() -> None:
    index, mask = filled(), np.ones((7, 200), np.bool_)
    prepared = index.prepare(mask)
    mask[:] = False
    assert index.search(QUERIES, 5, filter=prepared).counts.tolist() == [5] * 7


def test_scales_follow_changes() -> None:
    """The stand-in compares the scales that it is given with the rows."""
    index, core = filled(metric="cosine"), plain(metric="cosine")
    rng = np.random.default_rng(0)
    for step in range(12):
        for one in (index, core):
            same_rng = np.random.default_rng(step)
            one.update(same_rng.permutation(one.ids)[:9], same_rng.integers(-3, 4, (9, 6)).astype(np.float32))
            one.add(ROWS[: 10 * step])
            one.remove(same_rng.permutation(one.ids)[: 8 * step])
        filter = rng.random(len(core)) < 0.5
        found, wanted = index.search(QUERIES, 9, filter=filter), core.search(QUERIES, 9, filter=filter)
        np.testing.assert_allclose(found.scores, wanted.scores, atol=1e-6)


def test_a_product_beyond_float32_names_query_and_id() -> None:
    index = index_on_device(2, sizes=BlockSizes(8, 8, 8))
    index.add(np.float32([[1, 1], [0.5, 2], [3e38, 0]]), [5, 6, 77])
    queries = np.float32([[0, 0], [1, 1], [3e38, 0]])
    for filter in (None, [77], [77, 5, 6], np.bool_([0, 0, 1])):
        with pytest.raises(
            ArgumentError, match="the score of row 2 with id 77 is too large for float32; scale the rows"
        ):
            index.search(queries, 1, filter=filter)
    assert index.search(queries[:2], 1, min_score=2e38).ids.tolist() == [[-1], [77]]
    assert index.search(queries, 1, filter=[5]).ids.tolist() == [[5]] * 3
    with pytest.raises(ArgumentError, match="queries: row 1 holds NaN or infinity"):
        index.search(np.float32([[0, 0], [np.inf, 0]]), 0)


# Shortage of memory.


class Scarce:
    """Counts requests for memory of an index; those numbered from `begin` to `end` fail."""

    def __init__(self, index: VectorIndex) -> None:
        self.begin = self.end = 1 << 60
        self.asked = 0
        memory: DeviceMemory = index._store._memory  # type: ignore[attr-defined]
        for name in ("empty", "pinned", "upload"):
            setattr(memory, name, self.counted(getattr(memory, name)))

    def counted(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any) -> Any:
            self.asked += 1
            if self.begin <= self.asked <= self.end:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return make(*arguments)

        return made

    def fail(self, begin: int, count: int = 1 << 60) -> None:
        self.begin, self.end = self.asked + begin, self.asked + begin + count - 1


CHANGES: list[tuple[str, Callable[[VectorIndex], object]]] = [
    ("add", lambda index: index.add(ROWS[:100])),
    ("add many", lambda index: index.add(np.tile(ROWS, (10, 1)))),
    ("update", lambda index: index.update(index.ids[::-3].copy(), ROWS[: len(index.ids[::-3])])),
    ("remove", lambda index: index.remove(index.ids[::2])),
    ("remove most", lambda index: index.remove(index.ids[:-7])),
    ("reserve", lambda index: index.reserve(5000)),
]


@pytest.mark.parametrize(("label", "change"), CHANGES, ids=[label for label, _ in CHANGES])
@pytest.mark.parametrize("count", [1, 1 << 60])
@pytest.mark.parametrize("memory_bytes", [None, 3000])
def test_whatever_memory_is_missing_a_change_is_whole_or_has_not_happened(
    label: str, change: Callable[[VectorIndex], object], count: int, memory_bytes: int | None
) -> None:
    outcomes = set()
    options: dict[str, Any] = {"memory_bytes": memory_bytes, "sizes": BlockSizes(256, 2048, 8192)}
    for begin in range(1, 60):
        index = filled(**options)
        index.add(np.tile(ROWS, (2, 1)))
        before = state(index)
        scarce = Scarce(index)
        scarce.fail(begin, count)
        try:
            change(index)
            outcome = "done"
        except MemoryError as error:
            outcome = "refused"
            assert "cpu" in str(error)
        met = scarce.asked >= scarce.begin
        scarce.fail(1 << 50)
        if outcome == "refused":
            assert state(index) == before
        else:
            done = filled(**options)
            done.add(np.tile(ROWS, (2, 1)))
            change(done)
            assert state(index) == state(done)
        wanted = VectorIndex(6, codes="never")
        wanted.add(index.get(index.ids), index.ids)
        same(index.search(QUERIES, 7), wanted.search(QUERIES, 7))
        outcomes.add(outcome)
        if not met:
            break
    else:
        pytest.fail("no end of requests for memory")
    assert "done" in outcomes


def limited(most_cells: int) -> Any:
    """Kernels that need more memory than there is for more cells of scores."""

    def scarce(queries: Any, keys: Any, *rest: Any, **options: Any) -> None:
        if queries.shape[0] * keys.shape[0] > most_cells:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        top_k(queries, keys, *rest, **options)

    return replace(LAUNCHERS, top_k=scarce)


def test_a_search_goes_on_with_fewer_queries_at_a_time(caplog: pytest.LogCaptureFixture) -> None:
    large = BlockSizes(1 << 20, 1 << 20, 1 << 20)
    index, core = filled(sizes=large, launchers=limited(400)), plain()
    masks = RNG.random((7, 200)) < 0.3
    with caplog.at_level(logging.WARNING, "prismem_core"):
        same(index.search(QUERIES, 5), core.search(QUERIES, 5))
        same(index.search(QUERIES, 5, filter=masks), core.search(QUERIES, 5, filter=masks))
        same(index.mmr(QUERIES, 5, relevance_weight=0.5), core.mmr(QUERIES, 5, relevance_weight=0.5))
    assert [record.message for record in caplog.records] == [
        "cpu is short of memory: searches there go on with at most 4 queries at a time, which is slower"
    ]


def test_a_search_goes_on_with_fewer_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prismem_core.index.device_search._FEWEST_ROWS", 8)
    large = BlockSizes(1 << 20, 1 << 20, 1 << 20)
    for memory_bytes in (None, 0):
        index, core = filled(sizes=large, launchers=limited(30), memory_bytes=memory_bytes), plain()
        masks = RNG.random((7, 200)) < 0.3
        for filter in (None, masks, masks[0], np.arange(0, 36, 3)):
            same(index.search(QUERIES, 5, filter=filter), core.search(QUERIES, 5, filter=filter))


def test_a_search_that_never_fits_says_so_and_harms_nothing() -> None:
    index = filled(launchers=limited(0))
    before = state(index)
    for _ in range(2):
        with pytest.raises(MemoryError, match="does not fit into what is free on cpu; the index is as it was"):
            index.search(QUERIES, 5)
    assert state(index) == before


@pytest.mark.parametrize("count", [1, 2])
def test_a_search_that_meets_a_shortage_anywhere_gives_the_right_hits_or_an_error(count: int) -> None:
    core = plain()
    wanted = core.search(QUERIES, 5, filter=np.arange(0, 600, 6))
    for begin in range(1, 400, 3):
        index = filled(memory_bytes=2000)
        scarce = Scarce(index)
        scarce.fail(begin, count)
        try:
            same(index.search(QUERIES, 5, filter=np.arange(0, 600, 6)), wanted)
        except MemoryError as error:
            assert "the index is as it was" in str(error)
        met = scarce.asked >= scarce.begin
        scarce.fail(1 << 50)
        same(index.search(QUERIES, 5, filter=np.arange(0, 600, 6)), wanted)
        if not met:
            break
    else:
        pytest.fail("no end of requests for memory")


# Growing, threads, forks, arguments.


def test_growing_moves_nothing() -> None:
    index = filled()
    blocks = index._store._blocks.blocks  # type: ignore[attr-defined]
    places = [block.rows.data_ptr() for block in blocks]
    for _ in range(10):
        index.add(ROWS)
    assert [block.rows.data_ptr() for block in blocks[: len(places)]] == places
    assert len(blocks) > len(places)
    index.reserve(5000)
    capacity = index.stats().capacity
    assert capacity >= 5000
    index.add(np.tile(ROWS, (14, 1)))
    assert index.stats().capacity == capacity


def test_closing_gaps_gives_memory_back() -> None:
    index = filled()
    index.add(np.tile(ROWS, (5, 1)))
    before = index.stats().row_bytes
    index.remove(index.ids[10:])
    stats = index.stats()
    assert (stats.count, stats.removed) == (10, 0)
    assert stats.row_bytes < before / 4
    np.testing.assert_array_equal(index.get(index.ids), ROWS[:10])


def test_searches_see_whole_states_while_another_thread_writes() -> None:
    index = index_on_device(8, sizes=TINY)
    groups, size = 6, 20
    for group in range(groups):
        index.add(np.ones((size, 8), np.float32), np.arange(size) + group * size)
    stop, failures = threading.Event(), []

    def write() -> None:
        rng = np.random.default_rng(1)
        try:
            for stamp in range(2, 100):
                ids = np.arange(size) + int(rng.integers(groups)) * size
                if stamp % 3:
                    index.update(ids, np.full((size, 8), stamp, np.float32))
                else:
                    index.remove(ids)
                    index.add(np.full((size, 8), stamp, np.float32), ids)
        except Exception as error:
            failures.append(error)
        stop.set()

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        query = np.ones((1, 8), np.float32)
        try:
            while not stop.is_set():
                ids = np.arange(size) + int(rng.integers(groups)) * size
                found = index.search(query, size, filter=ids)
                assert len(np.unique(found.scores)) <= 1
                assert int(found.counts[0]) in (0, size)
                assert len(index) in (groups * size, (groups - 1) * size)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write), *(threading.Thread(target=read, args=(seed,)) for seed in range(2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert stop.is_set(), "the writer starved"


def test_a_forked_child_is_told() -> None:
    index = filled()
    child = os.fork()
    if child == 0:
        try:
            index.search(QUERIES, 1)
        except VectorIndexError as error:
            os._exit(0 if "forked child" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_it_says_of_itself() -> None:
    index = filled(dtype="float16", metric="cosine")
    assert (index.device, index.dim, index.dtype, index.metric, index.read_only) == (
        "cpu",
        6,
        "float16",
        "cosine",
        False,
    )
    assert VectorIndex(3).device == "cpu"
    stats = index.stats()
    assert (stats.count, stats.coded, stats.code_bytes, stats.streamed_bytes) == (200, False, 0, 0)
    assert stats.row_bytes >= 200 * 12
    assert stats.id_bytes >= 200 * 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "gpu"}, 'device: expected None or "cpu", "cuda", "cuda:1"'),
        ({"device": "cuda:x"}, "device: expected None"),
        ({"device": "cuda:-1"}, "device: expected None"),
        ({"device": 0}, "device: expected None"),
        ({"device": torch.device("meta")}, "device: expected None"),
        ({"memory_bytes": 5}, "memory_bytes: it bounds the memory of a GPU"),
        ({"memory_bytes": -1}, "memory_bytes: expected a whole number"),
        ({"codes": "int8"}, 'codes: expected one of never, auto, always, got .int8.; "int8" and "int4" are'),
    ],
)
def test_arguments_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        VectorIndex(3, **options)


def test_the_cpu_by_name_is_the_core() -> None:
    for device in (None, "cpu", torch.device("cpu")):
        index = VectorIndex(6, device=device)
        index.add(ROWS)
        assert index.device == "cpu"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_said_so() -> None:
    for device in ("cuda", "cuda:0", torch.device("cuda", 1)):
        with pytest.raises(NoImplementation, match=r"device: no rows can be held on cuda.*prismem doctor"):
            VectorIndex(3, device=device)
    with pytest.raises(NoImplementation):
        VectorIndex.load("absent", device="cuda")
    with pytest.raises(NoImplementation):
        VectorIndex.open("absent", device="cuda")
