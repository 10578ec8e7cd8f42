"""LexicalIndex: a growable exact store of texts, searched by their words (BM25)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import ArgumentError, LexicalIndexError
from prismem_core.index.arguments import as_id, checked_filter, checked_ids, path_bytes
from prismem_core.index.results import SearchResult
from prismem_core.index.tokens import Tokenizer
from prismem_core.ops.checks import threshold, whole_number
from prismem_core.ops.registry import native, thread_count

if TYPE_CHECKING:
    from prismem_core import _native

Ids = NDArray[np.int64]

_MOST = 1 << 62
_PLAIN = Tokenizer()


@dataclass(frozen=True)
class LexicalStats:
    """What a lexical index holds: `count` texts of `tokens` tokens in all, `removed` texts whose room is not given back
    yet, `terms` different tokens (also of those), `bytes` of memory.
    """

    count: int
    removed: int
    terms: int
    tokens: int
    bytes: int


class LexicalIndex:
    """Texts under ids of your choice: added, updated and removed at any time, searched exactly by BM25.

    The score of a text for a query is the sum over the query's different tokens t, in the order in which they come, of

        log(1 + (N - n + 0.5) / (n + 0.5)) * (k1 + 1) * f / (f + k1 * (1 - b + b * length / mean length))

    with N texts, n of which hold t, f occurrences of t in the text, and lengths in tokens: Robertson's weight with the
    idf of Lucene, which is never negative. Sums are taken in float64 and rounded once to float32. A text that holds no
    token of the query is no hit. The score depends on the texts that are there now, and on nothing else: not on how
    they came, nor on what was removed. Whatever was added is found by the next search.

    `tokenizer` makes tokens of texts and queries (`Tokenizer` for any script, with stop words and stems if you like).
    Rules of ids, order, filters, threads and forks are those of `VectorIndex`: equal scores come in the order of
    adding, `update` keeps a text's place, searches of several threads run at the same time, a change that fails changes
    nothing. `ops.use` and PRISMEM_THREADS say how many threads a search of several queries takes.

    Errors: ArgumentError for bad arguments, LexicalIndexError for files and for an index whose process was forked while
    another thread changed it, MemoryError; what the tokenizer raises passes through.
    """

    def __init__(self, *, k1: float = 1.2, b: float = 0.75, tokenizer: Tokenizer = _PLAIN) -> None:
        if not _is_number(k1) or not 0.0 <= k1 < math.inf:
            raise ArgumentError(f"k1: expected a finite number of at least 0, got {k1!r}")
        if not _is_number(b) or not 0.0 <= b <= 1.0:
            raise ArgumentError(f"b: expected a number from 0 to 1, got {b!r}")
        self._tokenizer = _checked_tokenizer(tokenizer)
        self._native: _native.LexicalIndex = native().LexicalIndex(float(k1), float(b), tokenizer.name)

    @classmethod
    def load(cls, path: str | Path, *, tokenizer: Tokenizer = _PLAIN) -> LexicalIndex:
        """The index that `save` wrote; every checksum is verified.

        `tokenizer` must have the name of the one it was made with: LexicalIndexError otherwise.
        """
        index = cls.__new__(cls)
        index._tokenizer = _checked_tokenizer(tokenizer)
        index._native = native().LexicalIndex.load(path_bytes(path))
        made_with = index._native.tokenizer().decode("utf-8", "replace")
        if made_with != tokenizer.name:
            raise LexicalIndexError(
                f"the lexical index {path} was made with the tokenizer {made_with!r}, and "
                f"{tokenizer.name!r} was given: pass tokenizer= the one that it was made with"
            )
        return index

    @property
    def k1(self) -> float:
        """How soon further occurrences of a token stop to count; 0: at once."""
        return self._native.k1()

    @property
    def b(self) -> float:
        """How much the length of a text counts against it: 0 not at all, 1 in full."""
        return self._native.b()

    @property
    def tokenizer(self) -> Tokenizer:
        """What makes tokens of texts and queries."""
        return self._tokenizer

    @property
    def ids(self) -> Ids:
        """All ids, in the order in which they were added; a copy."""
        return self._native.ids()

    def stats(self) -> LexicalStats:
        """Counts and bytes of memory."""
        return LexicalStats(**self._native.stats())

    def __len__(self) -> int:
        return self._native.size()

    def __contains__(self, id: object) -> bool:
        number = as_id(id)
        return number is not None and self._native.contains(number)

    def __repr__(self) -> str:
        return f"<LexicalIndex of {len(self)} texts, k1={self.k1}, b={self.b}, tokenizer={self._tokenizer.name!r}>"

    def add(self, texts: Sequence[str], ids: NDArray[Any] | Sequence[int] | None = None) -> Ids:
        """Add texts (n) under `ids` (n,), any int64 numbers not yet used, and return the ids.

        Without `ids` they get the numbers that follow the largest id ever used, from 0 on. An id that is in the index
        or given twice is an error, and nothing is added. A text may be empty; it is never found, but counts in N.
        """
        tokens = self._tokens(texts, "texts")
        return self._native.add(tokens, None if ids is None else checked_ids(ids, len(tokens), "text"))

    def update(self, ids: NDArray[Any] | Sequence[int], texts: Sequence[str]) -> None:
        """Replace the texts of `ids` (n,), each named once, by `texts` (n); they keep their places."""
        tokens = self._tokens(texts, "texts")
        self._native.update(checked_ids(ids, len(tokens), "text"), tokens)

    def remove(self, ids: NDArray[Any] | Sequence[int]) -> None:
        """Remove the texts of `ids` (n,), each named once; an unknown one is an error, and nothing is removed."""
        self._native.remove(checked_ids(ids))

    def search(
        self,
        queries: Sequence[str],
        k: int,
        *,
        filter: NDArray[Any] | Sequence[int] | None = None,
        min_score: float | None = None,
    ) -> SearchResult:
        """The min(k, eligible) best texts of each query: `queries` (m).

        Eligible are texts with a score above 0 that `filter` lets pass and whose score is at least `min_score`
        (inclusive, compared in float32, as the caller sees the score). `filter` is an integer array or list of ids
        (those that are not in the index name nothing) or a boolean mask (n,) or (m, n) over the texts in the order of
        `ids`; it does not change N, n or the mean length. A token that a query repeats counts once. A batch gives
        exactly what its queries give one by one; k = 0, no queries and an empty index are valid. Order: score
        descending, then order of adding.
        """
        number = min(whole_number(k, "k"), _MOST)
        allowed = checked_filter(filter)
        if not (allowed is None or isinstance(allowed, np.ndarray)):
            raise ArgumentError("filter: expected ids or a mask, got a filter that a VectorIndex prepared")
        tokens = self._tokens(queries, "queries")
        found = self._native.search(tokens, number, threshold(min_score, "min_score"), allowed, thread_count())
        return SearchResult._make(found)

    def save(self, path: str | Path) -> None:
        """Write the index to one file (docs/formats.md) that replaces what is at `path` when it is whole on the disk.

        It holds the tokens and their counts, not the texts. A kill at any moment leaves the old file or the new one.
        LexicalIndexError where the place cannot be written; what was there stays.
        """
        self._native.save(path_bytes(path))

    def _tokens(self, texts: Sequence[str], name: str) -> list[list[str]]:
        if isinstance(texts, (str, bytes)):
            raise ArgumentError(f"{name}: expected a list of str, got one text; for one text pass [text]")
        tokenizer, found = self._tokenizer, []
        for position, text in enumerate(texts):
            if not isinstance(text, str):
                raise ArgumentError(f"{name}: expected a list of str, got {type(text).__name__} at position {position}")
            found.append(tokenizer(text))
        return found


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, (bool, np.bool_))


def _checked_tokenizer(tokenizer: Any) -> Tokenizer:
    if not isinstance(tokenizer, Tokenizer):
        raise ArgumentError(f"tokenizer: expected an index.Tokenizer, which has a name, got {type(tokenizer).__name__}")
    return tokenizer
