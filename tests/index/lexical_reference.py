"""BM25 as its definition says, in plain Python: what a LexicalIndex is held to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np


def scores(
    texts: Sequence[str], query: str, tokenizer: Callable[[str], list[str]], k1: float = 1.2, b: float = 0.75
) -> list[float]:
    """The score of each text for a query, as the float32 that a search returns."""
    split = [tokenizer(text) for text in texts]
    mean = sum(map(len, split)) / len(split) if split else 0.0
    terms = list(dict.fromkeys(tokenizer(query)))
    holding = {term: sum(term in words for words in split) for term in terms}
    found = []
    for words in split:
        total = 0.0
        for term in terms:
            count = words.count(term)
            if count:
                idf = math.log(1 + (len(split) - holding[term] + 0.5) / (holding[term] + 0.5))
                total += idf * (k1 + 1) * (count / (count + k1 * (1 - b + b * len(words) / mean)))
        found.append(float(np.float32(total)))
    return found


def ranked(
    texts: Sequence[str], query: str, k: int, tokenizer: Callable[[str], list[str]], k1: float = 1.2, b: float = 0.75
) -> list[tuple[int, float]]:
    """Positions and scores of the hits, best first."""
    own = scores(texts, query, tokenizer, k1, b)
    order = sorted((place for place, score in enumerate(own) if score > 0), key=lambda place: (-own[place], place))
    return [(place, own[place]) for place in order[:k]]
