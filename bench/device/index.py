"""VectorIndex on a device: changes, streamed rows, codes and arrays of every library against plain NumPy."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import PrismemError, VectorIndexError
from prismem_core.index import VectorIndex
from prismem_core.index.device_blocks import BlockSizes
from prismem_core.index.device_store import DeviceStore

from .stage import Stage, to_host

Rows = NDArray[np.float32]

_SMALL = BlockSizes(8 << 10, 32 << 10, 4 << 10)


def made(stage: Stage, dim: int, *, memory_bytes: int | None = None, **options: Any) -> VectorIndex:
    """An index on the device; in a dry run one that takes the CPU for it."""
    if not stage.dry:
        return VectorIndex(dim, device="cuda", memory_bytes=memory_bytes, **options)
    words = {"dtype": "float32", "metric": "inner_product", **options}
    dtype, metric = words.pop("dtype"), words.pop("metric")
    return VectorIndex._around(DeviceStore(dim, dtype, metric, "cpu", memory_bytes, sizes=_SMALL, **words))


def whole_rows(rng: np.random.Generator, count: int, dim: int) -> Rows:
    """Small whole numbers: every sum is exact, and ties are common."""
    return rng.integers(-3, 4, (count, dim)).astype(np.float32)


class Model:
    """Ids and rows in the order of adding."""

    def __init__(self, dim: int) -> None:
        self.ids: NDArray[np.int64] = np.empty(0, np.int64)
        self.rows: Rows = np.empty((0, dim), np.float32)

    def add(self, rows: Rows, ids: NDArray[np.int64]) -> None:
        self.ids, self.rows = np.concatenate([self.ids, ids]), np.concatenate([self.rows, rows])

    def remove(self, ids: NDArray[np.int64]) -> None:
        kept = ~np.isin(self.ids, ids)
        self.ids, self.rows = self.ids[kept], self.rows[kept]

    def update(self, ids: NDArray[np.int64], rows: Rows) -> None:
        places = {int(id): place for place, id in enumerate(self.ids)}
        self.rows[[places[int(id)] for id in ids]] = rows

    def complaint(self, found: Any, queries: Rows, k: int, mask: NDArray[np.bool_] | None = None) -> str | None:
        """What is wrong with the hits of a search, or None."""
        scores = queries.astype(np.float64) @ self.rows.T.astype(np.float64)
        allowed = np.flatnonzero(np.ones(len(self.ids), np.bool_) if mask is None else mask)
        order = np.argsort(-scores[:, allowed], axis=1, kind="stable")[:, :k]
        places = allowed[order]
        if not np.array_equal(to_host(found.ids), self.ids[places]):
            return f"hits {to_host(found.ids)[0].tolist()}, expected {self.ids[places][0].tolist()}"
        if not np.array_equal(to_host(found.scores), np.take_along_axis(scores, places, 1).astype(np.float32)):
            return "scores of whole numbers are not exact"
        return None


def changes(stage: Stage, dtype: str, codes: str, share: float) -> Mapping[str, Any]:
    """Adding, updating, removing, growing; `share` of the rows fits on the device. Hits are those of plain NumPy."""
    rng, torch = np.random.default_rng(3), stage.torch
    dim, count, rounds = (16, 150, 2) if stage.dry else (256, 30_000, 6)
    row_bytes = dim * (4 if dtype == "float32" else 2)
    bound = None if share >= 1 else int(share * rounds * count * row_bytes)
    index, model = made(stage, dim, dtype=dtype, codes=codes, memory_bytes=bound), Model(dim)
    queries = whole_rows(rng, 5, dim)
    for step in range(rounds):
        rows = whole_rows(rng, count, dim)
        ids = index.add(torch.from_numpy(rows).to(stage.device) if step % 2 else rows)
        model.add(rows, ids)
        chosen, rows = rng.permutation(model.ids)[:50], whole_rows(rng, 50, dim)
        index.update(chosen, torch.from_numpy(rows).to(stage.device))
        model.update(chosen, rows)
        gone = rng.permutation(model.ids)[: len(model.ids) // (3 if step % 2 else 20)]
        index.remove(gone)
        model.remove(gone)
        mask = rng.random(len(model.ids)) < 0.4
        few = np.zeros(len(model.ids), np.bool_)
        few[:40] = True
        there = torch.from_numpy(mask).to(stage.device)
        for filter, allowed in ((None, None), (mask, mask), (there, mask), (few, few)):
            for some in (queries, queries[:1]):
                found = index.search(torch.from_numpy(some).to(stage.device), 9, filter=filter)
                if complaint := model.complaint(found, some, 9, allowed):
                    return {"complaint": f"step {step}: {complaint}"}
    stats = index.stats()
    if (share < 1) != (stats.streamed_bytes > 0):
        return {"complaint": f"{stats.streamed_bytes} bytes are in host memory"}
    return {"complaint": None, "rows": stats.count, "streamed_bytes": stats.streamed_bytes, "coded": stats.coded}


def libraries(stage: Stage) -> Mapping[str, Any]:
    """Rows and queries of every library; hits come back in that of the queries."""
    rng = np.random.default_rng(4)
    dim, count = (16, 200) if stage.dry else (128, 5000)
    rows, queries = whole_rows(rng, count, dim), whole_rows(rng, 3, dim)
    for name, lend in stage.lenders("triton").items():
        index, model = made(stage, dim), Model(dim)
        model.add(rows, index.add(lend(stage.place(rows))))
        asked = lend(stage.place(queries))
        found = index.search(asked, 5)
        if complaint := model.complaint(found, queries, 5):
            return {"complaint": f"{name}: {complaint}"}
        if name in ("torch", "cupy") and type(found.ids) is not type(asked):
            return {"complaint": f"{name}: results are {type(found.ids).__name__}"}
    found = index.search(queries, 5)
    plain = isinstance(found.ids, np.ndarray)
    return {"complaint": model.complaint(found, queries, 5) if plain else "results of numpy queries are not numpy's"}


def threads(stage: Stage) -> Mapping[str, Any]:
    """Searches in streams of their own while another thread changes rows: each sees a whole state."""
    torch, dim, size, groups = stage.torch, 64, 20, 30
    index = made(stage, dim)
    for group in range(groups):
        index.add(np.ones((size, dim), np.float32), np.arange(size) + group * size)
    stop, wrong = threading.Event(), list[str]()

    def search(seed: int) -> None:
        rng = np.random.default_rng(seed)
        query = torch.ones(1, dim, device=stage.device)
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                while not stop.is_set():
                    ids = np.arange(size) + int(rng.integers(groups)) * size
                    found = index.search(query, size, filter=ids)
                    if len(np.unique(to_host(found.scores))) > 1:
                        wrong.append("a search saw half of a change")
                        return
        except Exception as error:
            wrong.append(f"{type(error).__name__}: {error}")

    workers = [threading.Thread(target=search, args=(seed,)) for seed in range(3)]
    for worker in workers:
        worker.start()
    rng = np.random.default_rng(9)
    for stamp in range(2, 200):
        ids = np.arange(size) + int(rng.integers(groups)) * size
        index.update(ids, np.full((size, dim), stamp % 90, np.float32))
    stop.set()
    for worker in workers:
        worker.join(60)
    return {"complaint": wrong[0] if wrong else None}


def growth(stage: Stage) -> Mapping[str, Any]:
    """Growing never holds rows twice: the most memory taken on the way is hardly more than in the end."""
    torch = stage.torch
    dim, count, parts = 1024, 32_768, 16
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    index = made(stage, dim, dtype="float16")
    for _ in range(parts):
        index.add(torch.ones(count, dim, device=stage.device, dtype=torch.float16))
    needed = parts * count * dim * 2
    taken = torch.cuda.max_memory_allocated() - before
    held = index.stats().row_bytes
    complaint = None if held < 1.5 * needed and taken < held + 0.4 * needed else f"{taken} bytes taken for {needed}"
    return {"complaint": complaint, "row_bytes": held, "peak_bytes": taken}


def overlap(stage: Stage) -> Mapping[str, Any]:
    """Rows in host memory are searched in about the time of their copies; figures, no verdict."""
    torch, dim, count = stage.torch, 1024, 2**20
    index = made(stage, dim, dtype="float16", memory_bytes=2**28, codes="never")
    for _ in range(8):
        index.add(torch.randn(count // 8, dim, device=stage.device).half())
    streamed = index.stats().streamed_bytes
    queries = torch.randn(16, dim, device=stage.device).half()
    index.search(queries, 10)
    seconds = min(_timed(stage, lambda: index.search(queries, 10)) for _ in range(5))
    buffer = torch.empty(2**26, dtype=torch.uint8, device=stage.device)
    source = torch.empty(2**26, dtype=torch.uint8, pin_memory=True)
    pieces = streamed // 2**26
    copies = min(
        _timed(stage, lambda: [buffer.copy_(source, non_blocking=True) for _ in range(pieces)]) for _ in range(5)
    )
    return {
        "complaint": None,
        "streamed_bytes": streamed,
        "search_seconds": seconds,
        "copy_seconds": copies,
        "share_of_copy_speed": copies / seconds,
    }


def _timed(stage: Stage, work: Callable[[], Any]) -> float:
    stage.sync()
    start = time.perf_counter()
    work()
    stage.sync()
    return time.perf_counter() - start


def shortage(stage: Stage) -> Mapping[str, Any]:
    """With little memory left rows go to the host or are refused, and hits stay right."""
    torch, dim = stage.torch, 1024
    rng = np.random.default_rng(5)
    index, model = made(stage, dim, dtype="float16"), Model(dim)
    queries = whole_rows(rng, 64, dim)
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    complaint = None
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 96 * 2**20) / total)
    try:
        for _ in range(4):
            rows = whole_rows(rng, 16_384, dim)
            try:
                model.add(rows, index.add(rows))
            except MemoryError:
                break
            with contextlib.suppress(MemoryError):
                complaint = complaint or model.complaint(index.search(queries, 20), queries, 20)
    except (PrismemError, RuntimeError) as error:
        complaint = f"{type(error).__name__}: {error}"[:300]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    return {
        "complaint": complaint or model.complaint(index.search(queries, 20), queries, 20),
        "streamed_bytes": index.stats().streamed_bytes,
    }


def forked_child(stage: Stage) -> Mapping[str, Any]:
    """A child that was forked is refused in words."""
    index = made(stage, 16)
    index.add(np.eye(16, dtype=np.float32))
    child = os.fork()
    if child == 0:
        try:
            index.search(np.eye(16, dtype=np.float32), 1)
        except VectorIndexError:
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {"complaint": None if code == 0 else "the child was not told"}


def steps(stage: Stage) -> list[tuple[str, float, Callable[[Stage], Mapping[str, Any]]]]:
    """Name, seconds and check of each step; those that need a device come last."""

    def changed(dtype: str, codes: str, share: float) -> Callable[[Stage], Mapping[str, Any]]:
        return lambda here: changes(here, dtype, codes, share)

    found: list[tuple[str, float, Callable[[Stage], Mapping[str, Any]]]] = [
        ("changes, float32", 4.0, changed("float32", "never", 1.0)),
        ("changes, float16, half of the rows streamed", 4.0, changed("float16", "never", 0.5)),
        ("changes, float16, codes of 8 bits", 5.0, changed("float16", "int8", 1.0)),
        ("changes, float32, codes of 4 bits, streamed", 5.0, changed("float32", "int4", 0.5)),
        ("arrays of every library", 3.0, libraries),
    ]
    if stage.dry:
        return found
    return [
        *found,
        ("threads", 4.0, threads),
        ("growing", 3.0, growth),
        ("streaming beside searching", 6.0, overlap),
        ("shortage of memory", 5.0, shortage),
        ("a forked child", 2.0, forked_child),
    ]
