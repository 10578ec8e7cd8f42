"""The interface as data: round trips across the process border, types, JSON schemas."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import prismem_core
from prismem_core.program.interface import (
    FieldSpec,
    ProgramInterface,
    Schema,
    field_type,
    segmentation_fault,
    to_json_schema,
)

UNIT = Schema(
    [
        FieldSpec("text", "str", description="One fact"),
        FieldSpec("tags", "list[str]", has_default=True, default=["a"]),
        FieldSpec("score", "float", optional=True, has_default=True, default=None),
        FieldSpec("pair", "list[str]", has_default=True, opaque_default=True),
    ]
)
INTERFACE = ProgramInterface(UNIT, Schema([FieldSpec("query", "str")]), "Extract.", "Plan.", "Answer.", "window:40:38")


def test_round_trip_through_json() -> None:
    assert ProgramInterface.from_dict(json.loads(json.dumps(INTERFACE.to_dict()))) == INTERFACE
    assert isinstance(ProgramInterface.from_dict(INTERFACE.to_dict()).unit, Schema)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("unit",), {}),
        (("unit",), [1]),
        (("unit", 0, "type"), "dict"),
        (("unit", 0, "name"), 3),
        (("unit", 0, "optional"), 1),
        (("answer_instruction",), " "),
        (("planning_instruction",), None),
        (("segmentation",), "window:1:2"),
    ],
)
def test_a_description_of_another_form_is_refused(path: tuple[Any, ...], value: Any) -> None:
    data: Any = INTERFACE.to_dict()
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(ValueError, match="description"):
        ProgramInterface.from_dict(data)
    with pytest.raises(ValueError, match="expected an object"):
        ProgramInterface.from_dict([data])


def test_json_schema() -> None:
    assert to_json_schema(UNIT, "MemoryUnit") == {
        "title": "MemoryUnit",
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "One fact"},
            "tags": {"type": "array", "items": {"type": "string"}, "default": ["a"]},
            "score": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
            "pair": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["text"],
        "additionalProperties": False,
    }
    assert UNIT.to_json_schema("MemoryUnit") == to_json_schema(list(UNIT), "MemoryUnit")
    assert UNIT.names == ("text", "tags", "score", "pair")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("str", ("str", False)),
        ("list [str]", ("list[str]", False)),
        ("typing.List[str]", ("list[str]", False)),
        ("None | int", ("int", True)),
        ("Optional[list[str]]", ("list[str]", True)),
        ("typing.Union[typing.Optional[bool], None]", ("bool", True)),
        ("Optional[float] | None", ("float", True)),
        ("Union[str]", ("str", False)),
        ("int | str", None),
        ("list", None),
        ("list[int]", None),
        ("None", None),
        ("dict[str, str]", None),
        ("Optional[dict]", None),
        ("", None),
    ],
)
def test_types_by_their_text(text: str, expected: tuple[str, bool] | None) -> None:
    assert field_type(text) == expected
    spec = FieldSpec("x", *expected) if expected else None
    assert spec is None or field_type(spec.type_text) == expected


@pytest.mark.parametrize("value", ["session", "window:40:38", "window:1:1"])
def test_segmentations(value: str) -> None:
    assert segmentation_fault(value) is None


@pytest.mark.parametrize(
    "value", ["", "window", "window:0:0", "window:3:4", "window:3:-1", "window:³:1", "window:04:1", 3, None, "turn"]
)
def test_no_segmentations(value: object) -> None:
    assert repr(value) in str(segmentation_fault(value))


def test_the_worker_side_imports_nothing_heavy() -> None:
    code = (
        "import sys; import prismem_core.program.interface, prismem_core.errors; "
        "print([name for name in ('numpy', 'pydantic', 'rich', 'typer') if name in sys.modules])"
    )
    folder = str(Path(prismem_core.__file__).parent.parent)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": folder})
    assert done.stdout.strip() == "[]", done.stderr
