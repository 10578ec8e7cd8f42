"""Table 6 as a pipeline with `reuse="paper"` lives it: which stages a candidate pays for after its parent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prismem_core.pipeline.explanation import explain_reuse
from prismem_core.program.components import STAGES
from prismem_core.program.program import Program

from .conftest import World

PAID_STAGES = {
    "extract": "extraction",
    "index": "indexing",
    "plan": "planning",
    "retrieve": "retrieval",
    "answer": "answer",
}


def stages_paid(world: World, source: str) -> list[str]:
    """Stages that a run had to do something new for, in order; every question must have got its answer."""
    world.calls()
    world.cache.fresh.clear()
    result = world.pipeline("paper").run(Program(source), world.histories, world.questions)
    assert [trace.failure for trace in result.traces] == [None] * len(world.questions)
    done = {**world.calls(), **world.cache.fresh}
    return [stage for what, stage in PAID_STAGES.items() if done.get(what)]


def test_every_golden_label_is_what_a_run_pays_for(golden: Callable[[str], Any], world: World) -> None:
    vectors = golden("reexecution")
    assert len(vectors) > 20
    for vector in vectors:
        own = World(world.sandbox)
        assert stages_paid(own, vector["parent"]) == list(STAGES[1:]), vector["name"]
        start = vector["expect"]["start"]
        expected = [] if start is None else list(STAGES[STAGES.index(start) :])
        assert stages_paid(own, vector["candidate"]) == expected, vector["name"]


def test_every_golden_label_is_what_the_explanation_says(golden: Callable[[str], Any], world: World) -> None:
    for vector in golden("reexecution"):
        programs = Program(vector["parent"]), Program(vector["candidate"])
        shown = [world.pipeline().interface(program) for program in programs]
        explanation = explain_reuse(*programs, *shown, ["paper"])
        (paper,) = explanation.modes
        assert paper.start == explanation.table6 == vector["expect"]["start"], vector["name"]
        reused = [stage.stage for stage in paper.stages if stage.state == "reused"]
        assert reused == vector["expect"]["reuse"], vector["name"]
        assert [change.component for change in explanation.changes] == vector["expect"]["changed"], vector["name"]
