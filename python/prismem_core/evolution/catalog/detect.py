"""From source back to a design: which of the catalogue's constructs a program holds.

The reading is by construct, not by text, so it also says what a foreign program does as far as it uses the
catalogue's names; `render(detect(source)) == source` tells whether the design says all there is to say (`is_own`).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from prismem_core.evolution.catalog import clauses
from prismem_core.evolution.catalog.features import (
    Diversity,
    Features,
    Fusion,
    Granularity,
    Lexical,
    Neighbours,
    Passages,
    SubQueries,
    canonical,
)
from prismem_core.evolution.catalog.render import render


@dataclass
class _Facts:
    """What a module binds: numbers, texts, functions, methods of Memory (name -> names used), fields of the
    dataclasses.
    """

    numbers: dict[str, float] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    functions: dict[str, frozenset[str]] = field(default_factory=dict)
    methods: dict[str, frozenset[str]] = field(default_factory=dict)
    unit: frozenset[str] = frozenset()
    query: frozenset[str] = frozenset()

    def method_uses(self, name: str, *words: str) -> bool:
        """Whether the method of that name uses any of the words as name or attribute."""
        return not self.methods.get(name, frozenset()).isdisjoint(words)


@lru_cache(maxsize=256)
def detect(source: str) -> Features:
    """The design that fits the source best; the seed's for a source that does not parse."""
    facts = _read(source)
    extraction, answer = (facts.texts.get(f"{name}Instruction", "") for name in ("MemoryExtraction", "Answer"))
    return canonical(
        Features(
            granularity=_granularity(extraction),
            passages=_passages(extraction),
            user_only=clauses.EXTRACTION["user_only"] in extraction,
            dates="session_date" in facts.unit,
            event_dates="event_date" in facts.unit,
            anonymous="partition" in facts.functions.get("line", ()),
            topics="matched" in facts.functions,
            standing="standing" in facts.unit,
            outline="_outline" in facts.methods,
            lexical=_lexical(facts),
            dense="_dense" in facts.methods,
            window=facts.method_uses("index", "windows"),
            fusion=_fusion(facts.functions),
            dense_weight=facts.numbers.get("DENSE_WEIGHT", 0.5),
            smoothing="smoothed" in facts.functions,
            neighbours=_neighbours(facts),
            diversity=_diversity(facts),
            floor=facts.numbers.get("FLOOR"),
            cap=int(facts.numbers.get("MOST_UNITS", 0)),
            order="time" if facts.method_uses("retrieve", "sort", "sorted") else "rank",
            recency="RECENCY" in facts.numbers,
            sub_queries=_sub_queries(facts),
            keywords="keywords" in facts.query,
            people="people" in facts.query,
            time_hint="time_hint" in facts.query,
            negation="negated" in facts.query,
            advice="asks_advice" in facts.query,
            answer=tuple(name for name, sentence in clauses.ANSWER.items() if sentence in answer),
        )
    )


@lru_cache(maxsize=256)
def is_own(source: str) -> bool:
    """Whether the source is exactly what the catalogue would write for its design."""
    return render(detect(source)) == source


def _granularity(extraction: str) -> Granularity:
    if clauses.EXTRACTION["sentence"] in extraction:
        return "sentence"
    return "exchange" if clauses.EXTRACTION["exchange"] in extraction else "turn"


def _passages(extraction: str) -> Passages:
    if clauses.EXTRACTION["short"] in extraction:
        return "short"
    return "long" if clauses.EXTRACTION["long"] in extraction else "medium"


def _lexical(facts: _Facts) -> Lexical:
    if "_lexical" not in facts.methods:
        return "none"
    return "stemmed" if "stem" in facts.functions else "plain"


def _fusion(functions: Mapping[str, object]) -> Fusion:
    if "reciprocal" in functions:
        return "reciprocal"
    return "best" if "ranks" in functions else "zscore"


def _neighbours(facts: _Facts) -> Neighbours:
    if "with_neighbours" not in facts.functions:
        return "none"
    return "first" if "NEIGHBOURS_OF_FIRST" in facts.numbers else "all"


def _diversity(facts: _Facts) -> Diversity:
    if "_diverse" in facts.methods:
        return "mmr"
    return "sessions" if "spread" in facts.functions else "none"


def _sub_queries(facts: _Facts) -> SubQueries:
    if "sub_queries" not in facts.query:
        return "none"
    averaged = facts.method_uses("_dense", "mean") or facts.method_uses("_scores", "mean")
    return "mean" if averaged else "max"


def _read(source: str) -> _Facts:
    facts = _Facts()
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return facts
    for node in body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
        ):
            name, value = node.targets[0].id, node.value.value
            if isinstance(value, str):
                facts.texts[name] = value
            elif isinstance(value, int | float):
                facts.numbers[name] = float(value)
        elif isinstance(node, ast.FunctionDef):
            facts.functions[node.name] = _used(node)
        elif isinstance(node, ast.ClassDef):
            fields = (n.target for n in node.body if isinstance(n, ast.AnnAssign))
            names = frozenset(target.id for target in fields if isinstance(target, ast.Name))
            if node.name == "MemoryUnit":
                facts.unit = names
            elif node.name == "Query":
                facts.query = names
            elif node.name == "Memory":
                facts.methods = {n.name: _used(n) for n in node.body if isinstance(n, ast.FunctionDef)}
    return facts


def _used(node: ast.AST) -> frozenset[str]:
    nodes = list(ast.walk(node))
    names = {n.id for n in nodes if isinstance(n, ast.Name)}
    return frozenset(names | {n.attr for n in nodes if isinstance(n, ast.Attribute)})
