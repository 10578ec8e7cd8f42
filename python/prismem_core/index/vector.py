"""VectorIndex: a growable exact store of vectors, for systems that embed the engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import ArgumentError
from prismem_core.index.arguments import as_id
from prismem_core.index.device_filter import PreparedDeviceFilter
from prismem_core.index.device_memory import gpu_named
from prismem_core.index.device_store import DeviceStore
from prismem_core.index.native_store import DTYPES, METRICS, POLICIES, NativeStore
from prismem_core.index.results import SearchResult
from prismem_core.index.store import Ids, IndexStats, Store
from prismem_core.ops.checks import flag, threshold, weight, whole_number

if TYPE_CHECKING:
    from prismem_core._native import PreparedFilter

    Prepared = PreparedFilter | PreparedDeviceFilter
    Filter = Prepared | NDArray[Any] | Sequence[int] | None

_DEVICE_POLICIES = (*POLICIES, "int8", "int4")
_MOST = 1 << 62
_LEAST_POOL = 64


class VectorIndex:
    """Vectors under ids of your choice: added, updated and removed at any time, searched exactly.

    Rows have `dim` numbers and are kept as `dtype`: "float32", "float16" or "bfloat16" (half the memory; added rows are
    rounded to nearest, even on a tie). `metric` is "inner_product" or "cosine", in [-1, 1], where a zero vector scores
    0.0 with everything. A higher score is better.

    A search gives the scores of `ops.top_k` over the rows, bit for bit, and equal scores in the order of adding:
    `update` keeps a row's place, an id that is removed and added again goes to the end. Vectors and queries are arrays
    (n, dim) of numpy or torch on the CPU, float32, float16 or bfloat16 (uint16 bits where dtype is "bfloat16"), of any
    stride; float64 is refused. NaN and infinity are refused by row.

    `device` "cuda", "cuda:1" or a device of torch holds the rows on a GPU (docs/gpu.md): vectors and queries may then
    be there too (torch, cupy), and results come back where the queries are, in their library. Scores are those of the
    GPU's `ops.top_k`, within its tolerance of the CPU's. Rows for which `memory_bytes` of its memory (default: what is
    free) do not suffice stay in pinned host memory, from which each search brings them while it searches others. A
    search that meets a lack of memory goes on with fewer queries at a time, and says so once in the log.

    `codes` says when certified codes of the rows are made (docs/numerics.md): "auto" once the searches so far would
    have paid for it (about 32 queries over 4096 rows or more), "always" with the first rows, "never"; `build_codes`
    makes them at once. They take about dim + 10 bytes a row, follow every change, and make searches of many rows
    several times as fast; no result depends on them. On a device there are also "int8" and "int4", which name their
    kind, and "auto" has other limits (docs/gpu.md).

    Searches of several threads run at the same time. A change waits for running searches, and later searches wait for
    it; when it fails, nothing has changed. In a forked child an index works on, unless another thread was changing it
    at the moment of the fork, or it is on a GPU: then its use raises VectorIndexError. `ops.use`, PRISMEM_ISA and
    PRISMEM_THREADS hold.

    Errors: ArgumentError for bad arguments, VectorIndexError for files and for changes of an index that was opened for
    reading, NoImplementation where `device` cannot be used, MemoryError.
    """

    _store: Store

    def __init__(
        self,
        dim: int,
        *,
        dtype: str = "float32",
        metric: str = "inner_product",
        codes: str = "auto",
        device: Any = None,
        memory_bytes: int | None = None,
    ) -> None:
        number = min(whole_number(dim, "dim"), _MOST)
        if dtype not in DTYPES:
            raise ArgumentError(f"dtype: expected one of {', '.join(DTYPES)}, got {dtype!r}")
        if metric not in METRICS:
            raise ArgumentError(f"metric: expected one of {', '.join(METRICS)}, got {metric!r}")
        gpu = _gpu(device, codes, memory_bytes)
        if gpu is None:
            self._store = NativeStore.empty(number, dtype, metric, codes)
        else:
            self._store = DeviceStore(number, dtype, metric, gpu, memory_bytes, codes=codes)

    @classmethod
    def load(
        cls, path: str | Path, *, codes: str = "auto", device: Any = None, memory_bytes: int | None = None
    ) -> VectorIndex:
        """The index that `save` wrote, in memory and open to changes; every checksum is verified.

        Codes in the file are used unless `codes` is "never". On a `device` they are made anew.
        """
        gpu = _gpu(device, codes, memory_bytes)
        if gpu is None:
            return cls._around(NativeStore.load(path, codes))
        return cls._around(DeviceStore.read(path, gpu, memory_bytes, verify=True, fixed=False, codes=codes))

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        verify: bool = False,
        codes: str = "auto",
        device: Any = None,
        memory_bytes: int | None = None,
    ) -> VectorIndex:
        """The index that `save` wrote, mapped into memory: read-only, and ready at once whatever its size.

        The header is always verified; `verify=True` also reads all rows and compares their checksums, as `load` does.
        Without it damaged rows are found when they are searched or not at all, but harm nothing else. The first look at
        an id (`in`, `get`, a filter of ids) builds the table of ids. The file may be replaced, by `save` or a rename,
        but not be changed in place or cut. On a `device` the rows are copied there, which takes its time, and the file
        is not needed any more.
        """
        checked = flag(verify, "verify")
        gpu = _gpu(device, codes, memory_bytes)
        if gpu is None:
            return cls._around(NativeStore.open(path, checked, codes))
        return cls._around(DeviceStore.read(path, gpu, memory_bytes, verify=checked, fixed=True, codes=codes))

    @classmethod
    def _around(cls, store: Store) -> VectorIndex:
        index = cls.__new__(cls)
        index._store = store
        return index

    @property
    def dim(self) -> int:
        """Numbers in a row."""
        return self._store.dim

    @property
    def dtype(self) -> str:
        """How rows are kept."""
        return self._store.dtype

    @property
    def metric(self) -> str:
        """ "inner_product" or "cosine"."""
        return self._store.metric

    @property
    def device(self) -> str:
        """Where the rows are: "cpu", or a GPU as "cuda:0"."""
        return self._store.device

    @property
    def read_only(self) -> bool:
        """Whether it was opened from a file by `open`."""
        return self._store.read_only()

    @property
    def ids(self) -> Ids:
        """All ids, in the order in which they were added; a copy."""
        return self._store.ids()

    def stats(self) -> IndexStats:
        """Counts and bytes of memory."""
        return self._store.stats()

    def __len__(self) -> int:
        return self._store.size()

    def __contains__(self, id: object) -> bool:
        number = as_id(id)
        return number is not None and self._store.contains(number)

    def __repr__(self) -> str:
        kind = f"{len(self)} rows, dim={self.dim}, dtype={self.dtype!r}, metric={self.metric!r}"
        where = "" if self.device == "cpu" else f", on {self.device}"
        return f"<VectorIndex of {kind}{where}{', read-only' if self.read_only else ''}>"

    def add(self, vectors: Any, ids: NDArray[Any] | Sequence[int] | None = None) -> Ids:
        """Add rows (n, dim) under `ids` (n,), any int64 numbers not yet used, and return the ids.

        Without `ids` they get the numbers that follow the largest id ever used, from 0 on. An id that is in the index
        or given twice, or a row that cannot be kept, is an error, and nothing is added.
        """
        return self._store.add(vectors, ids)

    def update(self, ids: NDArray[Any] | Sequence[int], vectors: Any) -> None:
        """Replace the rows of `ids` (n,), each named once, by `vectors` (n, dim); they keep their places."""
        self._store.update(ids, vectors)

    def remove(self, ids: NDArray[Any] | Sequence[int]) -> None:
        """Remove the rows of `ids` (n,), each named once; an unknown one is an error, and nothing is removed."""
        self._store.remove(ids)

    def reserve(self, count: int) -> None:
        """Make room for `count` rows in all, so that adding up to them moves no memory."""
        self._store.reserve(min(whole_number(count, "count"), _MOST))

    def get(self, ids: NDArray[Any] | Sequence[int]) -> NDArray[np.float32]:
        """The rows of `ids` (n,) as a numpy array of float32 (n, dim), exactly as they are kept; a copy."""
        return self._store.get(ids)

    def search(self, queries: Any, k: int, *, filter: Filter = None, min_score: float | None = None) -> SearchResult:
        """The min(k, eligible) best rows of each query: `queries` (m, dim).

        Eligible are rows that `filter` lets pass and whose score is at least `min_score` (inclusive, compared in
        float32, as the caller sees the score). `filter` is an integer array or list of ids (those that are not in the
        index name nothing), a boolean mask (n,) or (m, n) over the rows in the order of `ids`, or what `prepare` made
        of one. It applies before the selection: where k rows pass, k are found. A batch gives exactly what its queries
        give one by one; k = 0, no queries and an empty index are valid. Order: score descending, then order of adding.
        """
        return self._store.search(queries, min(whole_number(k, "k"), _MOST), threshold(min_score, "min_score"), filter)

    def mmr(
        self,
        queries: Any,
        k: int,
        *,
        relevance_weight: float,
        pool: int | None = None,
        filter: Filter = None,
        min_relevance: float | None = None,
    ) -> SearchResult:
        """Up to k rows of each query, relevant and unlike each other (maximal marginal relevance, `ops.mmr_select`).

        They are picked from the `pool` best rows of `search` with the same `filter`: by default four times k and at
        least 64; with a pool of len(index) from all of them. `min_relevance` (inclusive) bounds the relevance of
        candidates. Rows come in the order of selection, with their scores at selection; relevance_weight=1 is `search`.
        """
        number = min(whole_number(k, "k"), _MOST)
        candidates = max(4 * number, _LEAST_POOL) if pool is None else whole_number(pool, "pool")
        if candidates < number:
            raise ArgumentError(f"pool: expected at least k = {number} candidates to pick from, got {candidates}")
        return self._store.mmr(
            queries,
            number,
            min(candidates, _MOST),
            weight(relevance_weight, "relevance_weight"),
            threshold(min_relevance, "min_relevance"),
            filter,
        )

    def prepare(self, filter: NDArray[Any] | Sequence[int]) -> Prepared:
        """A filter (ids or a mask, see `search`) made ready for many searches of this index.

        One of ids follows the index when it changes. One of a mask ends with the next change of what is in it.
        """
        prepared: Prepared = self._store.prepare(filter)
        return prepared

    def build_codes(self) -> None:
        """Make the codes now, or anew for rows that have changed a lot; `stats` says how long it took.

        A mapped index holds codes made so in memory.
        """
        self._store.build_codes()

    def save(self, path: str | Path) -> None:
        """Write the index, and its codes where they are on the CPU, to one file (docs/formats.md).

        It takes the place of what is at `path` when it is whole on the disk: a kill at any moment leaves the old file
        or the new one. VectorIndexError where the place cannot be written; what was there stays. What was saved on a
        device opens on the CPU, and the other way round.
        """
        self._store.save(path)


def _gpu(device: Any, codes: Any, memory_bytes: Any) -> str | None:
    """The GPU that is asked for, as "cuda:0", or None; the other arguments must fit to it."""
    name = gpu_named(device)
    policies = POLICIES if name is None else _DEVICE_POLICIES
    if codes not in policies:
        hint = '; "int8" and "int4" are kinds of codes on a device' if codes in _DEVICE_POLICIES else ""
        raise ArgumentError(f"codes: expected one of {', '.join(policies)}, got {codes!r}{hint}")
    if memory_bytes is not None:
        whole_number(memory_bytes, "memory_bytes")
        if name is None:
            raise ArgumentError("memory_bytes: it bounds the memory of a GPU; name one by device, or leave it out")
    return name
