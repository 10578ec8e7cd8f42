"""What differs between two programs, component by component, and which code can run it: for people to read."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from prismem_core.program.components import changed_components, split
from prismem_core.program.reachability import CodeGraph, conservative
from prismem_core.program.syntax import MEMORY_CLASS, parse_module, shape

Lines = tuple[int, int]
"""First and last line of a stretch of source, counted from 1."""


@dataclass(frozen=True)
class Change:
    """A component that differs: `parent_lines` and `lines` are the stretches of it that do, in parent and candidate.

    `code` is false where nothing but docstrings differ.
    """

    component: str
    kind: Literal["added", "removed", "changed"]
    parent_lines: tuple[Lines, ...]
    lines: tuple[Lines, ...]
    code: bool


@dataclass(frozen=True)
class DynamicLookup:
    """Why all code of a program counts for every stage: what stands on that `line` of parent or candidate."""

    program: Literal["parent", "candidate"]
    line: int
    what: str


def changes(parent: str, candidate: str) -> tuple[Change, ...]:
    """The components whose statements differ, sorted by name; raises ProgramError where a source does not parse."""
    before, after = _Parts(parent), _Parts(candidate)
    old, new = _differing(parent, candidate)
    found = []
    for name in changed_components(parent, candidate):
        kind: Literal["added", "removed", "changed"] = "changed"
        if name not in before.parts:
            kind = "added"
        elif name not in after.parts:
            kind = "removed"
        found.append(
            Change(
                name,
                kind,
                _within(before.lines(name), old),
                _within(after.lines(name), new),
                before.code(name) != after.code(name),
            )
        )
    return tuple(found)


def dynamic_lookups(parent: str, candidate: str) -> tuple[DynamicLookup, ...]:
    """Where the programs look names up dynamically, parent first."""
    found = []
    sources: tuple[tuple[Literal["parent", "candidate"], str], ...] = (("parent", parent), ("candidate", candidate))
    for program, source in sources:
        place = conservative(parse_module(source))
        if place is not None:
            found.append(DynamicLookup(program, *place))
    return tuple(found)


def chains_to(changed: Iterable[str], parent: str, candidate: str, roots: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Shortest chains of mentions from code that `roots` can run to each of the `changed` components it can reach.

    A chain of the candidate is preferred to one of the parent; the links are those of `CodeGraph.chains`.
    """
    found: dict[str, tuple[str, ...]] = {}
    for source in (candidate, parent):
        chains = CodeGraph(parse_module(source)).chains(roots)
        for name in changed:
            if name in chains:
                found.setdefault(name, chains[name])
    return found


class _Parts:
    """The statements of a source by component, with the lines they stand on."""

    def __init__(self, source: str) -> None:
        tree = parse_module(source)
        self.parts: Mapping[str, list[ast.stmt]] = split(tree)
        self._classes = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Memory"]

    def code(self, name: str) -> list[str]:
        """Shapes of the statements without their docstrings, which a class keeps among its unnamed statements."""
        parts = [part for part in self.parts.get(name, ()) if not (name == MEMORY_CLASS and _is_text(part))]
        return [shape(part, docstrings=False) for part in parts]

    def lines(self, name: str) -> list[Lines]:
        """Stretches of the component's statements, the decorators included."""
        found = []
        for part in self.parts.get(name, ()):
            # The pieces of a statement that was cut up have no place of their own, but what is in them has.
            nodes = [
                n for n in ast.walk(part) if isinstance(n, ast.expr | ast.stmt | ast.alias) and hasattr(n, "lineno")
            ]
            if nodes:
                found.append((min(n.lineno for n in nodes), max(n.end_lineno or n.lineno for n in nodes)))
        if name == MEMORY_CLASS:
            found.extend((node.lineno, node.lineno) for node in self._classes)
        return found


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _differing(parent: str, candidate: str) -> tuple[set[int], set[int]]:
    """Lines of the parent that are not in the candidate, and of the candidate that are not in the parent."""
    old: set[int] = set()
    new: set[int] = set()
    matcher = SequenceMatcher(None, parent.splitlines(), candidate.splitlines(), autojunk=False)
    for what, a, b, c, d in matcher.get_opcodes():
        if what != "equal":
            old.update(range(a + 1, b + 1))
            new.update(range(c + 1, d + 1))
    return old, new


def _within(stretches: Sequence[Lines], differing: set[int]) -> tuple[Lines, ...]:
    """Stretches of differing lines inside `stretches`; those themselves where no line of them differs."""
    chosen = sorted({line for first, last in stretches for line in range(first, last + 1)} & differing)
    if not chosen:
        return tuple(sorted(set(stretches)))
    found = [(chosen[0], chosen[0])]
    for line in chosen[1:]:
        if line == found[-1][1] + 1:
            found[-1] = (found[-1][0], line)
        else:
            found.append((line, line))
    return tuple(found)
