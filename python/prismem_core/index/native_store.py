"""The store of VectorIndex in the C++ core, on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays import handed_back, place_of, rows
from prismem_core.arrays.places import Place
from prismem_core.errors import ArgumentError, NoImplementation
from prismem_core.index.arguments import checked_filter, checked_ids, path_bytes
from prismem_core.index.device_filter import PreparedDeviceFilter
from prismem_core.index.results import SearchResult
from prismem_core.index.store import Ids, IndexStats
from prismem_core.ops.registry import choose, native, thread_count

DTYPES = ("float32", "float16", "bfloat16")  # in the order of the native kinds
METRICS = ("inner_product", "cosine")
POLICIES = ("never", "auto", "always")


class NativeStore:
    """`prismem_core._native.VectorIndex`: it holds the rows, the ids and the lock."""

    device = "cpu"

    def __init__(self, held: Any) -> None:
        self._held = held
        self.dim: int = held.dim()
        self.dtype = DTYPES[held.kind()]
        self.metric = METRICS[held.cosine()]
        self._bits = "bfloat16" if self.dtype == "bfloat16" else None

    @classmethod
    def empty(cls, dim: int, dtype: str, metric: str, codes: str) -> NativeStore:
        """A new one."""
        return cls(native().VectorIndex(dim, DTYPES.index(dtype), metric == "cosine", POLICIES.index(codes)))

    @classmethod
    def load(cls, path: str | Path, codes: str) -> NativeStore:
        """The content of a file, in memory."""
        return cls(native().VectorIndex.load(path_bytes(path), POLICIES.index(codes)))

    @classmethod
    def open(cls, path: str | Path, verify: bool, codes: str) -> NativeStore:
        """The content of a file, mapped."""
        return cls(native().VectorIndex.open(path_bytes(path), verify, POLICIES.index(codes)))

    def read_only(self) -> bool:
        return bool(self._held.read_only())

    def size(self) -> int:
        return int(self._held.size())

    def contains(self, id: int) -> bool:
        return bool(self._held.contains(id))

    def ids(self) -> Ids:
        every: Ids = self._held.ids()
        return every

    def stats(self) -> IndexStats:
        return IndexStats(**self._held.stats())

    def add(self, vectors: Any, ids: Any) -> Ids:
        values, _ = self._rows(vectors, "vectors")
        numbers = None if ids is None else checked_ids(ids, values.shape[0], "row of vectors")
        added: Ids = self._held.add(values, numbers, thread_count())
        return added

    def _rows(self, array: Any, name: str) -> tuple[NDArray[Any], Place]:
        place = place_of(array, name)
        if place.device != "cpu":
            raise ArgumentError(
                f"{name}: expected arrays on the CPU, where the rows of this index are, got {place}; move them, or "
                "make the index with device="
            )
        return rows(array, name, dtype=self._bits).data, place

    def update(self, ids: Any, vectors: Any) -> None:
        values, _ = self._rows(vectors, "vectors")
        self._held.update(checked_ids(ids, values.shape[0], "row of vectors"), values, thread_count())

    def remove(self, ids: Any) -> None:
        self._held.remove(checked_ids(ids), thread_count())

    def reserve(self, count: int) -> None:
        self._held.reserve(count)

    def get(self, ids: Any) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._held.get(checked_ids(ids))
        return found

    def search(self, queries: Any, k: int, min_score: float | None, filter: Any) -> SearchResult:
        values, place = self._rows(queries, "queries")
        found = self._held.search(
            values,
            k,
            min_score,
            _filter(filter),
            *_how("top_k", place),
        )
        return _result(found, place)

    def mmr(
        self,
        queries: Any,
        k: int,
        pool: int,
        relevance_weight: float,
        min_relevance: float | None,
        filter: Any,
    ) -> SearchResult:
        values, place = self._rows(queries, "queries")
        found = self._held.mmr(
            values,
            k,
            pool,
            relevance_weight,
            min_relevance,
            _filter(filter),
            *_how("mmr_select", place),
        )
        return _result(found, place)

    def prepare(self, filter: Any) -> Any:
        return self._held.prepare(_filter(filter))

    def build_codes(self) -> None:
        self._held.build_codes(thread_count())

    def save(self, path: str | Path) -> None:
        self._held.save(path_bytes(path), thread_count())


def _filter(filter: Any) -> Any:
    if isinstance(filter, PreparedDeviceFilter):
        raise ArgumentError("filter: it was prepared by another index; prepare it with the one that is searched")
    return checked_filter(filter)


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
