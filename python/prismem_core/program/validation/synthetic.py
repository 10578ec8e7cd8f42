"""Made-up sessions and a stand-in for the backend: what a candidate is tried with before it gets real ones."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.program.collections.query import CollectionQuery, Hits
from prismem_core.program.collections.store import CollectionStore, Scope
from prismem_core.program.interface import FieldSpec

_SPEAKERS = ("Anna", "Boris", "Chen", "Dalia")
_PLACES = ("the harbour", "a bakery", "the old library", "a mountain hut", "the workshop")
_ACTS = ("repaired a bicycle", "planted tomatoes", "wrote a long letter", "baked bread", "learned a song")
_MONTHS = ("January", "March", "May", "July", "October")


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


def sentence(number: int) -> str:
    """A sentence of more than 20 characters; each number gives another."""
    speaker, act = _SPEAKERS[number % 4], _ACTS[number // 4 % 5]
    return f"{speaker} {act} at {_PLACES[number // 20 % 5]} and counted {number} birds"


def synthetic_object(schema: Sequence[FieldSpec], number: int) -> dict[str, Any]:
    """A value for every field, Optional ones included; objects of different numbers differ in every text."""
    return {spec.name: _value(spec, number, place) for place, spec in enumerate(schema)}


def _value(spec: FieldSpec, number: int, place: int) -> Any:
    if spec.type == "str":
        return f"{sentence(number)} ({spec.name} {place})"
    if spec.type == "int":
        return number + place
    if spec.type == "float":
        return number + 0.5
    if spec.type == "bool":
        return number % 2 == 0
    return [f"{sentence(number)} ({spec.name} {place}, item {item})" for item in (1, 2)]


def raw_text(session: int, numbers: Sequence[int]) -> str:
    """A session as `index` gets it: a header line with its time, then one turn a line."""
    header = f"[{10 + session % 3}:{session % 60:02d} am on {1 + session % 28} {_MONTHS[session % 5]}, 2023]"
    turns = [f"{_SPEAKERS[number % 4]}: {sentence(number)}." for number in numbers]
    return "\n".join([header, *turns])
