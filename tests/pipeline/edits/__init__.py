"""Random edits of memory programs, in five kinds: behavioural, cosmetic, helper, schema, instruction.

An edit takes a source and gives another that parses; whether that program still works is left to chance, because a
failure is an outcome of a stage like any other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from prismem_core.errors import ProgramError
from prismem_core.program.syntax import parse_module

from . import behavioural, cosmetic, parts, shown

KINDS = ("behavioural", "cosmetic", "helper", "schema", "instruction")
EDITS: dict[str, dict[str, Callable[[str, random.Random], str | None]]] = {
    "behavioural": behavioural.EDITS,
    "cosmetic": cosmetic.EDITS,
    "helper": parts.EDITS,
    "schema": shown.SCHEMA,
    "instruction": shown.INSTRUCTION,
}

FOLLOW_UPS = {
    "shared state": "DONE",
    "registry": "NOTED",
    "shadow": "WIDTH",
    "docstring": "__do",
    "comment": "co_firstlineno",
    "helper body": "note",
    "class attribute": "label",
}
"""Edits that matter most where an earlier one has left its mark in the source: what it did may now be reached."""


@dataclass(frozen=True)
class Edit:
    """What was done, its kind and the source it gave."""

    kind: str
    name: str
    source: str


def random_edit(source: str, rng: random.Random, kind: str | None = None) -> Edit:
    """One edit of `source`, of a random kind by default; the new source parses and differs in its text."""
    chosen = kind or rng.choice(KINDS)
    while True:
        waiting = [name for name, mark in FOLLOW_UPS.items() if name in EDITS[chosen] and mark in source]
        name = rng.choice(waiting if waiting and rng.random() < 0.6 else sorted(EDITS[chosen]))
        edited = EDITS[chosen][name](source, rng)
        if edited is None or edited == source:
            continue
        try:
            parse_module(edited)
        except ProgramError:
            continue
        return Edit(chosen, name, edited)
