"""Embedders without a service: bge-small from a package, and a hashing embedder that needs nothing."""

from __future__ import annotations

import hashlib
import math
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.typing import NDArray

from prismem_core.clients.offline.model_files import BGE_SMALL_EN, Loaded, load
from prismem_core.roles.meter import Meter
from prismem_core.tasks.text import STOP_WORDS, stem, tokens

Row = NDArray[np.float32]
_WINDOW_TOKENS = 510


class BgeSmallEmbedder:
    """bge-small-en-v1.5, int8, 384 dimensions: the first token's state, scaled to length 1.

    A text of more than 510 tokens is embedded in windows of 510; its row is the mean of theirs, scaled to length 1. A
    text without tokens has a zero row. Each text is run alone: dynamic quantisation makes a row depend on the others
    of its batch. Raises RoleError where the extra `offline` is not installed or its files are not the pinned ones.
    """

    dimension = 384

    def __init__(self, workers: int = 2) -> None:
        self.identity = f"bge-small-en-v1.5-int8/{BGE_SMALL_EN.model_sha256[:12]}"
        self._workers = max(1, workers)
        self.meter = Meter(self._workers)
        self._slots = threading.BoundedSemaphore(self._workers)
        self._model = load(BGE_SMALL_EN)

    def embed(self, texts: Sequence[str]) -> Row:
        """Rows (n, 384) float32 in the order of `texts`."""
        rows = np.zeros((len(texts), self.dimension), np.float32)
        if self._workers == 1 or len(texts) < 2:
            for i, text in enumerate(texts):
                rows[i] = self._row(text)
            return rows
        with ThreadPoolExecutor(min(self._workers, len(texts))) as pool:
            for i, row in enumerate(pool.map(self._row, texts)):
                rows[i] = row
        return rows

    def _row(self, text: str) -> NDArray[np.float32]:
        # Programs of several memories embed at a time; more texts under way than threads would only slow each other.
        with self._slots:
            self.meter.enter()
            try:
                return _bge_row(self._model, text)
            finally:
                self.meter.leave()


def _bge_row(model: Loaded, text: str) -> Row:
    ids: list[int] = model.tokenizer.encode(text, add_special_tokens=False).ids
    start, end = model.tokenizer.token_to_id("[CLS]"), model.tokenizer.token_to_id("[SEP]")
    total = np.zeros(BgeSmallEmbedder.dimension, np.float64)
    for at in range(0, len(ids), _WINDOW_TOKENS):
        window = np.array([[start, *ids[at : at + _WINDOW_TOKENS], end]], np.int64)
        feed = {"input_ids": window, "attention_mask": np.ones_like(window), "token_type_ids": np.zeros_like(window)}
        output = model.session.run(None, {name: feed[name] for name in model.input_names})[0]
        state = output[0, 0].astype(np.float64)
        total += state / np.linalg.norm(state)
    norm = np.linalg.norm(total)
    return (total / norm if norm > 0 else total).astype(np.float32)


class HashingEmbedder:
    """Signed feature hashing of stems and of the character 3- and 4-grams of words, 1,024 dimensions.

    Weights grow with the logarithm of the count; a stem weighs as much as all its grams together. Stop words count
    only in a text that has no other words. A text without letters or digits has a zero row.
    """

    dimension = 1024

    def __init__(self) -> None:
        self.identity = "hashing-stems-grams-1024/1"

    def embed(self, texts: Sequence[str]) -> Row:
        """Rows (n, 1024) float32 in the order of `texts`."""
        rows = np.zeros((len(texts), self.dimension), np.float32)
        for i, text in enumerate(texts):
            rows[i] = _hashed_row(text)
        return rows


def _hashed_row(text: str) -> Row:
    words = tokens(text)
    counts = Counter(word for word in words if word not in STOP_WORDS) or Counter(words)
    row = np.zeros(HashingEmbedder.dimension, np.float64)
    for word in sorted(counts):
        weight = 1.0 + math.log(counts[word])
        cells, signs = _features(word)
        # Fixed order of addition: a row does not depend on the order of equal words elsewhere in the text.
        np.add.at(row, cells, weight * signs)
    norm = np.linalg.norm(row)
    return cast(Row, (row / norm if norm > 0 else row).astype(np.float32))


@lru_cache(maxsize=1 << 15)
def _features(word: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    padded = f"<{word}>"
    grams = [padded[i : i + n] for n in (3, 4) for i in range(len(padded) - n + 1)]
    keys = [f"s:{stem(word)}", *(f"g:{gram}" for gram in grams)]
    weights = np.array([1.0] + [1.0 / math.sqrt(len(grams))] * len(grams) if grams else [1.0])
    hashes = [int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little") for key in keys]
    cells = np.array([h % HashingEmbedder.dimension for h in hashes], np.int64)
    signs = np.array([1.0 if h >> 63 else -1.0 for h in hashes])
    return cells, signs * weights
