"""Each requirement of pitfalls.toml is held by tests, and where a GPU matters by steps of the device check."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
STEPS = TESTS.parent / "bench" / "device"
PITFALLS: dict[str, list[dict[str, Any]]] = tomllib.loads(
    (TESTS / "house" / "pitfalls.toml").read_text(encoding="utf-8")
)
LINES = [(chapter, entry) for chapter, entries in PITFALLS.items() for entry in entries]


def test_every_line_of_the_chapters_is_there() -> None:
    lines = {"search": 11, "mmr": 7, "arrays": 10, "cache": 8, "programs": 11, "extraction": 11, "evolution": 14}
    lines["reporting"] = 2
    assert {chapter: len(entries) for chapter, entries in PITFALLS.items()} == lines
    assert all(set(entry) <= {"line", "tests", "gpu"} for _, entry in LINES)


@pytest.mark.parametrize(
    ("chapter", "entry"), LINES, ids=[f"{chapter}: {entry['line'][:40]}" for chapter, entry in LINES]
)
def test_its_tests_exist(chapter: str, entry: dict[str, Any]) -> None:
    assert entry["tests"], f"{chapter}: {entry['line']} has no test"
    steps = [(STEPS, step) for step in entry.get("gpu", ())]
    for folder, test in [*((TESTS, test) for test in entry["tests"]), *steps]:
        path, _, name = test.partition("::")
        source = (folder / path).read_text(encoding="utf-8")
        functions = {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
        assert name in functions, f"{path} has no {name}"
