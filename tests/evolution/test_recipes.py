"""The strategies as choices of the same parts."""

from __future__ import annotations

from typing import Any

from scripted_laboratory import Recorder, ScriptedDesigner, ScriptedLaboratory, source_of, task

from prismem_core.evolution.engine import EvolutionResult, evolve
from prismem_core.evolution.recipes import HOLISTIC, PRISMEM, RECIPES
from prismem_core.evolution.settings import EvolutionSettings, build_settings
from prismem_core.runs.events import CapabilitySelected, CasesSelected, IterationFinished, Rejected

TRAIN = [task("f0", "factual_retrieval"), task("t0", "temporal"), task("t1", "temporal"), task("a0", "adversarial")]
VALID = [task("v0", "temporal")]


def row(f0: float, t0: float, t1: float, a0: float, v0: float) -> dict[str, float]:
    return {"f0": f0, "t0": t0, "t1": t1, "a0": a0, "v0": v0}


SCORES = {
    0: row(0.5, 0.5, 0.1, 0.9, 0.5),
    1: row(0.5, 0.5, 0.2, 0.9, 0.4),  # better on training, worse on validation: kept, but not the best
    2: row(0.5, 0.5, 0.2, 0.7, 0.9),  # worse on training than its parent: stopped by the gate
    3: row(0.8, 0.8, 0.8, 0.9, 0.6),
    4: row(0.8, 0.8, 0.8, 0.9, 0.9),
}


def go(**settings: Any) -> tuple[EvolutionResult, list[Any], ScriptedLaboratory]:
    laboratory = ScriptedLaboratory(TRAIN, VALID, {source_of(n): s for n, s in SCORES.items()})
    recorder = Recorder()
    chosen = build_settings(
        {"T1": 0, "T2": 2, "T3": 2, "K": 3, "strategy": "holistic", "repair_attempts": 0, **settings}
    )
    designer = ScriptedDesigner(lambda t, n: source_of(t))
    return evolve(laboratory, designer, source_of(0), chosen, None, recorder), recorder.events, laboratory


def test_every_strategy_of_the_settings_has_its_recipe() -> None:
    assert set(RECIPES) == {"prismem", "holistic"}
    for name in RECIPES:
        assert build_settings({"strategy": name}).strategy == name


def test_every_strategy_spends_the_same_iterations() -> None:
    settings = EvolutionSettings()
    assert PRISMEM.refinements(settings) + settings.T3 == HOLISTIC.refinements(settings) == 15
    assert HOLISTIC.refinements(build_settings({"reallocate_budget": False})) == 12


def test_holistic_shows_the_lowest_scores_of_any_capability() -> None:
    _, events, _ = go()
    first = next(e for e in events if isinstance(e, CasesSelected))
    assert first.tasks == ["t1", "f0", "t0"] and first.target is None and first.weights == {}
    assert next(e for e in events if isinstance(e, CapabilitySelected)).target is None


def test_holistic_gates_on_all_training_tasks_and_ranks_by_the_overall_score() -> None:
    result, events, laboratory = go()
    finished = [e for e in events if isinstance(e, IterationFinished)]
    assert [(e.parent, e.gate, e.retained, e.best) for e in finished[1:]] == [
        ("n00", True, True, "n00"),
        ("n00", False, False, "n00"),
        ("n00", True, True, "n03"),
        ("n03", False, False, "n03"),
    ]
    assert next(e.reason for e in events if isinstance(e, Rejected)) == "gate:train"
    assert laboratory.evaluations[1] == ("n01", "target", ("f0", "t0", "t1", "a0"))
    assert (result.final, result.reason) == ("n03", "strategy holistic does not integrate")


def test_the_overall_set_can_be_the_training_set() -> None:
    assert go(overall_set="train", T2=1, T3=0)[0].final == "n01"
    assert go(overall_set="valid", T2=1, T3=0)[0].final == "n00"
    assert go(overall_set="all", T2=1, T3=0)[0].final == "n00"
