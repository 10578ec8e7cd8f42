"""Texts longer than an embedding model reads: in pieces cut where words end, and the row of the whole from theirs."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def pieces(text: str, fits: Callable[[str], bool]) -> list[str]:
    """`text` whole if it fits, else its halves, and halves of those, until each fits.

    A piece that cannot be split further stays as it is.
    """
    if fits(text):
        return [text]
    halves = split_text(text, 2)
    if len(halves) == 1:
        return halves
    return [piece for half in halves for piece in pieces(half, fits)]


def split_text(text: str, count: int) -> list[str]:
    """`text` in about `count` pieces of like length (two or more), cut at white space where there is some near.

    White space at the cuts and ends belongs to no piece. A text of one character cannot be split and comes back alone.
    """
    text = text.strip() or text
    count = min(max(2, count), len(text))
    found, start = [], 0
    for part in range(1, count):
        wanted = round(len(text) * part / count)
        end = _cut(text, start, wanted, len(text) // count)
        if end > start:
            found.append(text[start:end])
            start = end
    found.append(text[start:])
    return [piece.strip() for piece in found if piece.strip()] or [text]


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
    return unicodedata.combining(character) != 0 or character in "\u200d\ufe0e\ufe0f"


def joined(rows: Sequence[NDArray[np.float32]] | NDArray[np.float32], tokens: Sequence[int]) -> NDArray[np.float32]:
    """The mean (d,) of pieces' rows (n, d) weighted by their tokens, of length 1 (zero if it vanishes)."""
    weights = np.asarray([max(1, count) for count in tokens], np.float64)[:, None]
    mean = (np.stack(list(rows)).astype(np.float64) * weights).sum(axis=0, keepdims=True) / weights.sum()
    row: NDArray[np.float32] = unit(mean)[0]
    return row


def unit(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Rows of length 1; zero rows stay as they are."""
    wide = np.asarray(rows, np.float64)
    # Two steps: values near the ends of the range must neither overflow nor vanish when they are squared.
    largest = np.abs(wide).max(axis=1, keepdims=True)
    wide = wide / np.where(largest == 0, 1.0, largest)
    lengths = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    return np.asarray(wide / np.where(lengths == 0, 1.0, lengths), np.float32)
