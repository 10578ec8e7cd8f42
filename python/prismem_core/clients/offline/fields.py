"""Fields of a unit or query schema: matching their names and descriptions against words, and values against types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True)
class Field:
    """One field as a request describes it; `base_type` is the type without `optional:`."""

    name: str
    base_type: str
    optional: bool
    description: str

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Field:
        """The field that a request describes by `name`, `type` and perhaps `description`."""
        kind = str(item["type"])
        return cls(
            str(item["name"]),
            kind.removeprefix("optional:"),
            kind.startswith("optional:"),
            str(item.get("description", "")),
        )


@lru_cache(maxsize=4096)
def _padded(text: str) -> str:
    return " " + " ".join(_WORD.findall(_CAMEL.sub(" ", text).lower())) + " "


def matches(text: str, words: Sequence[str]) -> bool:
    """Whether the text holds one of the words (or phrases) whole or in the plural; `snake_case` and `camelCase` are
    split.
    """
    padded = _padded(text)
    return any(f" {word} " in padded or f" {word}s " in padded for word in words)


def coerce(value: Any, field: Field) -> Any:
    """`value` as the field's type; what has no value becomes null where that is allowed, else "", [], False or 0."""
    empty = value is None or value == "" or value == []
    if empty and field.optional:
        return None
    match field.base_type:
        case "str":
            return "" if empty else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        case "list[str]":
            return [] if empty else [str(v) for v in value] if isinstance(value, list) else [str(value)]
        case "bool":
            return bool(value)
        case "int":
            return int(value) if isinstance(value, (int, float)) else 0
        case "float":
            return float(value) if isinstance(value, (int, float)) else 0.0
    return value
