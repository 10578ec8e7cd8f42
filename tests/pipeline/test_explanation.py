"""What explain-reuse says of each stage, in words; that runs keep to it is the business of test_random_edits.py."""

from __future__ import annotations

import json

import pytest

from prismem_core.pipeline.explanation import Explanation, ModeReuse, explain_reuse
from prismem_core.pipeline.keys import Reuse
from prismem_core.program.program import Program

from .conftest import World
from .test_reuse import DENSE, edited


def explain(world: World, child: str, parent: str = DENSE) -> Explanation:
    programs = Program(parent), Program(child)
    return explain_reuse(*programs, *(world.pipeline().interface(program) for program in programs))


def mode(explanation: Explanation, wanted: Reuse) -> ModeReuse:
    return next(found for found in explanation.modes if found.mode == wanted)


def states(explanation: Explanation, wanted: Reuse) -> dict[str, str]:
    return {stage.stage: stage.state for stage in mode(explanation, wanted).stages}


def why(explanation: Explanation, wanted: Reuse, stage: str) -> str:
    return next(found.why for found in mode(explanation, wanted).stages if found.stage == stage)


def test_a_helper_that_only_retrieve_reaches(world: World) -> None:
    found = explain(world, edited('"\\n".join(texts)', '" \\n".join(texts)'))
    assert states(found, "content") == {
        "segmentation": "reused",
        "extraction": "reused",
        "indexing": "reused",
        "planning": "reused",
        "retrieval": "again",
        "answer": "where equal",
    }
    assert "the change is in Memory._join, which only Memory.retrieve reaches" in why(found, "content", "indexing")
    assert "Memory.retrieve -> Memory._join" in why(found, "content", "retrieval")
    assert (mode(found, "content").start, mode(found, "paper").start, found.table6) == (
        "retrieval",
        "indexing",
        "indexing",
    )
    assert "helpers count from indexing on" in why(found, "paper", "indexing")
    assert mode(found, "off").start == "extraction"


def test_a_comment_changes_nothing_but_in_off(world: World) -> None:
    found = explain(world, DENSE + "# a note\n")
    assert (found.changes, found.table6) == ((), None)
    assert mode(found, "content").start is None
    assert mode(found, "paper").start is None
    assert mode(found, "off").start == "extraction"
    assert mode(explain(world, DENSE), "off").start is None


def test_an_instruction_by_value_and_by_text(world: World) -> None:
    old = '"Given the following question, generate a query to retrieve relevant memory."'
    same = explain(world, edited(old, f"str({old})"))
    assert mode(same, "content").start is None
    assert "although QueryPlanningInstruction changed in its text" in why(same, "content", "planning")
    assert mode(same, "paper").start == "planning"
    other = explain(world, edited("generate a query", "write a query"))
    assert states(other, "content")["planning"] == "again"
    assert states(other, "content")["retrieval"] == "where equal"
    assert "a query that comes out as it was" in why(other, "content", "retrieval")
    assert states(other, "paper")["retrieval"] == "again"


def test_a_schema_that_changes_leaves_planning_alone(world: World) -> None:
    found = explain(world, edited("One piece of information", "One fact"))
    assert states(found, "content")["extraction"] == "again"
    assert "the fields of MemoryUnit changed" in why(found, "content", "extraction")
    assert states(found, "content")["planning"] == "reused"
    assert states(found, "paper")["planning"] == "again"
    assert "MemoryUnit changed" in why(found, "paper", "planning")


def test_a_dynamic_look_up_is_named_with_its_line(world: World) -> None:
    dynamic = edited("return self._join([", 'return getattr(self, "_" + "join")([')
    line = 1 + next(i for i, text in enumerate(dynamic.splitlines()) if "getattr" in text)
    found = explain(world, dynamic.replace('"\\n".join', '"; ".join'), dynamic)
    assert [(lookup.program, lookup.line) for lookup in found.lookups] == [("parent", line), ("candidate", line)]
    assert f"because of line {line} of the candidate (getattr)" in why(found, "content", "indexing")
    assert states(found, "content")["indexing"] == "again"


def test_docstrings_count_for_table_6_alone(world: World) -> None:
    head = "    def index(self, units, raw_text):\n"
    found = explain(world, edited(head, head + '        """Keep all."""\n'))
    assert mode(found, "content").start is None
    assert why(found, "content", "indexing") == "nothing but docstrings changed"
    assert mode(found, "paper").start == "indexing"


def test_an_unused_helper_is_reached_by_nobody(world: World) -> None:
    found = explain(world, DENSE + "\n\ndef spare(x):\n    return x\n")
    assert mode(found, "content").start is None
    assert "spare is reached by no code of the memory" in why(found, "content", "indexing")


def test_another_segmentation_cuts_anew(world: World) -> None:
    found = explain(world, DENSE + 'Segmentation = "window:4:2"\n')
    assert {modes.start for modes in found.modes} == {"segmentation"}
    assert "Segmentation was 'session' and is 'window:4:2'" in why(found, "content", "segmentation")


@pytest.mark.parametrize(
    "child", [DENSE, edited("TOP = 3", "TOP = 2"), edited("return self._join(", "return eval('str')(")]
)
def test_all_of_it_is_plain_json(world: World, child: str) -> None:
    found = explain(world, child)
    record = json.loads(json.dumps(found.to_dict()))
    assert [one["mode"] for one in record["modes"]] == ["content", "paper", "off"]
    assert record["table6"] == found.table6
    assert [one["component"] for one in record["changes"]] == [one.component for one in found.changes]
