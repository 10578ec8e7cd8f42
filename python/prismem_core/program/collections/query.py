"""One search of a collection, checked: what every part of the engine hands on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Hits = tuple[list[int], list[float]]
"""Positions and scores of one text's hits, best first."""

EMPTY = ""
"""The handle of a collection without texts."""


@dataclass(frozen=True, eq=False)
class CollectionQuery:
    """A search of the collection `handle`, which holds `size` texts, for each of `texts`.

    `method` is `search` or `mmr`. `allowed` (size,) leaves positions out before the selection.
    `least` is the inclusive smallest score (`mmr`: relevance). `weight` is that of relevance and `pool`, not below k,
    the number of candidates (`mmr`).
    """

    method: str
    handle: str
    size: int
    texts: tuple[str, ...]
    k: int
    allowed: NDArray[np.bool_] | None = None
    least: float | None = None
    weight: float = 0.5
    pool: int = 0
