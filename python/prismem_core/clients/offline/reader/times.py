"""Answers that are times, spans of time, counts and rates."""

from __future__ import annotations

import re
from collections.abc import Sequence

from prismem_core.clients.offline.dates import durations, long_date, month_year, parse_date, time_expressions
from prismem_core.clients.offline.lines import sentences
from prismem_core.clients.offline.reader.question import Question
from prismem_core.clients.offline.reader.ranking import Ranked, bm25
from prismem_core.tasks.text import content_stems

_NUMBER = r"(?:\d[\d,.]*|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|a dozen|a couple|several)"
_COUNTED = re.compile(rf"\b({_NUMBER})\b((?:\W+\w+){{1,4}})", re.IGNORECASE)
_RATE = re.compile(
    r"\b(?:(?:at least |about |usually |only |around )*(?:once|twice|(?:\d+|two|three|four|five|six|"
    r"a few|few|several|a couple of|couple) times|once or twice)"
    r"(?: (?:a|an|per|each|every) \w+)?|every (?:other )?\w+|daily|weekly|monthly|yearly|(?:most|"
    r"all) (?:days|weekends|weeks))\b",
    re.IGNORECASE,
)
_AGE = re.compile(r"\b(\d{1,3})(?:[- ](?:years?|yrs?)(?:[- ]old)?)?\b", re.IGNORECASE)


def when(question: Question, ranked: Sequence[Ranked], margin: float) -> str:
    """The time the best line points to: of its sentences the one nearest to the question that tells a time, else its
    date.

    A line with a time expression within `margin` below the best line goes before a best line that tells none.
    """
    wants_year = re.search(r"\bwhat year|which year\b", question.text, re.IGNORECASE) is not None
    wants_month = re.search(r"\b(?:what|which) month\b", question.text, re.IGNORECASE) is not None
    close = [r for r in ranked[:3] if r.score >= ranked[0].score - margin]
    for found in close:
        parts = sentences(found.line.body)
        scores = bm25(question.stems, parts)
        for i in sorted(range(len(parts)), key=lambda i: -scores[i]):
            expressions = [e for e in time_expressions(parts[i], found.line.day) if e.phrase]
            if expressions and (scores[i] > 0 or found is ranked[0]):
                return _fitted(expressions[0].phrase, wants_year, wants_month)
        if found.line.told:
            return _fitted(found.line.told, wants_year, wants_month)
    dated = next((r for r in close if r.line.day is not None), None)
    if dated is None or dated.line.day is None:
        return ""
    return (
        str(dated.line.day.year)
        if wants_year
        else month_year(dated.line.day)
        if wants_month
        else long_date(dated.line.day)
    )


def _fitted(phrase: str, wants_year: bool, wants_month: bool) -> str:
    day = parse_date(phrase)
    if wants_year and (year := re.search(r"(?:19|20)\d\d", phrase)):
        return year[0]
    return month_year(day) if wants_month and day is not None else phrase


def duration(question: Question, ranked: Sequence[Ranked], ago: bool) -> str:
    """The first span of time that the best lines tell, "" if none does."""
    for found in ranked[:4]:
        parts = sentences(found.line.body)
        scores = bm25(question.stems, parts)
        for i in sorted(range(len(parts)), key=lambda i: -scores[i]):
            spans = durations(parts[i])
            if spans:
                return f"{spans[0]} ago" if ago and "ago" not in spans[0] else spans[0]
            if ago or question.kind == "duration":
                match = re.search(rf"\b{_NUMBER} (?:years?|months?|weeks?|days?) ago\b", parts[i], re.IGNORECASE)
                if match:
                    return match[0] if ago else match[0].removesuffix(" ago")
    return ""


def count(question: Question, ranked: Sequence[Ranked]) -> str:
    """The first number of the best lines that stands before a word of the question, "" if none does."""
    asked = re.search(r"how many ((?:\w+\W+){1,3})", question.text, re.IGNORECASE)
    stems = set(content_stems(asked[1])) if asked else set(question.stems)
    for found in ranked[:4]:
        for match in _COUNTED.finditer(found.line.body):
            if stems & set(content_stems(match[2])):
                return match[1]
    return ""


def frequency(ranked: Sequence[Ranked]) -> str:
    """The first rate ("three times a week") of the best lines, "" if none tells one."""
    for found in ranked[:3]:
        match = _RATE.search(found.line.body)
        if match:
            return match[0]
    return ""


def age(ranked: Sequence[Ranked]) -> str:
    """The first number of the best lines that may be an age, "" if none."""
    for found in ranked[:3]:
        match = _AGE.search(found.line.body)
        if match:
            return match[1]
    return ""
