"""Replies checked against schemas: every golden vector, and the corners of JSON that the vectors leave out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from prismem_core.program.interface import FieldSpec
from prismem_core.program.schema import check_json, check_value


def schema_of(fields: list[dict[str, Any]]) -> list[FieldSpec]:
    return [
        FieldSpec(
            f["name"],
            f["type"].removeprefix("optional:"),
            f["type"].startswith("optional:"),
            f["has_default"],
            f["default"],
        )
        for f in fields
    ]


def test_golden(golden: Callable[[str], Any]) -> None:
    vectors = golden("schema")
    assert vectors
    for vector in vectors:
        found = check_json(vector["raw"], schema_of(vector["fields"]))
        expected = vector["expect"]
        got = {"ok": found.ok, "errors": [list(error) for error in found.errors], "value": found.value}
        assert got == {"ok": expected["ok"], "errors": expected["errors"], "value": expected["value"]}, vector["name"]
        if found.value is not None:
            assert {k: type(v) for k, v in found.value.items()} == {k: type(v) for k, v in expected["value"].items()}


@pytest.mark.parametrize(
    ("raw", "code"),
    [("[" * 100_000, "invalid_json"), ("1" * 5000, "invalid_json"), ('{"x": 1' + "0" * 400 + "}", "nonfinite")],
)
def test_hostile_replies_are_errors_not_crashes(raw: str, code: str) -> None:
    assert check_json(raw, [FieldSpec("x", "float")]).errors[0][0] == code


def test_defaults_are_not_shared() -> None:
    schema = [FieldSpec("tags", "list[str]", has_default=True, default=["a"])]
    first = check_value({}, schema).value
    assert first == {"tags": ["a"]}
    first["tags"].append("b")
    assert check_value({}, schema).value == {"tags": ["a"]}


def test_a_default_that_json_cannot_carry_is_left_to_the_program() -> None:
    schema = [FieldSpec("tags", "list[str]", has_default=True, opaque_default=True)]
    assert check_value({}, schema).value == {}
    assert check_value({"tags": ["x"]}, schema).value == {"tags": ["x"]}


def test_lone_surrogates_pass_and_last_of_repeated_keys_counts() -> None:
    assert check_json('{"a": "\\ud800"}', [FieldSpec("a", "str")]).ok
    assert check_json('{"a": 1, "a": "z"}', [FieldSpec("a", "str")]).value == {"a": "z"}
