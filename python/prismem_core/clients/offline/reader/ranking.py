"""Which lines of the retrieved text answer a question: BM25, the speaker, the program's own order, a cross-encoder."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from prismem_core.clients.offline.dates import time_expressions
from prismem_core.clients.offline.lines import Line, sentences
from prismem_core.clients.offline.reader.question import Question
from prismem_core.tasks.text import content_stems

# A logit of the cross-encoder below which a text does not answer the question, used where it was not scored.
UNSCORED = -11.0
_SPEAKER_LEXICAL = 0.5
_SPEAKER_SCORED = 2.0
_ORDER = 0.3
_PERIOD_LEXICAL = 0.7
_PERIOD_SCORED = 2.0
_ASKS_LEXICAL = 1.0
_ASKS_SCORED = 3.0


class Scorer(Protocol):
    """Scores how well each text answers a question; higher is better."""

    identity: str

    def score(self, question: str, texts: Sequence[str]) -> list[float]: ...


@dataclass(frozen=True)
class Ranked:
    """A line with its score: a logit with the speaker's bonus where a cross-encoder ranks, else a standard score.

    `relevance` is the same without the speaker's bonus.
    """

    line: Line
    score: float
    relevance: float


@lru_cache(maxsize=1 << 15)
def stem_counts(text: str) -> Mapping[str, int]:
    """Content stems of a text with their counts."""
    return Counter(content_stems(text))


def bm25(stems: frozenset[str], texts: Sequence[str]) -> list[float]:
    """BM25 (k1 1.2, b 0.75) of each text against the stems, over these texts alone."""
    counts = [stem_counts(text) for text in texts]
    lengths = [sum(c.values()) for c in counts]
    average = sum(lengths) / len(lengths) if lengths else 1.0
    scores = [0.0] * len(texts)
    for stem in sorted(stems):
        holders = [(i, c[stem]) for i, c in enumerate(counts) if stem in c]
        idf = math.log(1 + (len(texts) - len(holders) + 0.5) / (len(holders) + 0.5))
        for i, n in holders:
            scores[i] += idf * n * 2.2 / (n + 1.2 * (0.25 + 0.75 * lengths[i] / max(average, 1e-9)))
    return scores


def standardised(values: Sequence[float]) -> list[float]:
    """Values less their mean, over their standard deviation; zeros where all are equal."""
    if not values:
        return []
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))
    return [(v - mean) / deviation if deviation > 1e-12 else 0.0 for v in values]


def is_about(line: Line, question: Question) -> bool:
    """Whether the line is said by the one person the question names."""
    return len(question.persons) == 1 and line.speaker == question.persons[0]


def in_context(line: Line) -> str:
    """What the line states, after the question it replies to; its whole body where it only asks."""
    said = statements(line.body) or line.body
    return f"{line.asked} {said}" if line.asked else said


@lru_cache(maxsize=1 << 15)
def statements(body: str) -> str:
    """A body without the questions in it."""
    return " ".join(part for part in sentences(body) if not part.endswith("?"))


def in_period(line: Line, question: Question) -> bool:
    """Whether the line was said in a period the question names, or points to a day or month in it."""
    if not question.periods or line.day is None:
        return False
    days = [line.day, *(e.day for e in time_expressions(line.body, line.day) if e.day is not None)]
    return any(period.holds(day) for period in question.periods for day in days)


def rank(question: Question, lines: Sequence[Line], scorer: Scorer | None, depth: int) -> list[Ranked]:
    """Lines, best first: the `depth` best by words, speaker and place in the text, these re-ranked by the scorer.

    Lines beyond `depth` keep their order behind. Ties fall to the earlier line.
    """
    words = standardised(bm25(question.stems, [in_context(line) for line in lines]))
    places = standardised([-math.log2(2 + i) for i in range(len(lines))])
    timely = [in_period(line, question) for line in lines]
    asks = [not statements(line.body) for line in lines]
    relevance = [
        w + _ORDER * p + _PERIOD_LEXICAL * t - _ASKS_LEXICAL * a
        for w, p, t, a in zip(words, places, timely, asks, strict=True)
    ]
    bonus = [_SPEAKER_LEXICAL if is_about(line, question) else 0.0 for line in lines]
    order = sorted(range(len(lines)), key=lambda i: -(relevance[i] + bonus[i]))
    if scorer is None:
        return [Ranked(lines[i], relevance[i] + bonus[i], relevance[i]) for i in order]
    head, tail = order[:depth], order[depth:]
    scores = scorer.score(question.neutral, [in_context(lines[i]) for i in head])
    logits = {
        i: score + _PERIOD_SCORED * timely[i] - _ASKS_SCORED * asks[i] for i, score in zip(head, scores, strict=True)
    }
    found = [
        Ranked(lines[i], logits[i] + (_SPEAKER_SCORED if is_about(lines[i], question) else 0.0), logits[i])
        for i in head
    ]
    found.sort(key=lambda r: -r.score)
    return found + [Ranked(lines[i], UNSCORED + relevance[i] * 1e-3, UNSCORED) for i in tail]
