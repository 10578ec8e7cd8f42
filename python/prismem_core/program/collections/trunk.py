"""Texts that grew in one line, and what is kept beside them."""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from prismem_core.index import LexicalIndex, SearchResult
from prismem_core.program.collections.arena import Block

_PAST = 4


class Trunk:
    """Texts in the order they were added, with their rows; every state it went through is a collection of its own."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.lengths: dict[str, int] = {}
        self.block = Block()
        self._lock = threading.Lock()
        self._longest = LexicalIndex()
        self._past: OrderedDict[int, LexicalIndex] = OrderedDict()

    def lexical(self, length: int, queries: list[str], k: int, mask: NDArray[np.bool_] | None) -> SearchResult:
        """The k best of the first `length` texts for each query, by BM25; `mask` (m, length).

        How rare a word is depends on all texts, so each length has an index of its own, made when it is first asked
        for: the longest grows with the trunk, a few shorter ones are kept.
        """
        with self._lock:
            return self._words(length).search(queries, k, filter=mask)

    def _words(self, length: int) -> LexicalIndex:
        known = len(self._longest)
        if length >= known:
            self._longest.add(self.texts[known:length])
            return self._longest
        if length not in self._past:
            self._past[length] = LexicalIndex()
            self._past[length].add(self.texts[:length])
            while len(self._past) > _PAST:
                self._past.popitem(last=False)
        self._past.move_to_end(length)
        return self._past[length]
