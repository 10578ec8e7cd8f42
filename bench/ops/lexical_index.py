"""LexicalIndex, the BM25 store, against bm25s."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.index import LexicalIndex

from ..contest import OURS, Competitor, Contest, Finding, Job, Run, Work, require

_K1, _B = 1.2, 0.75
_LETTERS = "abcdefghijklmnopqrstuvwxyz"

Words = list[list[str]]


def _word(number: int) -> str:
    letters = ""
    while True:
        letters = _LETTERS[number % 26] + letters
        number = number // 26 - 1
        if number < 0:
            return letters


def texts_of(rng: np.random.Generator, count: int, mean: int, vocabulary: int) -> Words:
    """Texts whose words follow Zipf's law, as those of a language do."""
    words = [_word(number) for number in range(vocabulary)]
    return [
        [words[number] for number in rng.zipf(1.2, int(length)) % vocabulary] for length in 1 + rng.poisson(mean, count)
    ]


class _Definition:
    """BM25 in float64: Robertson's weight with the idf of Lucene, token by token."""

    def __init__(self, texts: Words) -> None:
        self._lengths = np.array([len(text) for text in texts], np.float64)
        holders: dict[str, dict[int, int]] = {}
        for number, text in enumerate(texts):
            for word in text:
                held = holders.setdefault(word, {})
                held[number] = held.get(number, 0) + 1
        self._postings = {
            word: (np.fromiter(held.keys(), np.int64), np.fromiter(held.values(), np.float64))
            for word, held in holders.items()
        }

    def scores(self, query: list[str]) -> NDArray[np.float64]:
        """One score a text, without the factor k1 + 1 that changes no order."""
        total = np.zeros(len(self._lengths))
        norm = _K1 * (1 - _B + _B * self._lengths / self._lengths.mean())
        for word in dict.fromkeys(query):
            if word in self._postings:
                where, often = self._postings[word]
                idf = np.log(1 + (len(total) - len(where) + 0.5) / (len(where) + 0.5))
                total[where] += idf * often / (often + norm[where])
        return total


def _ours(texts: Words, queries: Words, k: int) -> Run:
    index = LexicalIndex(k1=_K1, b=_B)
    index.add([" ".join(text) for text in texts])
    asked = [" ".join(query) for query in queries]
    return lambda: index.search(asked, k).ids


def _bm25s(texts: Words, queries: Words, k: int) -> Run:
    bm25s = require("bm25s", "bm25s")
    retriever = bm25s.BM25(method="lucene", k1=_K1, b=_B)
    retriever.index(texts, show_progress=False)
    return lambda: retriever.retrieve(queries, k=k, show_progress=False, n_threads=1)[0]


def _prepare(num_queries: int, count: int, quick: bool) -> Contest:
    count, k = (2_000 if quick else count), 10
    rng = np.random.default_rng(0)
    texts, queries = texts_of(rng, count, 40, 20_000), texts_of(rng, num_queries, 7, 20_000)
    definition = _Definition(texts)
    exact = [definition.scores(query) for query in queries]

    def check(_: Competitor, found: Any) -> Finding:
        for query, (scores, ids) in enumerate(zip(exact, np.asarray(found), strict=True)):
            best = np.sort(scores)[::-1][:k]
            # The scores are sums of a few float32 numbers.
            off = np.abs(scores[ids] - best) / np.maximum(best, 1e-9)
            if len(set(ids.tolist())) != k or off.max() > 1e-5:
                return Finding(f"query {query}: texts {ids.tolist()} are not the best {k}")
        return Finding()

    return Contest(
        f"{count} texts of about 40 words from 20,000 by Zipf's law, queries of about 7, seed 0",
        {"queries": num_queries, "texts": count, "k": k},
        [
            Competitor("prismem LexicalIndex", OURS, lambda: _ours(texts, queries, k)),
            # Its queries are cut into words beforehand; ours are not.
            Competitor("bm25s", "bm25s", lambda: _bm25s(texts, queries, k)),
        ],
        check,
        Work(),
    )


JOBS: Sequence[Job] = (
    Job("lexical_index/q1-50k", "BM25 of one query over 50,000 texts, k=10", partial(_prepare, 1, 50_000)),
    Job("lexical_index/q64-50k", "BM25 of 64 queries over 50,000 texts, k=10", partial(_prepare, 64, 50_000)),
)
