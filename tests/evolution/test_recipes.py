"""The strategies as choices of the same parts."""

from __future__ import annotations

from collections import Counter
from typing import Any, get_args

import pytest
from scripted_laboratory import Recorder, ScriptedDesigner, ScriptedLaboratory, source_of, task

from prismem_core.evolution.engine import EvolutionResult, evolve
from prismem_core.evolution.gates import Pairing
from prismem_core.evolution.recipes import RECIPES, drawn_pair, furthest_pair
from prismem_core.evolution.settings import EvolutionSettings, build_settings
from prismem_core.runs.events import CapabilitySelected, CasesSelected, IterationFinished, Rejected, RunFinished

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
    assert list(RECIPES) == list(get_args(EvolutionSettings.model_fields["strategy"].annotation))
    for name in RECIPES:
        assert RECIPES[name].name == build_settings({"strategy": name}).strategy == name


@pytest.mark.parametrize("name", RECIPES)
def test_every_strategy_spends_the_same_iterations(name: str) -> None:
    recipe, settings = RECIPES[name], EvolutionSettings()
    assert recipe.refinements(settings) + settings.T3 * recipe.integrates == 15
    assert recipe.refinements(build_settings({"reallocate_budget": False})) == 12


def test_round_robin_takes_the_capabilities_that_have_tasks_in_turn() -> None:
    _, events, _ = go(strategy="round-robin", T1=1, T2=5, T3=0)
    chosen = [e for e in events if isinstance(e, CapabilitySelected)]
    assert [e.target for e in chosen] == [
        "factual_retrieval",
        "temporal",
        "adversarial",
        "factual_retrieval",
        "temporal",
    ]
    assert all(e.terms["rho"] for e in chosen), "what Eq. 6 would have said is on record"


def drawn(seed: int, **settings: Any) -> list[list[str]]:
    _, events, _ = go(strategy="random-case", seed=seed, **settings)
    return [list(e.tasks) for e in events if isinstance(e, CasesSelected) and e.stage == "refinement"]


def test_random_cases_are_drawn_from_all_training_tasks_by_the_seed() -> None:
    assert drawn(3, T2=4) == drawn(3, T2=4)
    batches = [tuple(batch) for seed in range(40) for batch in drawn(seed, T2=2)]
    assert all(len(set(batch)) == 3 for batch in batches)
    seen = Counter(task for batch in batches for task in batch)
    assert set(seen) == {"f0", "t0", "t1", "a0"} and min(seen.values()) > len(batches) / 2
    assert len(set(batches)) > 15
    assert len(drawn(0, T2=1, K=9)[0]) == 4, "no task is drawn twice"


def test_random_case_shows_drawn_pairs() -> None:
    pairing = Pairing("temporal", ["a", "b", "c"], [0.1, 0.9, 0.2])
    picked = {drawn_pair(build_settings({"seed": seed}), pairing) for seed in range(30)}
    assert picked == {"a", "b", "c"} and furthest_pair(EvolutionSettings(), pairing) == "b"


def test_a_router_ends_with_the_specialists() -> None:
    result, events, _ = go(strategy="router", T1=0, T2=2, T3=0)
    finished = events[-1]
    assert isinstance(finished, RunFinished)
    assert dict(finished.routes) == result.routes == dict(result.archive.specialists)
    assert result.final == result.base == result.archive.best
    assert go(strategy="no-integration")[0].routes == {}


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
