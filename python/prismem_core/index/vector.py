"""VectorIndex: a growable exact store of vectors, for systems that embed the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core import _native
from prismem_core._native import PreparedFilter
from prismem_core.arrays import Place, Rows, handed_back, place_of, rows
from prismem_core.errors import ArgumentError, NoImplementation
from prismem_core.index.arguments import as_id, checked_filter, checked_ids, path_bytes
from prismem_core.index.results import SearchResult
from prismem_core.ops.checks import flag, threshold, weight, whole_number
from prismem_core.ops.registry import choose, thread_count

Ids = NDArray[np.int64]
Filter = PreparedFilter | NDArray[Any] | Sequence[int] | None

_DTYPES = ("float32", "float16", "bfloat16")  # in the order of the native kinds
_METRICS = ("inner_product", "cosine")
_POLICIES = ("never", "auto", "always")
_MOST = 1 << 62
_LEAST_POOL = 64


@dataclass(frozen=True)
class IndexStats:
    """What an index holds: `count` rows, `removed` ones whose room is not used again yet, room for `capacity` before
    memory grows; bytes in memory of rows (`row_bytes`), of ids with their table (`id_bytes`) and of codes
    (`code_bytes`), each 0 for what lies in a mapped file; whether there are codes (`coded`) and the seconds that went
    into making them.
    """

    count: int
    removed: int
    capacity: int
    row_bytes: int
    id_bytes: int
    coded: bool
    code_bytes: int
    code_seconds: float


class VectorIndex:
    """Vectors under ids of your choice: added, updated and removed at any time, searched exactly.

    Rows have `dim` numbers and are kept as `dtype`: "float32", "float16" or "bfloat16" (half the memory; added rows are
    rounded to nearest, even on a tie). `metric` is "inner_product" or "cosine", in [-1, 1], where a zero vector scores
    0.0 with everything. A higher score is better.

    A search gives the scores of `ops.top_k` over the rows, bit for bit, and equal scores in the order of adding:
    `update` keeps a row's place, an id that is removed and added again goes to the end. Vectors and queries are arrays
    (n, dim) of numpy or torch on the CPU, float32, float16 or bfloat16 (uint16 bits where dtype is "bfloat16"), of any
    stride; float64 is refused. NaN and infinity are refused by row.

    `codes` says when certified codes of the rows are made (docs/numerics.md): "auto" once the searches so far would
    have paid for it (about 32 queries over 4096 rows or more), "always" with the first rows, "never"; `build_codes`
    makes them at once. They take about dim + 10 bytes a row, follow every change, and make searches of many rows
    several times as fast; no result depends on them.

    Searches of several threads run at the same time. A change waits for running searches, and later searches wait for
    it; when it fails, nothing has changed. In a forked child an index works on, unless another thread was changing it
    at the moment of the fork: then its use raises VectorIndexError. `ops.use`, PRISMEM_ISA and PRISMEM_THREADS hold.

    Errors: ArgumentError for bad arguments, VectorIndexError for files and for changes of an index that was opened for
    reading, MemoryError.
    """

    def __init__(self, dim: int, *, dtype: str = "float32", metric: str = "inner_product", codes: str = "auto") -> None:
        number = whole_number(dim, "dim")
        if dtype not in _DTYPES:
            raise ArgumentError(f"dtype: expected one of {', '.join(_DTYPES)}, got {dtype!r}")
        if metric not in _METRICS:
            raise ArgumentError(f"metric: expected one of {', '.join(_METRICS)}, got {metric!r}")
        policy = _policy(codes)
        self._keep(_native.VectorIndex(min(number, _MOST), _DTYPES.index(dtype), metric == "cosine", policy))

    def _keep(self, native: _native.VectorIndex) -> None:
        self._native = native
        self._dtype = _DTYPES[native.kind()]
        self._bits = "bfloat16" if self._dtype == "bfloat16" else None

    @classmethod
    def load(cls, path: str | Path, *, codes: str = "auto") -> VectorIndex:
        """The index that `save` wrote, in memory and open to changes; every checksum is verified.

        Codes in the file are used unless `codes` is "never".
        """
        return cls._around(_native.VectorIndex.load(path_bytes(path), _policy(codes)))

    @classmethod
    def open(cls, path: str | Path, *, verify: bool = False, codes: str = "auto") -> VectorIndex:
        """The index that `save` wrote, mapped into memory: read-only, and ready at once whatever its size.

        The header is always verified; `verify=True` also reads all rows and compares their checksums, as `load` does.
        Without it damaged rows are found when they are searched or not at all, but harm nothing else. The first look at
        an id (`in`, `get`, a filter of ids) builds the table of ids. The file may be replaced, by `save` or a rename,
        but not be changed in place or cut.
        """
        return cls._around(_native.VectorIndex.open(path_bytes(path), flag(verify, "verify"), _policy(codes)))

    @classmethod
    def _around(cls, native: _native.VectorIndex) -> VectorIndex:
        index = cls.__new__(cls)
        index._keep(native)
        return index

    @property
    def dim(self) -> int:
        """Numbers in a row."""
        return self._native.dim()

    @property
    def dtype(self) -> str:
        """How rows are kept."""
        return self._dtype

    @property
    def metric(self) -> str:
        """ "inner_product" or "cosine"."""
        return _METRICS[self._native.cosine()]

    @property
    def read_only(self) -> bool:
        """Whether it was opened from a file, mapped."""
        return self._native.read_only()

    @property
    def ids(self) -> Ids:
        """All ids, in the order in which they were added; a copy."""
        return self._native.ids()

    def stats(self) -> IndexStats:
        """Counts and bytes of memory."""
        return IndexStats(**self._native.stats())

    def __len__(self) -> int:
        return self._native.size()

    def __contains__(self, id: object) -> bool:
        number = as_id(id)
        return number is not None and self._native.contains(number)

    def __repr__(self) -> str:
        kind = f"{len(self)} rows, dim={self.dim}, dtype={self.dtype!r}, metric={self.metric!r}"
        return f"<VectorIndex of {kind}{', read-only' if self.read_only else ''}>"

    def add(self, vectors: Any, ids: NDArray[Any] | Sequence[int] | None = None) -> Ids:
        """Add rows (n, dim) under `ids` (n,), any int64 numbers not yet used, and return the ids.

        Without `ids` they get the numbers that follow the largest id ever used, from 0 on. An id that is in the index
        or given twice, or a row that cannot be kept, is an error, and nothing is added.
        """
        values = self._vectors(vectors)
        numbers = None if ids is None else checked_ids(ids, values.count, "row of vectors")
        return self._native.add(values.data, numbers, thread_count())

    def _vectors(self, vectors: Any) -> Rows:
        if (place := place_of(vectors, "vectors")).device != "cpu":
            raise ArgumentError(
                f"vectors: expected arrays on the CPU, got {place}; move them, nothing is moved for you"
            )
        return rows(vectors, "vectors", dtype=self._bits)

    def update(self, ids: NDArray[Any] | Sequence[int], vectors: Any) -> None:
        """Replace the rows of `ids` (n,), each named once, by `vectors` (n, dim); they keep their places."""
        values = self._vectors(vectors)
        self._native.update(checked_ids(ids, values.count, "row of vectors"), values.data, thread_count())

    def remove(self, ids: NDArray[Any] | Sequence[int]) -> None:
        """Remove the rows of `ids` (n,), each named once; an unknown one is an error, and nothing is removed."""
        self._native.remove(checked_ids(ids), thread_count())

    def reserve(self, count: int) -> None:
        """Make room for `count` rows in all, so that adding up to them moves no memory."""
        self._native.reserve(min(whole_number(count, "count"), _MOST))

    def get(self, ids: NDArray[Any] | Sequence[int]) -> NDArray[np.float32]:
        """The rows of `ids` (n,) as float32 (n, dim), exactly as they are kept; a copy."""
        return self._native.get(checked_ids(ids))

    def search(self, queries: Any, k: int, *, filter: Filter = None, min_score: float | None = None) -> SearchResult:
        """The min(k, eligible) best rows of each query: `queries` (m, dim).

        Eligible are rows that `filter` lets pass and whose score is at least `min_score` (inclusive, compared in
        float32, as the caller sees the score). `filter` is an integer array or list of ids (those that are not in the
        index name nothing), a boolean mask (n,) or (m, n) over the rows in the order of `ids`, or what `prepare` made
        of one. It applies before the selection: where k rows pass, k are found. A batch gives exactly what its queries
        give one by one; k = 0, no queries and an empty index are valid. Order: score descending, then order of adding.
        """
        place = place_of(queries, "queries")
        found = self._native.search(
            rows(queries, "queries", dtype=self._bits).data,
            min(whole_number(k, "k"), _MOST),
            threshold(min_score, "min_score"),
            checked_filter(filter),
            *_how("top_k", place),
        )
        return _result(found, place)

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
        place = place_of(queries, "queries")
        number = min(whole_number(k, "k"), _MOST)
        candidates = max(4 * number, _LEAST_POOL) if pool is None else whole_number(pool, "pool")
        if candidates < number:
            raise ArgumentError(f"pool: expected at least k = {number} candidates to pick from, got {candidates}")
        found = self._native.mmr(
            rows(queries, "queries", dtype=self._bits).data,
            number,
            min(candidates, _MOST),
            weight(relevance_weight, "relevance_weight"),
            threshold(min_relevance, "min_relevance"),
            checked_filter(filter),
            *_how("mmr_select", place),
        )
        return _result(found, place)

    def prepare(self, filter: NDArray[Any] | Sequence[int]) -> PreparedFilter:
        """A filter (ids or a mask, see `search`) made ready for many searches of this index.

        One of ids follows the index when it changes. One of a mask ends with the next change of what is in it.
        """
        return self._native.prepare(checked_filter(filter))

    def build_codes(self) -> None:
        """Make the codes now, or anew for rows that have changed a lot; `stats` says how long it took.

        A mapped index holds codes made so in memory.
        """
        self._native.build_codes(thread_count())

    def save(self, path: str | Path) -> None:
        """Write the index and its codes to one file (docs/formats.md).

        It takes the place of what is at `path` when it is whole on the disk: a kill at any moment leaves the old file
        or the new one. VectorIndexError where the place cannot be written; what was there stays.
        """
        self._native.save(path_bytes(path), thread_count())


def _policy(codes: str) -> int:
    if codes not in _POLICIES:
        raise ArgumentError(f"codes: expected one of {', '.join(_POLICIES)}, got {codes!r}")
    return _POLICIES.index(codes)


def _how(op: str, place: Place) -> tuple[str, int]:
    """The instruction set and the most threads (0: all cores) of a call."""
    choice = choose(op, place)
    if choice.backend != "cpu":
        raise NoImplementation(
            f"VectorIndex: its rows are held by the C++ core, which the backend {choice.backend!r} cannot search "
            f"({choice.reason}); use ops.{op} with arrays of your own"
        )
    return choice.variant, thread_count()


def _result(found: tuple[Any, Any, Any], place: Place) -> SearchResult:
    if place.library == "numpy":
        return SearchResult._make(found)
    return SearchResult(*(handed_back(part, place) for part in found))
