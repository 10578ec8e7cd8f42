"""Texts longer than an embedding model accepts: split where words end, embedded in pieces, joined as their mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray


def pieces(text: str, fits: Callable[[str], bool]) -> list[str]:
    """The text in pieces that fit, each cut at the white space nearest its middle, or at its middle where it has none.

    White space at the cuts belongs to no piece. A single character that does not fit stays as it is.
    """
    if len(text) <= 1 or fits(text):
        return [text]
    first, second = halves(text)
    return [*pieces(first, fits), *pieces(second, fits)]


def halves(text: str) -> tuple[str, str]:
    """The text cut in two, neither part empty; `text` has at least two characters."""
    text = text.strip() if len(text.strip()) > 1 else text
    middle = len(text) // 2
    before = next((i for i in range(middle, 0, -1) if text[i].isspace()), None)
    after = next((i for i in range(middle, len(text) - 1) if text[i].isspace()), None)
    places = [place for place in (before, after) if place is not None]
    if not places:
        return text[:middle], text[middle:]
    cut = min(places, key=lambda place: abs(place - middle))
    return text[:cut].rstrip(), text[cut:].lstrip()


def joined(rows: NDArray[np.float32], tokens: Sequence[int]) -> NDArray[np.float32]:
    """The mean (d,) of the pieces' rows (n, d), weighted by their tokens, of length 1 (zero if it vanishes)."""
    mean = np.average(np.asarray(rows, np.float64), axis=0, weights=np.maximum(1, np.asarray(tokens)))
    length = float(np.linalg.norm(mean))
    return np.asarray(mean / length if length > 0 else mean, np.float32)
