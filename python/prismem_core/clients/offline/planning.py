"""A query from a question by rules: the field names, types and descriptions say what each value should be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from prismem_core.clients.offline.dates import time_expressions
from prismem_core.clients.offline.fields import Field, coerce, matches
from prismem_core.clients.offline.lines import names
from prismem_core.tasks.text import STOP_WORDS

_WORD = re.compile(r"[A-Za-z0-9][\w'’.+#-]*\w|\w")
_TEMPORAL = re.compile(
    r"\b(?:when|what (?:date|day|month|year|time)|which (?:date|day|month|year)|how long|"
    r"how many (?:days|weeks|months|years)|how old|order|first|before|after|"
    r"since|until|latest|most recent|timeline|chronological)\b",
    re.IGNORECASE,
)
_SEVERAL = re.compile(
    r"\b(?:list|all|several|how many|which (?:\w+ )?\w+s|what (?:\w+ ){0,2}\w+[^s\W]s|things|ways|"
    r"types|kinds|different|summary|summarize|order)\b",
    re.IGNORECASE,
)
_ADVICE = re.compile(
    r"\b(?:recommend|suggest|advice|advise|should I|could you|can you|help me|tips|ideas|how can I|"
    r"how do I|best way|options|which one|prefer|what would you)\b",
    re.IGNORECASE,
)
_YES_NO = re.compile(
    r"(?P<aux>do|does|did|is|are|was|were|have|has|had|can|could|will|would|should)\s+(?P<who>I|you|"
    r"we|they|he|she|it|[A-Z]\w+)\s+(?P<rest>.+)",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[,;:]\s+|\s+(?:and|or|but|then|while|including)\s+", re.IGNORECASE)


def asks_time(question: str) -> bool:
    """Whether the question asks for a time, a span of time or an order."""
    return _TEMPORAL.search(question) is not None


def asks_several(question: str) -> bool:
    """Whether the question asks for more than one thing."""
    return _SEVERAL.search(question) is not None


def asks_advice(question: str) -> bool:
    """Whether the question asks for advice, help or a choice."""
    return _ADVICE.search(question) is not None


def content_words(question: str) -> list[str]:
    """The question's words that are no stop words, as spelled, once each, in order."""
    words = (w.removesuffix("'s").removesuffix("’s") for w in _WORD.findall(question))
    return list(dict.fromkeys(w for w in words if w.lower() not in STOP_WORDS and len(w) > 1))


def negated(question: str) -> str:
    """The question as a statement that denies it: "Have I used Flask?" gives "I have never used Flask"."""
    match = _YES_NO.match(question.strip().rstrip("?"))
    if match:
        return f"{match['who']} {match['aux'].lower()} never {match['rest'].removeprefix('ever ')}"
    return "never " + " ".join(content_words(question))


def sub_queries(question: str) -> list[str]:
    """The question, those of its clauses that have two content words or more, and its content words."""
    clauses = [c.strip(" ?.") for c in _CLAUSE.split(question)]
    parts = [
        question,
        *(c for c in clauses if len(clauses) > 1 and len(content_words(c)) >= 2),
        " ".join(content_words(question)),
    ]
    return list(dict.fromkeys(p for p in parts if p.strip()))


_MAIN = ("query", "text", "question")
_TEXT_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("negated", ("negated", "negation", "opposite", "never")),
    ("sub", ("sub", "queries", "aspect")),
    ("keyword", ("keyword", "term", "topic")),
    ("people", ("person", "people", "names", "speaker", "persons")),
    ("date", ("date", "time", "when")),
)
_FLAG_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("temporal", ("temporal", "asks when", "time", "date", "when", "order")),
    ("several", ("list", "several", "count", "multiple", "many")),
    ("advice", ("preference", "advice", "recommend", "recommendation", "choice")),
)


def _semantics(fields: Sequence[Field]) -> list[str]:
    found: list[str] = []
    for field in fields:
        table = _FLAG_WORDS if field.base_type in ("bool", "int", "float") else _TEXT_WORDS
        by_name = next((s for s, words in table if matches(field.name, words)), "")
        if not by_name and field.base_type == "str" and matches(field.name, _MAIN):
            by_name = "main"
        found.append(by_name or next((s for s, words in table if matches(field.description, words)), ""))
    if "main" not in found:
        spare = next((i for i, f in enumerate(fields) if f.base_type == "str" and not found[i]), None)
        if spare is not None:
            found[spare] = "main"
    return found


def _value(semantics: str, question: str) -> Any:
    match semantics:
        case "main":
            return question
        case "negated":
            return negated(question)
        case "sub":
            return sub_queries(question)
        case "keyword":
            return content_words(question)
        case "people":
            return list(names(question))
        case "date":
            return [question[e.start : e.end] for e in time_expressions(question, None)]
        case "temporal":
            return asks_time(question)
        case "several":
            return asks_several(question)
        case "advice":
            return asks_advice(question)
    return None


def plan(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The query for one question from `instruction`, `fields` and `question` of a planning request."""
    fields = [Field.of(item) for item in inputs["fields"]]
    question = str(inputs["question"])
    return {f.name: coerce(_value(s, question), f) for f, s in zip(fields, _semantics(fields), strict=True)}
