"""The extractive reader of the embedded default: ranks the lines it is shown and answers from the best of them."""

from __future__ import annotations

import json

from prismem_core.clients.offline.lines import parse_lines, sentences
from prismem_core.clients.offline.reader.passages import long_answer
from prismem_core.clients.offline.reader.question import Question, analyse
from prismem_core.clients.offline.reader.ranking import Ranked, Scorer, bm25, is_about, rank
from prismem_core.clients.offline.reader.rules import Rules, rules_of
from prismem_core.clients.offline.reader.short import short_answer, special_answer
from prismem_core.tasks.text import content_stems

__all__ = ["Scorer", "read", "respond"]

DEPTH = 6
# How much better the best line of another speaker must be before the reader holds that the one asked about never said
# it.
_OTHER_SPEAKER_MARGIN = 0.5
_ADDRESSED = 2.0
_WEAK_LOGIT = -6.0


def read(instruction: str, retrieved: str, question: str, scorer: Scorer | None = None) -> str:
    """The answer to `question` from the retrieved text, by the rules that `instruction` switches on.

    Without any line the reply is the abstention if the rules allow one, else "".
    """
    rules = rules_of(instruction)
    lines = parse_lines(retrieved)
    if not lines:
        return rules.abstention
    asked = analyse(question, {line.speaker for line in lines if line.speaker})
    ranked = rank(asked, lines, scorer, DEPTH)
    if rules.abstention and _must_abstain(asked, ranked, rules, scorer is not None):
        return rules.abstention
    if rules.latest:
        ranked = _latest_first(ranked, 1.0 if scorer is not None else 0.7)
    if rules.long:
        return long_answer(asked, ranked, lines, rules, special_answer(asked, ranked, rules, scorer is not None))
    return short_answer(asked, ranked, lines, rules, scorer)


def _must_abstain(question: Question, ranked: list[Ranked], rules: Rules, scored: bool) -> bool:
    if rules.strict and (ranked[0].score < _WEAK_LOGIT if scored else ranked[0].relevance < 1.0):
        return True
    if len(question.persons) != 1:
        return False
    head = ranked[:DEPTH]
    own = [r.relevance for r in head if is_about(r.line, question)]
    # A line that speaks to the person asked about may well tell about them.
    other = [
        r.relevance - (_ADDRESSED if _addresses(r.line.body) and scored else 0.0)
        for r in head
        if r.line.speaker and not is_about(r.line, question)
    ]
    if not other:
        return False
    return not own or max(other) - max(own) > _OTHER_SPEAKER_MARGIN


def _addresses(body: str) -> bool:
    words = body.lower().replace("’", "'").split()
    return any(word.strip(".,!?;:'\"").split("'")[0] in ("you", "your", "yours") for word in words)


def _latest_first(ranked: list[Ranked], margin: float) -> list[Ranked]:
    close = [r for r in ranked[:DEPTH] if r.score >= ranked[0].score - margin and r.line.day is not None]
    if len(close) < 2:
        return ranked
    latest = max(close, key=lambda r: (r.line.day, r.line.index))
    return [latest, *(r for r in ranked if r is not latest)]


def respond(prompt: str, as_json: bool) -> str:
    """A plain reply to a free prompt: the sentences before its last line that share most with that line.

    As JSON, one object with the key `answer`.
    """
    parts = [line for line in prompt.split("\n") if line.strip()]
    if not parts:
        return json.dumps({"answer": ""}) if as_json else ""
    pool = [piece for line in parts[:-1] for piece in sentences(line)] or list(sentences(parts[-1]))
    scores = bm25(frozenset(content_stems(parts[-1])), pool)
    order = sorted(range(len(pool)), key=lambda i: -scores[i])[:3]
    text = " ".join(pool[i] for i in sorted(order))
    return json.dumps({"answer": text}, ensure_ascii=False) if as_json else text
