"""What a memory program shows of itself: two schemas, three instructions, a segmentation.

Pure data with a JSON round trip, because it crosses the border of the worker process; imports only the standard
library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

OUT_CHAR_BUDGET = 16000
"""Characters that `retrieve` may return; supplied to a program under this name."""

ALLOWED_IMPORTS = (
    "json",
    "re",
    "math",
    "hashlib",
    "collections",
    "dataclasses",
    "typing",
    "datetime",
    "textwrap",
    "numpy",
)
"""Modules a program may import."""

ALLOWED_SUBMODULES = ("collections.abc", "numpy.linalg", "numpy.typing")
"""Modules below those of ALLOWED_IMPORTS that a program may import too."""

Interface = Literal["paper", "engine"]
"""`paper`: the backend has `ask` and `embed`. `engine`: it has `collection` too."""

BACKEND_CALLS: Mapping[Interface, tuple[str, ...]] = {
    "paper": ("ask", "embed"),
    "engine": ("ask", "embed", "collection"),
}
"""What the backend of a memory program offers."""

COLLECTION_CALLS = ("add", "search", "mmr", "lexical", "hybrid")
"""What a collection of the engine offers; `len` gives the number of its texts."""

COLLECTION_VERSION = 1
"""Part of every key of a memory that may use collections: raised when their results change."""

CLASS_NAMES = ("MemoryUnit", "Query", "Memory")
EXTRACTION_INSTRUCTION = "MemoryExtractionInstruction"
PLANNING_INSTRUCTION = "QueryPlanningInstruction"
ANSWER_INSTRUCTION = "AnswerInstruction"
INSTRUCTION_NAMES = (EXTRACTION_INSTRUCTION, PLANNING_INSTRUCTION, ANSWER_INSTRUCTION)

METHOD_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "__init__": ("backend",),
    "index": ("units", "raw_text"),
    "retrieve": ("query",),
}
"""Parameter names of Memory's three methods after the first, in the order they are checked."""

FIELD_TYPES = ("str", "int", "float", "bool", "list[str]")
"""Field types that a model can fill in; each may also be Optional."""

