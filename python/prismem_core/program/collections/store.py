"""The collections of all memories of a run, by content: equal texts in equal order are one collection."""

from __future__ import annotations

import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from prismem_core.digests import digest
from prismem_core.ops.screened import Screen
from prismem_core.program.collections.arena import RowArena
from prismem_core.program.collections.query import EMPTY, CollectionQuery, Hits
from prismem_core.program.collections.ranking import Search, rank
from prismem_core.program.collections.trunk import Trunk
from prismem_core.program.interface import COLLECTION_VERSION

KEPT_BYTES = 256 << 20
"""Rows of collections that no memory uses any more, kept for the next program that makes the same ones."""

Launches = Mapping[str, int]
"""Launches by what was launched: `embed`, `top_k`, `mmr_select`, `lexical`, `fusion`."""


class Embeds(Protocol):
    """The part of an embedder that a store needs."""

    @property
    def identity(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]: ...


class Scope:
    """The collections that one memory made; it keeps them alive until it is closed."""

    def __init__(self) -> None:
        self.trunks: dict[str, Trunk] = {}


class CollectionStore:
    """Collections over the rows of one embedder; thread-safe.

    A handle is a digest of the embedder's identity and the texts in order, so a collection never changes: adding gives
    the handle of another one, which shares the rows of the first. Where two memories add different texts to the same
    collection, the second to come gets a copy.
    """

    def __init__(self, embedder: Embeds, kept_bytes: int = KEPT_BYTES, screen: Screen | None = None) -> None:
        self._embedder = embedder
        self._screen = screen or Screen()
        self._kept_bytes = kept_bytes
        self._lock = threading.Lock()
        self._arena = RowArena(embedder.dimension)
        self._trunks: weakref.WeakValueDictionary[str, Trunk] = weakref.WeakValueDictionary()
        self._kept: OrderedDict[int, Trunk] = OrderedDict()

    @property
    def dimension(self) -> int:
        """Columns of the rows."""
        return self._embedder.dimension

    def add(self, scope: Scope, handle: str, texts: Sequence[str]) -> str:
        """The handle of the collection `handle` (of `scope`, or empty) with `texts` behind its own."""
        target = handle
        for text in texts:
            target = digest("collection", COLLECTION_VERSION, self._embedder.identity, target, text)
        if target == handle or self._take(scope, target):
            return target
        rows = self._embedder.embed(texts)
        with self._lock:
            found = self._trunks.get(target)
            scope.trunks[target] = found or self._grow(scope.trunks.get(handle), handle, target, texts, rows)
        return target

    def close(self, scope: Scope) -> None:
        """Let go of a scope's collections; the ones last used stay for others while they fit."""
        with self._lock:
            for trunk in scope.trunks.values():
                self._kept[id(trunk)] = trunk
                self._kept.move_to_end(id(trunk))
            scope.trunks.clear()
            while self._kept and sum(self._bytes(trunk) for trunk in self._kept.values()) > self._kept_bytes:
                self._kept.popitem(last=False)

    def bytes_of(self, scope: Scope) -> int:
        """Bytes of the rows that a scope's collections lie in."""
        with self._lock:
            return sum(self._bytes(trunk) for trunk in {id(trunk): trunk for trunk in scope.trunks.values()}.values())

    def find(self, queries: Sequence[CollectionQuery]) -> tuple[list[list[Hits]], Launches]:
        """Hits of each text of each query, the same whatever they are asked together with; and what was launched."""
        launched: Counter[str] = Counter()
        found = [[Search(query, text) for text in query.texts] for query in queries]
        searches = [search for own in found for search in own if search.query.k > 0 and search.query.handle != EMPTY]
        self._embed(searches, launched)
        with self._lock:
            # From here on the rows are read without the lock: those in this matrix stay as they are.
            matrix = self._arena.matrix
            for search in searches:
                trunk = self._trunks[search.query.handle]
                search.trunk, search.begin = trunk, trunk.block.begin
        rank(searches, matrix, launched, self._screen)
        return [[search.hits for search in own] for own in found], launched

    def _take(self, scope: Scope, handle: str) -> bool:
        """Whether there is such a collection already; it then belongs to the scope too."""
        with self._lock:
            trunk = self._trunks.get(handle)
            if trunk is not None:
                scope.trunks[handle] = trunk
            return trunk is not None

    def _grow(
        self, trunk: Trunk | None, handle: str, target: str, texts: Sequence[str], rows: NDArray[np.float32]
    ) -> Trunk:
        """The trunk that holds `target`: the one that ends with `handle`, or else a copy of it up to there."""
        length = 0 if trunk is None else trunk.lengths[handle]
        if trunk is None or length < len(trunk.texts):
            grown = Trunk()
            if trunk is not None:
                begin = trunk.block.begin
                self._arena.append(grown.block, self._arena.matrix[begin : begin + length])
                grown.texts = trunk.texts[:length]
            trunk = grown
        self._arena.append(trunk.block, rows)
        trunk.texts.extend(texts)
        trunk.lengths[target] = len(trunk.texts)
        self._trunks[target] = trunk
        return trunk

    def _bytes(self, trunk: Trunk) -> int:
        return 4 * self.dimension * trunk.block.length

    def _embed(self, searches: Sequence[Search], launched: Counter[str]) -> None:
        """One call of the embedder for all texts whose rows are needed."""
        texts = list(dict.fromkeys(search.text for search in searches if search.query.dense))
        if not texts:
            return
        rows = dict(zip(texts, self._embedder.embed(texts), strict=True))
        launched["embed"] += 1
        for search in searches:
            search.row = rows.get(search.text)
