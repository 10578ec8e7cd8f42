"""Long answers: whole sentences from the best lines, for questions about longer texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date

from prismem_core.clients.offline.extraction import states_instruction, states_preference
from prismem_core.clients.offline.lines import Line, sentences
from prismem_core.clients.offline.planning import asks_advice
from prismem_core.clients.offline.reader.question import Question
from prismem_core.clients.offline.reader.ranking import Ranked, bm25, standardised
from prismem_core.clients.offline.reader.rules import Rules
from prismem_core.tasks.text import content_stems

MAX_SENTENCES = 6
MAX_WORDS = 80
_LINES = 12
_NEGATED = re.compile(r"\b(?:never|not|no)\b|n't\b", re.IGNORECASE)


def long_answer(
    question: Question, ranked: Sequence[Ranked], lines: Sequence[Line], rules: Rules, special: str = ""
) -> str:
    """Up to six sentences of the best lines, most relevant first, after `special`, the short answer of the question's
    kind.

    Where the rules say so, an ordering question is answered by lines in order of time, a request for advice begins
    with what the speaker prefers, and a yes/no question whose best sentences contradict each other gets both.
    """
    if rules.conflicts and question.kind == "yes_no" and (both := _conflict(question, ranked)):
        return both
    chosen = _chosen(question, ranked)
    if rules.preferences and asks_advice(question.text):
        chosen = [*_wishes(question, lines), *chosen]
    kept = _kept(chosen)
    if rules.order and question.kind == "order":
        kept.sort(key=lambda item: (item[0].day or date.max, item[0].index))
    return " ".join([*([f"{special}."] if special else []), *(text for _, text in kept)])


def _chosen(question: Question, ranked: Sequence[Ranked]) -> list[tuple[Line, str]]:
    pool = [(r, text) for r in ranked[:_LINES] for text in sentences(r.line.body) if len(text.split()) >= 3]
    words = standardised(bm25(question.stems, [text for _, text in pool]))
    places = {id(r): -float(i) for i, r in enumerate(ranked[:_LINES])}
    scores = [w + 0.4 * places[id(r)] for w, (r, _) in zip(words, pool, strict=True)]
    order = sorted(range(len(pool)), key=lambda i: -scores[i])
    return [(pool[i][0].line, pool[i][1]) for i in order]


def _kept(chosen: Sequence[tuple[Line, str]]) -> list[tuple[Line, str]]:
    """The first six that each bring new words, until 80 words are said."""
    kept: list[tuple[Line, str]] = []
    said: set[str] = set()
    words = 0
    for line, text in chosen:
        stems = set(content_stems(text))
        if not stems or len(stems - said) < 0.25 * len(stems):
            continue
        kept.append((line, text))
        said |= stems
        words += len(text.split())
        if len(kept) == MAX_SENTENCES or words >= MAX_WORDS:
            break
    return kept


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
    return (
        f"There is contradictory information. You said: {pool[denied]} "
        f"But you also said: {pool[told]} Which is correct?"
    )
