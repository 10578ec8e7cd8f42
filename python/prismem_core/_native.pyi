"""Types of the C++ extension; the faces of its parts are prismem_core.cache and prismem_core.ops."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[Any]
Integers = NDArray[np.int64]
Outcome = tuple[str, int, int]

def crc32c(data: bytes, previous: int = 0, portable: bool = False) -> int: ...

class ExecutionCache:
    def __init__(self, directory: bytes | None, memory_bytes: int, read_only: bool, segment_bytes: int) -> None: ...
    def get(self, stage: str, key: str) -> bytes | None: ...
    def get_many(self, stage: str, keys: Sequence[str]) -> list[bytes | None]: ...
    def put(self, stage: str, key: str, value: bytes) -> None: ...
    def get_or_compute(self, stage: str, key: str, compute: Callable[[], bytes]) -> bytes: ...
    def counters(self) -> dict[str, tuple[int, int, int, int, int, int]]: ...
    def damaged(self) -> int: ...
    def take_notice(self) -> str | None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...

class LimitProbe:
    def __init__(self, bytes: int, isa: str = "", threads: int = 1) -> None: ...
    @property
    def isa(self) -> str: ...
    def read(self, bytes: int, times: int = 1, four_streams: bool = False) -> int: ...
    def multiply_floats(self, rounds: int) -> int: ...
    def multiply_bytes(self, rounds: int, sums_of_16: bool = False) -> int: ...

class PreparedFilter: ...

class VectorIndex:
    def __init__(self, dim: int, kind: int, cosine: bool) -> None: ...
    @staticmethod
    def load(path: bytes) -> VectorIndex: ...
    @staticmethod
    def open(path: bytes, verify: bool) -> VectorIndex: ...
    def dim(self) -> int: ...
    def kind(self) -> int: ...
    def cosine(self) -> bool: ...
    def read_only(self) -> bool: ...
    def size(self) -> int: ...
    def contains(self, id: int) -> bool: ...
    def ids(self) -> Integers: ...
    def stats(self) -> dict[str, int]: ...
    def add(self, vectors: Rows, ids: Integers | None) -> Integers: ...
    def update(self, ids: Integers, vectors: Rows) -> None: ...
    def remove(self, ids: Integers) -> None: ...
    def reserve(self, count: int) -> None: ...
    def get(self, ids: Integers) -> NDArray[np.float32]: ...
    def search(
        self,
        queries: Rows,
        k: int,
        min_score: float | None,
        filter: PreparedFilter | NDArray[Any] | None,
        isa: str,
        threads: int,
    ) -> tuple[NDArray[np.float32], Integers, Integers]: ...
    def mmr(
        self,
        queries: Rows,
        k: int,
        pool: int,
        relevance_weight: float,
        min_relevance: float | None,
        filter: PreparedFilter | NDArray[Any] | None,
        isa: str,
        threads: int,
    ) -> tuple[NDArray[np.float32], Integers, Integers]: ...
    def prepare(self, filter: PreparedFilter | NDArray[Any] | None) -> PreparedFilter: ...
    def save(self, path: bytes) -> None: ...

def settings() -> tuple[str, str, str]: ...

class RowCodes:
    def __init__(self, rows: Rows, normalize: bool, *, isa: str = "", threads: int = 0) -> None: ...
    @property
    def normalize(self) -> bool: ...
    @property
    def bytes(self) -> int: ...
    @property
    def build_seconds(self) -> float: ...
    @staticmethod
    def supports(dim: int) -> bool: ...

def isas() -> list[str]: ...
def chosen_isa(isa: str = "") -> str: ...
def similarity(
    x: Rows, y: Rows, normalize: bool, out: NDArray[np.float32], *, isa: str = "", threads: int = 0
) -> Outcome: ...
def top_k(
    queries: Rows,
    keys: Rows,
    ranges: Integers | None,
    groups: Integers | None,
    mask: NDArray[np.bool_] | None,
    k: int,
    normalize: bool,
    min_score: float | None,
    scores: NDArray[np.float32],
    indices: Integers,
    counts: Integers,
    *,
    codes: RowCodes | None = None,
    isa: str = "",
    threads: int = 0,
) -> Outcome: ...
def mmr_select(
    queries: Rows,
    keys: Rows,
    ranges: Integers | None,
    groups: Integers | None,
    mask: NDArray[np.bool_] | None,
    k: int,
    relevance_weight: float,
    min_relevance: float | None,
    normalize: bool,
    indices: Integers,
    scores: NDArray[np.float32],
    counts: Integers,
    *,
    isa: str = "",
    threads: int = 0,
) -> Outcome: ...
def mmr_select_from(
    relevance: NDArray[np.float32],
    similarity: NDArray[np.float32],
    lengths: Integers | None,
    k: int,
    relevance_weight: float,
    min_relevance: float | None,
    indices: Integers,
    scores: NDArray[np.float32],
    counts: Integers,
    *,
    isa: str = "",
    threads: int = 0,
) -> Outcome: ...
def segment_max_similarity(
    evidence: Rows,
    items: Rows,
    ranges: Integers | None,
    groups: Integers | None,
    normalize: bool,
    values: NDArray[np.float32],
    indices: Integers,
    *,
    codes: RowCodes | None = None,
    isa: str = "",
    threads: int = 0,
) -> Outcome: ...
def segment_mean(
    values: Rows, offsets: Integers, means: NDArray[np.float64], *, isa: str = "", threads: int = 0
) -> Outcome: ...
def token_overlap(
    queries: NDArray[np.int32],
    query_offsets: Integers,
    keys: NDArray[np.int32],
    key_offsets: Integers,
    ranges: Integers | None,
    groups: Integers | None,
    dice: bool,
    out_offsets: Integers,
    out: NDArray[np.float64],
    *,
    isa: str = "",
    threads: int = 0,
) -> Outcome: ...
