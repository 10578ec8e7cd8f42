"""The store of VectorIndex on a GPU, held through torch and searched by the kernels of the ops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays import place_of
from prismem_core.arrays.places import Place
from prismem_core.errors import ArgumentError, NoImplementation, VectorIndexError
from prismem_core.index import device_file, device_rows
from prismem_core.index.arguments import checked_ids, path_bytes
from prismem_core.index.device_blocks import Blocks, BlockSizes
from prismem_core.index.device_codes import DeviceCodes
from prismem_core.index.device_derived import Scales
from prismem_core.index.device_filter import PreparedDeviceFilter, Selection, device_filter, select
from prismem_core.index.device_launchers import Launchers, chosen
from prismem_core.index.device_lock import SharedLock
from prismem_core.index.device_memory import DeviceMemory
from prismem_core.index.device_mmr import diverse
from prismem_core.index.device_rows import Vectors, vectors_of
from prismem_core.index.device_search import DeviceSearch, Hits, Request
from prismem_core.index.device_slots import Slots
from prismem_core.index.device_stream import Stream, Streams
from prismem_core.index.results import SearchResult
from prismem_core.index.store import Ids, IndexStats

_MOST_DIM = 1 << 24
_MOST_BYTES = 1 << 46


class DeviceStore:
    """Rows on a device, ids on the host. Changes wait for running searches, and each ends when the device is done.

    A search reads its outcome from the device before it returns, so whoever holds the lock for a change finds the
    device idle as far as this index goes, whichever streams its callers use. `sizes`, `launchers` and `streams` are for
    tests.
    """

    def __init__(
        self,
        dim: int,
        dtype: str,
        metric: str,
        device: str,
        memory_bytes: int | None = None,
        *,
        codes: str = "never",
        sizes: BlockSizes | None = None,
        launchers: Launchers | None = None,
        streams: Streams | None = None,
    ) -> None:
        if not 1 <= dim <= _MOST_DIM:
            raise ArgumentError(f"dim: expected a whole number from 1 to {_MOST_DIM}, got {dim}")
        self.dim, self.dtype, self.metric, self.device = dim, dtype, metric, device
        self._memory = DeviceMemory(device, memory_bytes)
        self._blocks = Blocks(self._memory, dim, dtype, sizes)
        self._slots = Slots()
        self._stream = Stream(self._blocks, streams)
        self._given_launchers = launchers
        self._scales = Scales(self._blocks)
        self._codes = DeviceCodes(self._blocks, codes, metric == "cosine", self._launchers)
        self._search = DeviceSearch(self._blocks, self._stream, self._scales, self._codes, self._launchers)
        self._lock = SharedLock()
        self._fixed = False
        if self._memory.on_gpu:
            self._launchers()  # NoImplementation now rather than in the first search

    def _launchers(self) -> Launchers:
        return chosen(self._memory.place) if self._given_launchers is None else self._given_launchers

    # What it holds.

    def read_only(self) -> bool:
        return self._fixed

    def size(self) -> int:
        with self._lock.reading():
            return self._slots.live

    def contains(self, id: int) -> bool:
        with self._lock.reading():
            return bool(self._slots.find(np.array([id], np.int64))[0] >= 0)

    def ids(self) -> Ids:
        with self._lock.reading():
            every: Ids = self._slots.ids[self._slots.live_slots()]
            return every

    def stats(self) -> IndexStats:
        with self._lock.reading():
            slots, blocks = self._slots, self._blocks
            return IndexStats(
                slots.live,
                slots.dead,
                blocks.capacity,
                blocks.bytes,
                slots.bytes,
                self._codes.present(slots.count),
                self._codes.bytes,
                self._codes.seconds,
                blocks.streamed_bytes,
            )

    def get(self, ids: Any) -> NDArray[np.float32]:
        wanted = checked_ids(ids)
        with self._lock.reading(), self._memory.working():
            slots, where = np.unique(self._slots.find_all(wanted, once=False), return_inverse=True)
            rows = np.empty((slots.shape[0], self.dim), np.float32)
            for begin, end in self._some_at_a_time(slots.shape[0]):
                rows[begin:end] = self._blocks.gather(slots[begin:end]).to(self._memory.torch.float32).cpu().numpy()
            return rows[where.reshape(-1)]

    def _some_at_a_time(self, count: int) -> Iterator[tuple[int, int]]:
        step = max(1, self._blocks.sizes.host // self._blocks.row_bytes)
        for begin in range(0, count, step):
            yield begin, min(begin + step, count)

    # Changes.

    @contextmanager
    def _changing(self, place: Place | None = None) -> Iterator[None]:
        if self._fixed:
            raise VectorIndexError(
                "this index is open for reading only: VectorIndex.open made it from a file; VectorIndex.load makes one "
                "that can be changed"
            )
        with self._lock.writing(), self._memory.working(place):
            yield
            self._memory.settle()

    def _check_size(self, slots: int) -> None:
        if slots > _MOST_BYTES // self._blocks.row_bytes:
            raise ArgumentError(f"{slots} rows of {self._blocks.row_bytes} bytes each are more than an index can hold")

    def add(self, vectors: Any, ids: Any) -> Ids:
        values = self._vectors(vectors)
        numbers = None if ids is None else checked_ids(ids, values.count, "row of vectors")
        with self._changing(values.place):
            slots, blocks = self._slots, self._blocks
            total = slots.count + values.count
            self._check_size(total)
            if numbers is None:
                slots.check_automatic(values.count)
            slots.reserve(total)
            before = len(blocks.blocks)
            blocks.grow(total)
            try:
                self._write(values, slots.count)
                added = slots.new_ids(numbers, values.count)
            except BaseException:
                blocks.shrink(before)
                raise
            slots.append(added)
            self._codes.follow(slots.count)
            return added.copy()

    def _vectors(self, vectors: Any) -> Vectors:
        return vectors_of(vectors, "vectors", self._memory, self.dim, bits=self.dtype == "bfloat16")

    def _write(self, values: Vectors, first: int) -> None:
        """Put values into the slots from `first` on, which nobody reads yet; ArgumentError names a bad row."""
        for begin, end in values.chunks():
            chunk = values.tensor(begin, end, self._memory)
            done = begin
            for block, low, high in self._blocks.parts(first + begin, first + end):
                target = block.rows[low:high]
                target.copy_(chunk[done - begin : done - begin + high - low])
                if (bad := device_rows.first_bad(target)) >= 0:
                    device_rows.refuse_row(values, done + bad, self.dtype, self._memory)
                done += high - low

    def update(self, ids: Any, vectors: Any) -> None:
        values = self._vectors(vectors)
        numbers = checked_ids(ids, values.count, "row of vectors")
        with self._changing(values.place):
            found = self._slots.find_all(numbers, once=True)
            if not found.shape[0]:
                return
            rows = self._memory.empty((values.count, self.dim), self._blocks.dtype)
            for begin, end in values.chunks():
                rows[begin:end].copy_(values.tensor(begin, end, self._memory))
                if (bad := device_rows.first_bad(rows[begin:end])) >= 0:
                    device_rows.refuse_row(values, begin + bad, self.dtype, self._memory)
            order = np.argsort(found)
            if (found[order] != found).any():
                rows = rows[self._memory.upload(order)]
            self._blocks.scatter(found[order], rows)
            self._follow_update(found[order], rows)

    def _follow_update(self, slots: Ids, rows: Any) -> None:
        """Scales and codes of rows that have changed; where that cannot be done now, they are made anew when needed."""
        try:
            self._scales.follow_update(slots, rows, self._launchers())
            self._codes.follow_update(slots, rows)
        except Exception as error:
            self._scales.forget_from(int(slots[0]))
            self._codes.forget_from(int(slots[0]))
            if not (self._memory.is_shortage(error) or isinstance(error, NoImplementation)):
                raise
            self._codes.follow(self._slots.count)

    def remove(self, ids: Any) -> None:
        numbers = checked_ids(ids)
        with self._changing():
            self._slots.remove(self._slots.find_all(numbers, once=True))
            if self._slots.is_sparse:
                self._close_gaps()

    def _close_gaps(self) -> None:
        kept = self._slots.live_slots()
        if self._blocks.close_gaps(kept):
            first = int(np.argmax(kept != np.arange(kept.shape[0]))) if kept.shape[0] else 0
            self._slots.compact()
            self._blocks.trim(max(1, self._slots.count))
            self._scales.forget_from(first)
            self._codes.forget_from(first)
            self._codes.follow(self._slots.count)

    def reserve(self, count: int) -> None:
        with self._changing():
            self._check_size(count)
            self._slots.reserve(count)
            self._blocks.grow(count)

    # Searches.

    def search(self, queries: Any, k: int, min_score: float | None, filter: Any) -> SearchResult:
        place = place_of(queries, "queries")
        self._make_codes(queries, place)
        with self._lock.reading(), self._memory.working(place):
            request = self._request(queries, k, min_score)
            return self._named(self._best(request, filter), place)

    def mmr(
        self,
        queries: Any,
        k: int,
        pool: int,
        relevance_weight: float,
        min_relevance: float | None,
        filter: Any,
    ) -> SearchResult:
        place = place_of(queries, "queries")
        self._make_codes(queries, place)
        with self._lock.reading(), self._memory.working(place):
            request = self._request(queries, max(pool, k), min_relevance)
            hits = self._best(request, filter)
            picks = diverse(replace(request, k=k), hits, relevance_weight, self._blocks, self._launchers())
            return self._named(picks, place)

    def _make_codes(self, queries: Any, place: Place) -> None:
        """Codes that this search makes worth their while."""
        shape = tuple(queries.shape)
        if shape and self._codes.count_searches(int(shape[0]), self._slots.count):
            with self._lock.writing(), self._memory.working(place):
                self._codes.make_automatic(self._slots.count)

    def _request(self, queries: Any, k: int, min_score: float | None) -> Request:
        given = vectors_of(queries, "queries", self._memory, self.dim, bits=self.dtype == "bfloat16")
        tensor = given.tensor(0, given.count, self._memory).to(self._memory.device)
        return Request(tensor, k, self.metric == "cosine", min_score)

    def _best(self, request: Request, filter: Any) -> Hits:
        selection = self._selection(filter, int(request.queries.shape[0]))
        hits = self._search.best(request, selection, self._slots.count)
        if hits.bad_query is not None:
            device_rows.refuse_query(hits.bad_query)
        if hits.bad is not None:
            self._refuse_score(*hits.bad)
        return hits

    def _selection(self, filter: Any, num_queries: int) -> Selection:
        allowed = device_filter(filter, self._memory)
        if isinstance(allowed, PreparedDeviceFilter):
            selection = allowed.at(self, self._slots)
        else:
            selection = select(self._slots, allowed, self._blocks.row_bytes, self._memory)
        if selection.queries and selection.queries != num_queries:
            raise ArgumentError(
                f"filter: the mask was made for {selection.queries} queries, but there are {num_queries}"
            )
        return selection

    def _refuse_score(self, query: int, slot: int) -> None:
        id = int(self._slots.ids[slot])
        if not bool(self._blocks.gather(np.array([slot])).isfinite().all()):
            # Rows are finite when they are added; those of a file whose checksums nobody looked at need not be.
            raise VectorIndexError(
                f"the file of this index is damaged: the row with id {id} holds NaN or infinity; "
                "VectorIndex.open(path, verify=True) looks at all of it"
            )
        raise ArgumentError(f"queries: the score of row {query} with id {id} is too large for float32; scale the rows")

    def _named(self, hits: Hits, place: Place) -> SearchResult:
        """Ids for slots, and no column that no query uses."""
        used = int(hits.counts.max(initial=0)) if hits.counts.shape[0] else hits.slots.shape[1]
        slots = hits.slots[:, :used]
        ids = np.full(slots.shape, -1, np.int64)
        ids[slots >= 0] = self._slots.ids[slots[slots >= 0]]
        scores = hits.scores[:, :used].contiguous()
        if place.library == "numpy":
            return SearchResult(scores.cpu().numpy(), ids, hits.counts.copy())
        parts = (scores, self._memory.upload(ids), self._memory.upload(hits.counts))
        return SearchResult(*(device_rows.handed_over(part, place) for part in parts))

    def prepare(self, filter: Any) -> PreparedDeviceFilter:
        allowed = device_filter(filter, self._memory)
        if isinstance(allowed, PreparedDeviceFilter):
            raise ArgumentError("filter: it is prepared already")
        with self._lock.reading(), self._memory.working():
            return PreparedDeviceFilter(self, self._slots, allowed, self._blocks.row_bytes, self._memory)

    def build_codes(self) -> None:
        with self._lock.writing(), self._memory.working():
            self._codes.build(self._slots.count)

    # Files.

    def save(self, path: str | Path) -> None:
        name = path_bytes(path)
        with self._lock.reading(), self._memory.working():
            slots = self._slots.live_slots()
            header = device_file.Header(self.dtype, self.metric, self.dim, slots.shape[0], self._slots.next_id)
            rows = (self._bytes_of(slots[begin:end]) for begin, end in self._some_at_a_time(slots.shape[0]))
            device_file.write(name, header, rows, self._slots.ids[slots])

    def _bytes_of(self, slots: Ids) -> NDArray[np.uint8]:
        """The bytes of some rows, as they are kept."""
        rows = self._blocks.gather(slots).view(self._memory.torch.uint8).cpu().numpy()
        return np.asarray(rows).reshape(-1)

    @classmethod
    def read(
        cls, path: str | Path, device: str, memory_bytes: int | None, *, verify: bool, fixed: bool, **options: Any
    ) -> DeviceStore:
        """The content of a file, on the device; `fixed`: for reading only."""
        with device_file.Reader(path_bytes(path)) as file:
            header = file.header
            store = cls(header.dim, header.dtype, header.metric, device, memory_bytes, **options)
            store._take_file(file, verify)
        store._fixed = fixed
        return store

    def _take_file(self, file: device_file.Reader, verify: bool) -> None:
        torch, count = self._memory.torch, file.header.count
        with self._changing():
            self._blocks.grow(count)
            step, first = max(1, self._blocks.sizes.host // self._blocks.row_bytes), 0
            for data in file.rows(step, verify):
                chunk = torch.from_numpy(data).view(self._blocks.dtype).reshape(-1, self.dim)
                for block, low, high in self._blocks.parts(first, first + int(chunk.shape[0])):
                    offset = block.start - first
                    block.rows[low:high].copy_(chunk[low + offset : high + offset])
                first += int(chunk.shape[0])
            ids = file.ids(verify)
            self._slots.reserve(count)
            if (twice := self._slots.adopt(ids, file.header.next_id)) is not None:
                file.refuse_id(twice)
            self._codes.follow(count)
