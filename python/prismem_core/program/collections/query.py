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

    `method` is `search`, `mmr`, `lexical` or `hybrid`. `allowed` (size,) leaves positions out before the selection.
    `least` is the inclusive smallest score (`mmr`: relevance). `weight` is that of relevance (`mmr`) or of
    the dense ranking (`hybrid`); `pool` is the number of candidates of either.
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

    @property
    def width(self) -> int:
        """How many hits of a single ranking are wanted."""
        return self.pool if self.method in ("mmr", "hybrid") else self.k

    @property
    def dense(self) -> bool:
        """Whether it looks at rows; a ranking of weight 0 is left out."""
        return self.method in ("search", "mmr") or (self.method == "hybrid" and self.weight > 0)

    @property
    def lexical(self) -> bool:
        """Whether it looks at words."""
        return self.method == "lexical" or (self.method == "hybrid" and self.weight < 1)
