"""What holds the rows of a VectorIndex: its statistics, and what a store can do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prismem_core.index.results import SearchResult

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class IndexStats:
    """What an index holds: `count` rows, `removed` ones whose room is not used again yet, room for `capacity` before
    memory grows; bytes in memory of rows (`row_bytes`), of ids with their table (`id_bytes`) and of codes
    (`code_bytes`), each 0 for what lies in a mapped file; whether there are codes (`coded`) and the seconds that went
    into making them; of `row_bytes` those that lie in host memory and are brought to the device by each search
    (`streamed_bytes`, 0 without a device).
    """

    count: int
    removed: int
    capacity: int
    row_bytes: int
    id_bytes: int
    coded: bool
    code_bytes: int
    code_seconds: float
    streamed_bytes: int = 0


class Store(Protocol):
    """Rows under ids with all that VectorIndex does with them; numbers and flags have been checked, arrays have not."""

    dim: int
    dtype: str
    metric: str
    device: str

    def read_only(self) -> bool: ...
    def size(self) -> int: ...
    def contains(self, id: int) -> bool: ...
    def ids(self) -> Ids: ...
    def stats(self) -> IndexStats: ...
    def add(self, vectors: Any, ids: Any) -> Ids: ...
    def update(self, ids: Any, vectors: Any) -> None: ...
    def remove(self, ids: Any) -> None: ...
    def reserve(self, count: int) -> None: ...
    def get(self, ids: Any) -> NDArray[np.float32]: ...
    def search(self, queries: Any, k: int, min_score: float | None, filter: Any) -> SearchResult: ...

    def mmr(
        self,
        queries: Any,
        k: int,
        pool: int,
        relevance_weight: float,
        min_relevance: float | None,
        filter: Any,
    ) -> SearchResult: ...

    def prepare(self, filter: Any) -> Any: ...
    def build_codes(self) -> None: ...
    def save(self, path: str | Path) -> None: ...
