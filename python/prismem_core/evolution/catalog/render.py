"""From a design to the source of its memory program: only what the design needs, in one fixed order.

The default design renders to the seed program, byte for byte. Two designs that differ in one feature render to
sources that differ in the lines of that feature alone, so that a diff between them reads like a programmer's.
"""

from __future__ import annotations

from prismem_core.evolution.catalog import clauses, lexical_part, memory_part
from prismem_core.evolution.catalog.features import SEED, Features, canonical

NUMBERS: dict[str, tuple[str, str]] = {
    "BM25_K": ("1.2", "how soon repeats of a word stop counting"),
    "BM25_B": ("0.75", "how much long units are held back"),
    "DENSE_WEIGHT": ("0.5", "share of the dense score in the fused one"),
    "RANK_OFFSET": ("60", "softens the lead of the first ranks"),
    "MOST_QUERIES": ("6", "texts asked for one question at most"),
    "PEOPLE_BOOST": ("0.5", "standard deviations for a unit said by somebody the question names"),
    "TIME_BOOST": ("1.0", "standard deviations for a unit of the time the question names"),
    "RECENCY": ("0.5", "standard deviations between the oldest and the newest unit"),
    "ADVICE_BOOST": ("1.0", "standard deviations for a standing unit where advice is asked for"),
    "SMOOTHING": ("0.3", "share of the scores of the units before and after"),
    "SESSION_PENALTY": ("0.2", "standard deviations for each better unit of the same session"),
    "FLOOR": ("0.0", "standard deviations above the mean that a unit needs"),
    "MMR_POOL": ("150", "hits among which variety is sought"),
    "MMR_RELEVANCE": ("0.7", "weight of relevance against novelty"),
    "NEIGHBOURS_OF_FIRST": ("5", "hits whose neighbours come along"),
    "MOST_UNITS": ("40", "units retrieved at most"),
    "SLACK": ("200", "characters left at which no shorter line is looked for any more"),
    "STANDING_BUDGET": ("3000", "characters kept for standing preferences and instructions"),
    "OUTLINE_BUDGET": ("2000", "characters kept for one line a session"),
}


def render(features: Features) -> str:
    """The source of the design's program; raises ValueError for a design that is not canonical."""
    if features != canonical(features):
        raise ValueError(f"design is not canonical: {features}; pass it through canonical() first")
    blocks = ["\n".join(_head(features)), *_schemas(features), *_functions(features), _memory(features)]
    return "\n\n\n".join(blocks) + "\n"


def _head(f: Features) -> list[str]:
    imports = ["from dataclasses import dataclass, field"]
    if f.lexical != "none" or f.outline:
        imports.insert(0, "from collections import Counter")
    if f.lexical != "none":
        imports.append("import math")
    if f.lexical != "none" or f.time_hint:
        imports.append("import re")
    lines = [*imports, ""]
    if f.ranked:
        lines += ["import numpy as np", ""]
    lines += clauses.instruction("MemoryExtractionInstruction", _extraction(f))
    lines += clauses.instruction("QueryPlanningInstruction", _planning(f))
    lines += clauses.instruction("AnswerInstruction", _answer(f))
    numbers = _numbers(f)
    if numbers:
        lines.append("")
        lines += [f"{name} = {value}  # {NUMBERS[name][1]}" for name, value in numbers.items()]
    return lines


def _extraction(f: Features) -> list[str]:
    names = [f.granularity, f.passages, "user_only" if f.user_only else ""]
    return [clauses.EXTRACTION_BASE, *(clauses.EXTRACTION[name] for name in names if name in clauses.EXTRACTION)]


def _planning(f: Features) -> list[str]:
    wanted = {"sub_queries": f.sub_queries != "none"} | {
        name: getattr(f, name) for name in ("keywords", "people", "time_hint", "negation", "advice")
    }
    return [clauses.PLANNING_BASE, *(text for name, text in clauses.PLANNING.items() if wanted[name])]


def _answer(f: Features) -> list[str]:
    base = clauses.ANSWER_DETAILED if "details" in f.answer else clauses.ANSWER_BASE
    return [base, *(clauses.ANSWER[name] for name in f.answer if name != "details")]


