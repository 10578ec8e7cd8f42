"""An embedder of a few directions, behind a counter."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray


class HashEmbedder:
    """A unit row for every text from its hash; `asked` keeps the batches it got."""

    identity = "hash"

    def __init__(self, dimension: int = 17) -> None:
        self.dimension = dimension
        self.asked: list[list[str]] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked.append(list(texts))
        return rows_of(texts, self.dimension)


def rows_of(texts: Sequence[str], dimension: int = 17) -> NDArray[np.float32]:
    """The rows the embedder gives."""
    rows = np.empty((len(texts), dimension), np.float32)
    for row, text in zip(rows, texts, strict=True):
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        row[:] = np.random.default_rng(seed).standard_normal(dimension)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def embedder() -> HashEmbedder:
    return HashEmbedder()
