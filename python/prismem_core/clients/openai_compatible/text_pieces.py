"""Texts in pieces for models that read fewer tokens, and the row of the whole from those of its pieces."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from prismem_core.clients.openai_compatible.embedding_rows import unit


def split_text(text: str, count: int) -> list[str]:
    """`text` in about `count` pieces of like length (two or more), cut at white space where there is some near.

    Pieces without content are left out. A text of one character cannot be split and comes back alone.
    """
    count = min(max(2, count), len(text))
    pieces, start = [], 0
    for part in range(1, count):
        wanted = round(len(text) * part / count)
        end = _cut(text, start, wanted, len(text) // count)
        if end > start:
            pieces.append(text[start:end])
            start = end
    pieces.append(text[start:])
    return [piece.strip() for piece in pieces if piece.strip()] or [text]


def _cut(text: str, start: int, wanted: int, step: int) -> int:
    """The position of white space next to `wanted`, at most half a step away; else one that parts no pair."""
    reach = max(1, step // 2)
    for distance in range(reach):
        for position in (wanted - distance, wanted + distance):
            if start < position < len(text) and text[position].isspace():
                return position
    while start < wanted < len(text) and _joins(text[wanted]):
        wanted += 1
    return wanted


def _joins(character: str) -> bool:
    """Whether a character belongs to the one before it: combining marks, joiners and variants."""
    import unicodedata

    return unicodedata.combining(character) != 0 or character in "\u200d\ufe0e\ufe0f"


def joined(rows: Sequence[NDArray[np.float32]], tokens: Sequence[int]) -> NDArray[np.float32]:
    """The mean of pieces' rows weighted by their tokens, of length 1."""
    weights = np.asarray([max(1, count) for count in tokens], np.float64)[:, None]
    mean = (np.stack(rows).astype(np.float64) * weights).sum(axis=0, keepdims=True) / weights.sum()
    row: NDArray[np.float32] = unit(mean)[0]
    return row


def shares(texts: Sequence[str], total: int) -> list[int]:
    """`total` tokens shared out by the bytes of the texts; the sum is exact."""
    sizes = [len(text.encode("utf-8", "replace")) + 1 for text in texts]
    whole = sum(sizes)
    ends, passed = [0], 0
    for size in sizes:
        passed += size
        ends.append(total * passed // whole)
    return [after - before for before, after in pairwise(ends)]
