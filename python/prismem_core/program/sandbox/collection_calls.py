"""Calls of a program on its collections: read from frames, held to what it may do, answered in plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import LimitError
from prismem_core.program.collections.query import EMPTY, CollectionQuery
from prismem_core.program.sandbox.frames import FrameError, plain_text
from prismem_core.program.sandbox.limits import CollectionBackend, CollectionLimits

_WEIGHTED = ("mmr", "hybrid")
_LEAST_POOL = 64
_POOL_PER_HIT = 4


class Refusal(Exception):
    """An argument that is not allowed; the program gets it as ValueError at its own line."""


@dataclass(frozen=True)
class CollectionCall:
    """A call as it came: the right kinds, nothing checked against the collection."""

    name: str
    handle: str
    texts: tuple[str, ...]
    line: int | None
    arguments: Mapping[str, Any]

    @property
    def adds(self) -> bool:
        """Whether it makes another collection."""
        return self.name == "add"


class Collections:
    """The collections that the program of one worker has made: no others are within its reach, whatever it sends.

    Shared by the worker and its copies; only the worker adds.
    """

    def __init__(self, limits: CollectionLimits) -> None:
        self.limits = limits
        self._sizes = {EMPTY: 0}
        self._texts = self._chars = 0

    def serve(self, call: CollectionCall, backend: CollectionBackend, *, building: bool) -> dict[str, Any]:
        """The frame that answers a call; LimitError where the program asks for more than a memory may hold."""
        try:
            size = self._sizes.get(call.handle)
            if size is None:
                raise Refusal("this memory has no such collection")
            if call.adds:
                if not building:
                    raise Refusal("a collection is read-only in retrieve(); add texts in index()")
                return {"handle": self._add(call, size, backend)}
            hits = backend.find(self._query(call, size))
            return {"hits": [list(found) for found in hits]}
        except Refusal as refusal:
            return {"refused": str(refusal)}

    def _add(self, call: CollectionCall, size: int, backend: CollectionBackend) -> str:
        self._texts += len(call.texts)
        self._chars += sum(map(len, call.texts))
        for count, most, of in (
            (self._texts, self.limits.texts, "texts"),
            (self._chars, self.limits.chars, "characters"),
            (self._texts * backend.dimension * 4, self.limits.row_bytes, "bytes of embeddings"),
        ):
            if count > most:
                message = f"the program put more than {most} {of} into its collections"
                raise LimitError("limit:memory", message, call.line)
        handle = backend.add_texts(call.handle, list(call.texts)) if call.texts else call.handle
        self._sizes[handle] = size + len(call.texts)
        return handle

    def _query(self, call: CollectionCall, size: int) -> CollectionQuery:
        limits = self.limits
        k, pool, least = (call.arguments[name] for name in ("k", "pool", "least"))
        if not 0 <= k <= limits.texts:
            raise Refusal(f"k must be from 0 to {limits.texts}, got {_shown(k)}")
        hits = min(k, size)
        if len(call.texts) * hits > limits.hits:
            raise Refusal(f"{len(call.texts)} texts with {hits} hits each; one call gives at most {limits.hits} hits")
        if call.name in _WEIGHTED:
            if pool is None:
                pool = min(max(_POOL_PER_HIT * k, _LEAST_POOL), limits.pool)
            if not hits <= pool <= limits.pool:
                raise Refusal(
                    f"{hits} hits from a pool of {_shown(pool)}; the pool must hold as many, at most {limits.pool}"
                )
        return CollectionQuery(
            method=call.name,
            handle=call.handle,
            size=size,
            texts=call.texts,
            k=k,
            allowed=_mask(call.arguments["allowed"], size),
            least=None if least is None else float(least),
            weight=call.arguments["weight"] if call.name in _WEIGHTED else 1.0,
            pool=pool or 0,
        )


def read(name: str, frame: Mapping[str, Any]) -> CollectionCall:
    """The call `name` in a frame; FrameError for parts of another kind, which only a forged frame has."""
    handle, texts, line = frame.get("handle"), frame.get("texts"), frame.get("line")
    if not isinstance(handle, str) or not (line is None or type(line) is int):
        raise FrameError(f"{name} came with arguments of the wrong kind")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise FrameError(f"{name} came with something else than a list of texts")
    arguments = {key: frame.get(key) for key in ("k", "allowed", "least", "weight", "pool")}
    if name != "add":
        allowed, weight = arguments["allowed"], arguments["weight"]
        weighted = name in _WEIGHTED
        plain = (
            type(arguments["k"]) is int
            and (arguments["pool"] is None or type(arguments["pool"]) is int)
            and (arguments["least"] is None or _is_number(arguments["least"]))
            and (allowed is None or (isinstance(allowed, list) and all(type(item) is int for item in allowed)))
            and (weight is None) != weighted
            and (weight is None or (_is_number(weight) and 0.0 <= weight <= 1.0))
        )
        if not plain:
            raise FrameError(f"{name} came with arguments of the wrong kind")
    return CollectionCall(name, handle, tuple(plain_text(text) for text in texts), line, arguments)


def _is_number(value: object) -> bool:
    if type(value) is int:
        return abs(value) < 1 << 1000
    return type(value) is float and math.isfinite(value)


def _mask(allowed: list[int] | None, size: int) -> NDArray[np.bool_] | None:
    if allowed is None:
        return None
    for position in allowed:
        if not 0 <= position < size:
            raise Refusal(f"position {_shown(position)} in allowed is outside the {size} texts of the collection")
    mask = np.zeros(size, np.bool_)
    mask[allowed] = True
    return mask


def _shown(number: int) -> str:
    return str(number) if abs(number) < 1 << 64 else "a number of more than 64 bits"
