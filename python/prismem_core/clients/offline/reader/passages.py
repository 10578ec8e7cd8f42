"""Long answers: whole sentences from the best lines, for questions about longer texts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from prismem_core.clients.offline.extraction import states_instruction, states_preference
from prismem_core.clients.offline.lines import Line, sentences
from prismem_core.clients.offline.planning import asks_advice
from prismem_core.clients.offline.reader.question import Question
from prismem_core.clients.offline.reader.ranking import Ranked, Scorer, bm25, standardised
from prismem_core.clients.offline.reader.rules import Rules
from prismem_core.tasks.text import content_stems

MAX_SENTENCES = 6
MAX_WORDS = 80
_LINES = 12
_NEGATED = re.compile(r"\b(?:never|not|no)\b|n't\b", re.IGNORECASE)


def long_answer(
    question: Question, ranked: Sequence[Ranked], lines: Sequence[Line], rules: Rules, scorer: Scorer | None
) -> str:
    """Up to six sentences of the best lines, in order of relevance or of time, as the rules say."""
    chosen = _chosen(question, ranked)
    if rules.conflicts and question.kind == "yes_no" and (both := _conflict(question, ranked)):
        return both
    if rules.preferences and asks_advice(question.text):
        chosen = [*_wishes(question, lines), *chosen]
    if rules.order and question.kind == "order":
        chosen = sorted(chosen, key=lambda item: (item[0].day is None, item[0].day or 0, item[0].index))
    return _joined([text for _, text in chosen])


def _chosen(question: Question, ranked: Sequence[Ranked]) -> list[tuple[Line, str]]:
    pool = [(r, text) for r in ranked[:_LINES] for text in sentences(r.line.body) if len(text.split()) >= 3]
    words = standardised(bm25(question.stems, [text for _, text in pool]))
    places = {id(r): -float(i) for i, r in enumerate(ranked[:_LINES])}
    scores = [w + 0.4 * places[id(r)] for w, (r, _) in zip(words, pool, strict=True)]
    order = sorted(range(len(pool)), key=lambda i: -scores[i])
    return [(pool[i][0].line, pool[i][1]) for i in order]


def _joined(texts: Sequence[str]) -> str:
    kept: list[str] = []
    said: set[str] = set()
    words = 0
    for text in texts:
        stems = set(content_stems(text))
        if not stems or len(stems - said) < 0.25 * len(stems):
            continue
        kept.append(text)
        said |= stems
        words += len(text.split())
        if len(kept) == MAX_SENTENCES or words >= MAX_WORDS:
            break
    return " ".join(kept)


def _wishes(question: Question, lines: Sequence[Line]) -> list[tuple[Line, str]]:
    pool = [
        (line, text)
        for line in lines
        if line.speaker.lower() not in ("assistant", "ai")
        for text in sentences(line.body)
        if states_preference(text) or states_instruction(text)
    ]
    scores = bm25(question.stems, [text for _, text in pool])
    order = sorted(range(len(pool)), key=lambda i: -scores[i])
    return [pool[i] for i in order[:2] if scores[i] > 0]


def _conflict(question: Question, ranked: Sequence[Ranked]) -> str:
    pool = [text for r in ranked[:_LINES] for text in sentences(r.line.body)]
    scores = bm25(question.stems, pool)
    order = [i for i in sorted(range(len(pool)), key=lambda i: -scores[i]) if scores[i] > 0]
    denied = next((i for i in order if _NEGATED.search(pool[i])), None)
    told = next((i for i in order if not _NEGATED.search(pool[i]) and not pool[i].endswith("?")), None)
    if denied is None or told is None:
        return ""
    return f"There is contradictory information. You said: {pool[denied]} But you also said: {pool[told]} Which is correct?"
