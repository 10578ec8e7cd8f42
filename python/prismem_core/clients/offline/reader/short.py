"""Short answers: from the best line, of the kind the question asks for."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

from prismem_core.clients.offline.lines import Line, sentences
from prismem_core.clients.offline.reader import times
from prismem_core.clients.offline.reader.question import Question
from prismem_core.clients.offline.reader.ranking import Ranked, Scorer, bm25, standardised, stem_counts
from prismem_core.clients.offline.reader.rules import Rules
from prismem_core.clients.offline.reader.words import ANSWER_WORDS, MAX_WORDS, Sentence, candidates_of, choose

_LIST_LINES = 4
_LIST_MARGIN = 4.0
_PART_WORDS = 2.0
_PART_LIMIT = 4
_NEGATION = re.compile(r"\b(?:not|never|no|n't|nope|hardly)\b|n't\b", re.IGNORECASE)


def rarity_among(lines: Sequence[Line]) -> Callable[[str], float]:
    """Inverse document frequency over the lines, scaled to about [0, 1]."""
    holders = Counter(stem for line in lines for stem in stem_counts(line.body))
    scale = math.log(2 * len(lines) + 2)
    return lambda root: math.log((len(lines) + 1) / (holders[root] + 0.5)) / scale


def sentences_of(question: Question, line: Line, scorer: Scorer | None) -> list[Sentence]:
    """The sentences of a line with their ranks, best first."""
    parts = [s for s in sentences(line.body) if not s.endswith("?")] or list(sentences(line.body))
    if scorer is not None and len(parts) > 1:
        scores = scorer.score(question.neutral, [f"{line.asked} {part}" if line.asked else part for part in parts])
    else:
        scores = standardised(bm25(question.stems, parts))
    order = sorted(range(len(parts)), key=lambda i: -scores[i])
    best = max(scores, default=0.0)
    return [
        Sentence(parts[i], i, rank, max(-8.0, scores[i] - best) / 4, bool(line.asked)) for rank, i in enumerate(order)
    ]


def words_of(
    question: Question, line: Line, lines: Sequence[Line], scorer: Scorer | None, length: float, limit: int
) -> str:
    """The words of one line that answer best."""
    names = frozenset(name for other in lines for name in other.speaker.split())
    found = candidates_of(question, sentences_of(question, line, scorer), rarity_among(lines), names)
    return choose(found, length, limit)


def special_answer(question: Question, ranked: Sequence[Ranked], rules: Rules, scored: bool) -> str:
    """A time, a span, a number, a rate or a yes or no, for questions that ask for one; "" for others or where none
    is told.
    """
    match question.kind:
        case "when" if rules.dates:
            return times.when(question, ranked, 2.0 if scored else 0.5)
        case "duration" | "ago":
            return times.duration(question, ranked, question.kind == "ago")
        case "count":
            return times.count(question, ranked)
        case "frequency":
            return times.frequency(ranked)
        case "age":
            return times.age(ranked)
        case "yes_no" if rules.yes_no:
            return "No" if _NEGATION.search(ranked[0].line.body) else "Yes"
    return ""


def short_answer(
    question: Question, ranked: Sequence[Ranked], lines: Sequence[Line], rules: Rules, scorer: Scorer | None
) -> str:
    """The answer by the kind of question; "" where no line holds a word."""
    special = special_answer(question, ranked, rules, scorer is not None)
    if not special and rules.lists and question.kind == "list":
        special = _list(question, ranked, lines, scorer)
    return special or words_of(question, ranked[0].line, lines, scorer, ANSWER_WORDS, MAX_WORDS)


def _list(question: Question, ranked: Sequence[Ranked], lines: Sequence[Line], scorer: Scorer | None) -> str:
    parts: dict[str, None] = {}
    for found in ranked[:_LIST_LINES]:
        if scorer is not None and found.score < ranked[0].score - _LIST_MARGIN:
            break
        part = words_of(question, found.line, lines, scorer, _PART_WORDS, _PART_LIMIT)
        if part:
            parts.setdefault(part)
    return ", ".join(parts)
