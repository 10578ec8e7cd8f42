"""What a change re-executes: the golden vectors, and properties that no vector spells out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from prismem_core.errors import ProgramError
from prismem_core.program import library
from prismem_core.program.components import (
    STAGES,
    Components,
    changed_components,
    restart_stage,
    reusable_stages,
    stage_digests,
)
from prismem_core.program.program import Program


def test_golden(golden: Callable[[str], Any]) -> None:
    vectors = golden("reexecution")
    assert vectors
    for vector in vectors:
        start = restart_stage(vector["parent"], vector["candidate"])
        got = {
            "changed": changed_components(vector["parent"], vector["candidate"]),
            "start": start,
            "reuse": reusable_stages(start),
        }
        assert got == vector["expect"], vector["name"]


def test_stage_digests_agree_with_restart_stage(golden: Callable[[str], Any]) -> None:
    kept = 0
    for vector in golden("reexecution"):
        before, after = stage_digests(vector["parent"]), stage_digests(vector["candidate"])
        start = restart_stage(vector["parent"], vector["candidate"])
        for stage in ("extraction", "indexing", "planning", "answer"):
            shared = start is None or STAGES.index(start) > STAGES.index(stage)
            assert shared == (before[stage] == after[stage]), (vector["name"], stage)
            kept += shared
    assert kept


def edited(source: str, *edits: tuple[str, str]) -> str:
    for old, new in edits:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


@pytest.fixture
def seed() -> str:
    return library.source("seed")


def test_segmentation_begins_at_segmentation(seed: str) -> None:
    candidate = seed + 'Segmentation = "window:40:38"\n'
    assert changed_components(seed, candidate) == ["Segmentation"]
    assert restart_stage(seed, candidate) == "segmentation"
    assert reusable_stages("segmentation") == []


def test_a_change_inherited_through_a_base_begins_at_indexing(seed: str) -> None:
    base = edited(
        seed,
        (
            "class Memory:\n",
            "class Base:\n    def index(self, units, raw_text):\n        self.retrieve(1)\n\n\nclass Memory(Base):\n",
        ),
        ("    def index(self, units: list[MemoryUnit], raw_text: str) -> None:\n", ""),
        ("        self.memories.extend(unit.memory_text for unit in units)\n", ""),
    )
    candidate = base.replace('"\\n".join', '"; ".join')
    assert changed_components(base, candidate) == ["Memory.retrieve"]
    assert restart_stage(base, candidate) == "indexing"


def test_each_name_of_an_import_and_of_a_tuple_is_a_component(seed: str) -> None:
    candidate = seed + "from collections import Counter, deque as dq\nA, (B, *C) = 1, (2, 3)\nA += 1\nprint(A)\n"
    assert changed_components(seed, candidate) == ["<module>", "A", "B", "C", "Counter", "dq"]
    assert len(Components.parse(candidate).shapes["A"]) == 2


def test_a_source_that_does_not_parse_is_named_with_its_line(seed: str) -> None:
    with pytest.raises(ProgramError) as caught:
        _ = Program(seed + "def f(:\n").components
    assert (caught.value.code, caught.value.line) == ("syntax_error", len(seed.splitlines()) + 1)


def test_program_digest_is_of_the_text_and_components_are_parsed_once(seed: str) -> None:
    program = Program(seed)
    assert program.components is program.components
    assert program.digest == Program(seed).digest != Program(seed + "# note\n").digest
    assert "Memory.retrieve" in program.components.names
