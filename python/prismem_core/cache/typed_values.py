"""Typed values over a store of bytes: JSON, text and arrays, a fresh one on each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from prismem_core.cache.codecs import decode_array, decode_json, decode_text, encode_array, encode_json, encode_text
from prismem_core.errors import ArgumentError

Key = str | bytes
"""64 lowercase hex digits, or the 32 bytes that they spell."""


class StoresBytes(Protocol):
    """What typed values need of a cache."""

    def get(self, stage: str, key: Key) -> bytes | None: ...

    def get_many(self, stage: str, keys: Sequence[Key]) -> list[bytes | None]: ...

    def put(self, stage: str, key: Key, value: bytes, *, cost: float = 0.0) -> None: ...

    def get_or_compute(
        self, stage: str, key: Key, compute: Callable[[], bytes], *, cost: float | None = None
    ) -> bytes: ...


class TypedValues:
    """The typed verbs of a cache; a value is read with the verb that matches how it was put."""

    def get_json(self: StoresBytes, stage: str, key: Key) -> Any:
        """The stored JSON value, built anew on each call, or None (as for a stored null)."""
        data = self.get(stage, key)
        return None if data is None else decode_json(data)

    def put_json(self: StoresBytes, stage: str, key: Key, value: Any, *, cost: float = 0.0) -> None:
        """Stores a JSON value; see `encode_json`."""
        self.put(stage, key, encode_json(value), cost=cost)

    def get_or_compute_json(
        self: StoresBytes, stage: str, key: Key, compute: Callable[[], Any], *, cost: float | None = None
    ) -> Any:
        """`get_or_compute` of a JSON value; the first caller, too, gets it as JSON gives it back (tuples as lists)."""
        if not callable(compute):
            raise ArgumentError(f"compute must be a function without arguments, got {type(compute).__name__}")
        return decode_json(self.get_or_compute(stage, key, lambda: encode_json(compute()), cost=cost))

    def get_text(self: StoresBytes, stage: str, key: Key) -> str | None:
        """The stored text, or None."""
        data = self.get(stage, key)
        return None if data is None else decode_text(data)

    def put_text(self: StoresBytes, stage: str, key: Key, value: str, *, cost: float = 0.0) -> None:
        """Stores a text as UTF-8."""
        self.put(stage, key, encode_text(value), cost=cost)

    def get_array(self: StoresBytes, stage: str, key: Key) -> NDArray[Any] | None:
        """The stored array, a fresh and writable one on each call, or None."""
        data = self.get(stage, key)
        return None if data is None else decode_array(data)

    def put_array(self: StoresBytes, stage: str, key: Key, value: NDArray[Any], *, cost: float = 0.0) -> None:
        """Stores an array; see `encode_array`."""
        self.put(stage, key, encode_array(value), cost=cost)

    def get_arrays(self: StoresBytes, stage: str, keys: Sequence[Key]) -> list[NDArray[Any] | None]:
        """`get_array` for each key, in their order."""
        return [None if data is None else decode_array(data) for data in self.get_many(stage, keys)]
