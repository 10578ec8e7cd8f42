"""A stand-in for the backend: what a candidate is tried with before it gets a real one."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from prismem_core.program.collections.query import CollectionQuery, Hits
from prismem_core.program.collections.store import CollectionStore, Scope


class OutOfTime(Exception):
    """The time for all dynamic steps together is over."""


class StubBackend:
    """A backend that answers at once and always alike: unit vectors from a hash of each text, `stub` or `{}` for ask.

    Its collections are the real ones over these vectors. Raises OutOfTime when `seconds` have passed since it was made,
    its own time left out.
    """

    def __init__(self, dimension: int, seconds: float) -> None:
        self.dimension = dimension
        self._seconds = seconds
        self._store: CollectionStore | None = None
        self._scope = Scope()
        self._start = time.monotonic()
        self._own = 0.0

    def ask(self, prompt: str, system_prompt: str | None, json_object: bool) -> str:
        self.check_time()
        return "{}" if json_object else "stub"

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        with self._own_time():
            return _vectors(texts, self.dimension)

    def add_texts(self, handle: str, texts: list[str]) -> str:
        with self._own_time():
            return self._collections().add(self._scope, handle, texts)

    def find(self, query: CollectionQuery) -> list[Hits]:
        with self._own_time():
            return self._collections().find([query])[0][0]

    def _collections(self) -> CollectionStore:
        if self._store is None:
            self._store = CollectionStore(_StubEmbedder(self.dimension))
        return self._store

    @contextmanager
    def _own_time(self) -> Iterator[None]:
        self.check_time()
        start = time.monotonic()
        yield
        self._own += time.monotonic() - start

    def check_time(self) -> None:
        if time.monotonic() - self._start - self._own > self._seconds:
            raise OutOfTime


class _StubEmbedder:
    identity = "stub"

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return _vectors(texts, self.dimension)


def _vectors(texts: Sequence[str], dimension: int) -> NDArray[np.float32]:
    rows = np.empty((len(texts), dimension), dtype=np.float32)
    for row, text in zip(rows, texts, strict=True):
        row[:] = _vector(text, dimension)
    return rows


def _vector(text: str, dimension: int) -> NDArray[np.float32]:
    seed = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")
    row = np.random.Generator(np.random.PCG64(seed)).standard_normal(dimension, dtype=np.float32)
    return row / np.float32(np.linalg.norm(row))