_NUMBER = re.compile("[1-9][0-9]{0,8}")
_JSON_TYPES: Mapping[str, Mapping[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "list[str]": {"type": "array", "items": {"type": "string"}},
}


@dataclass(frozen=True)
class FieldSpec:
    """One field of a schema: a `type` of FIELD_TYPES, whether null is allowed, its default if any, its description.

    `opaque_default` marks a default that JSON cannot carry (a tuple, NaN): the program fills it in itself.
    """

    name: str
    type: str
    optional: bool = False
    has_default: bool = False
    default: Any = None
    description: str = ""
    opaque_default: bool = False

    @property
    def type_text(self) -> str:
        """The type as a program writes it: `str`, `list[str] | None`."""
        return f"{self.type} | None" if self.optional else self.type

    def to_json_schema(self) -> dict[str, Any]:
        """The JSON schema of the field's value."""
        kind: dict[str, Any] = dict(_JSON_TYPES[self.type])
        if self.optional:
            kind = {"anyOf": [kind, {"type": "null"}]}
        if self.description:
            kind["description"] = self.description
        if self.has_default and not self.opaque_default:
            kind["default"] = self.default
        return kind

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data that `from_dict` takes back."""
        return {
            "name": self.name,
            "type": self.type,
            "optional": self.optional,
            "has_default": self.has_default,
            "default": self.default,
            "description": self.description,
            "opaque_default": self.opaque_default,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FieldSpec:
        """The field that `to_dict` described; raises ValueError for data of another form."""
        expected = {
            "name": str,
            "type": str,
            "optional": bool,
            "has_default": bool,
            "description": str,
            "opaque_default": bool,
        }
        for key, kind in expected.items():
            if type(data.get(key)) is not kind:
                raise ValueError(f"field description: {key!r} must be {kind.__name__}, got {data.get(key)!r}")
        if data["type"] not in FIELD_TYPES:
            raise ValueError(f"field description: type {data['type']!r} is none of {', '.join(FIELD_TYPES)}")
        return cls(**{key: data[key] for key in expected}, default=data.get("default"))


class Schema(tuple[FieldSpec, ...]):
    """The fields of MemoryUnit or Query in declaration order."""

    __slots__ = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Field names in declaration order."""
        return tuple(spec.name for spec in self)

    def to_json_schema(self, name: str) -> dict[str, Any]:
        """As the function of the same name."""
        return to_json_schema(self, name)

    def to_list(self) -> list[dict[str, Any]]:
        """Plain JSON data that `from_list` takes back."""
        return [spec.to_dict() for spec in self]

    @classmethod
    def from_list(cls, data: Any) -> Schema:
        """The schema that `to_list` described; raises ValueError for data of another form."""
        if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
            raise ValueError("schema description: expected a list of objects")
        return cls(FieldSpec.from_dict(item) for item in data)


def to_json_schema(schema: Iterable[FieldSpec], name: str) -> dict[str, Any]:
    """The JSON schema of one object with these fields and no others, titled `name`."""
    fields = tuple(schema)
    return {
        "title": name,
        "type": "object",
        "properties": {spec.name: spec.to_json_schema() for spec in fields},
        "required": [spec.name for spec in fields if not spec.has_default],
        "additionalProperties": False,
    }


@dataclass(frozen=True)
class ProgramInterface:
    """Everything the pipeline needs to know of a program besides its code.

    `segmentation` is `session`, or `window:LENGTH:STRIDE` in turns.
    """

    unit: Schema
    query: Schema
    extraction_instruction: str
    planning_instruction: str
    answer_instruction: str
    segmentation: str = "session"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data that `from_dict` takes back."""
        return {
            "unit": self.unit.to_list(),
            "query": self.query.to_list(),
            "extraction_instruction": self.extraction_instruction,
            "planning_instruction": self.planning_instruction,
            "answer_instruction": self.answer_instruction,
            "segmentation": self.segmentation,
        }

    @classmethod
    def from_dict(cls, data: Any) -> ProgramInterface:
        """The interface that `to_dict` described; raises ValueError for data of another form.

        The data come from a process that ran the program, so every part is checked.
        """
        if not isinstance(data, dict):
            raise ValueError("interface description: expected an object")
        texts = ("extraction_instruction", "planning_instruction", "answer_instruction", "segmentation")
        for key in texts:
            if type(data.get(key)) is not str or not data[key].strip():
                raise ValueError(f"interface description: {key!r} must be a non-blank string")
        if segmentation_fault(data["segmentation"]):
            raise ValueError(f"interface description: {segmentation_fault(data['segmentation'])}")
        unit, query = Schema.from_list(data.get("unit")), Schema.from_list(data.get("query"))
        return cls(unit, query, *(data[key] for key in texts))


def field_type(annotation: str) -> tuple[str, bool] | None:
    """(type, optional) of an annotation's text, None if a model cannot fill it in.

    Understands `X | None`, `Optional[X]`, `Union[X, None]` and `List[str]`, with or without `typing.`, at any depth.
    """
    text = "".join(annotation.split()).replace("typing.", "")
    if text in FIELD_TYPES:
        return text, False
    if text == "List[str]":
        return "list[str]", False
    for prefix in ("Optional[", "Union["):
        if text.startswith(prefix) and text.endswith("]"):
            parts = _split(text[len(prefix) : -1], ",")
            if prefix == "Optional[":
                parts.append("None")
            return _union(parts)
    parts = _split(text, "|")
    return _union(parts) if len(parts) > 1 else None


def _union(parts: list[str]) -> tuple[str, bool] | None:
    optional = "None" in parts
    kinds: set[str] = set()
    for part in parts:
        if part == "None":
            continue
        found = field_type(part)
        if found is None:
            return None
        kinds.add(found[0])
        optional = optional or found[1]
    return (kinds.pop(), optional) if len(kinds) == 1 else None


def _split(text: str, separator: str) -> list[str]:
    """`text` cut at the separators that stand outside brackets."""
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == separator and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return parts


def segmentation_fault(value: object) -> str | None:
    """What is wrong with a segmentation; None for `session` and `window:LENGTH:STRIDE` with 1 <= STRIDE <= LENGTH."""
    if value == "session":
        return None
    if isinstance(value, str) and value.startswith("window:"):
        numbers = value.split(":")[1:]
        whole = len(numbers) == 2 and all(_NUMBER.fullmatch(part) for part in numbers)
        if whole and 1 <= int(numbers[1]) <= int(numbers[0]):
            return None
    return f"Segmentation must be 'session' or 'window:LENGTH:STRIDE' with 1 <= STRIDE <= LENGTH, got {value!r}"