def _numbers(f: Features) -> dict[str, str]:
    needed = {
        "BM25_K": f.lexical != "none",
        "BM25_B": f.lexical != "none",
        "DENSE_WEIGHT": f.hybrid and f.fusion == "zscore",
        "RANK_OFFSET": f.hybrid and f.fusion == "reciprocal",
        "MOST_QUERIES": f.sub_queries != "none",
        "PEOPLE_BOOST": f.people,
        "TIME_BOOST": f.time_hint,
        "RECENCY": f.recency,
        "ADVICE_BOOST": f.advice,
        "SMOOTHING": f.smoothing,
        "SESSION_PENALTY": f.diversity == "sessions",
        "FLOOR": f.floor is not None,
        "MMR_POOL": f.diversity == "mmr",
        "MMR_RELEVANCE": f.diversity == "mmr",
        "NEIGHBOURS_OF_FIRST": f.neighbours == "first",
        "MOST_UNITS": f.cap > 0,
        "SLACK": f.ranked,
        "STANDING_BUDGET": f.standing,
        "OUTLINE_BUDGET": f.outline,
    }
    own = {"DENSE_WEIGHT": str(f.dense_weight), "FLOOR": str(f.floor), "MOST_UNITS": str(f.cap)}
    return {name: own.get(name, NUMBERS[name][0]) for name, needed_here in needed.items() if needed_here}


UNIT_TEXT = ("memory_text", "One piece of information worth remembering from the text")
QUERY_TEXT = ("query_text", "A query for retrieving information relevant to the question")
UNIT_FIELDS: dict[str, tuple[str, str, str]] = {
    "session_date": ("str", '""', "The date of the session, such as 8 May 2023"),
    "event_date": ("str", '""', "The event date: when it happened, such as 7 May 2023"),
    "speaker": ("str", '""', "Who said it"),
    "topics": ("list[str]", "list", "Topic words of the text, the most telling first"),
    "standing": ("bool", "False", "Whether the text states a preference or a standing instruction"),
}
QUERY_FIELDS: dict[str, tuple[str, str, str]] = {
    "sub_queries": ("list[str]", "list", "One query for each part of the question"),
    "keywords": ("list[str]", "list", "Content words of the question"),
    "people": ("list[str]", "list", "Names in the question"),
    "time_hint": ("str", '""', "The time expression of the question, or empty"),
    "negated": ("str", '""', "The question turned into its opposite"),
    "asks_advice": ("bool", "False", "Whether the question asks for advice or a recommendation"),
}


def _schemas(f: Features) -> list[str]:
    unit = {
        "session_date": f.dates,
        "event_date": f.event_dates,
        "speaker": f.people,
        "topics": f.topics or f.outline,
        "standing": f.standing,
    }
    query = {
        "sub_queries": f.sub_queries != "none",
        "keywords": f.keywords,
        "people": f.people,
        "time_hint": f.time_hint,
        "negated": f.negation,
        "asks_advice": f.advice,
    }
    return [
        _schema("MemoryUnit", UNIT_TEXT, UNIT_FIELDS, unit),
        _schema("Query", QUERY_TEXT, QUERY_FIELDS, query),
    ]


def _schema(name: str, main: tuple[str, str], table: dict[str, tuple[str, str, str]], wanted: dict[str, bool]) -> str:
    text, description = main
    lines = ["@dataclass", f"class {name}:", f"    {text}: str = field("]
    lines += [f'        metadata={{"description": "{description}"}}', "    )"]
    for key, (kind, default, about) in table.items():
        if wanted[key]:
            start = f"default_factory={default}" if default == "list" else f"default={default}"
            lines += [f"    {key}: {kind} = field(", f'        {start}, metadata={{"description": "{about}"}}', "    )"]
    return "\n".join(lines)


def _functions(f: Features) -> list[str]:
    found: list[str] = []
    if f.lexical == "stemmed":
        found += [lexical_part.STOP_WORDS + "\n" + lexical_part.STEMMER]
    found += memory_part.functions(f)
    return [text.rstrip("\n") for text in found]


def _memory(f: Features) -> str:
    outside = ("answer", "granularity", "passages", "user_only")
    if all(getattr(f, name) == getattr(SEED, name) for name in f.__dataclass_fields__ if name not in outside):
        return memory_part.SEED_MEMORY.rstrip("\n")
    return memory_part.memory(f).rstrip("\n")
