"""What designers are told in each stage."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_laboratory import Recorder, ScriptedDesigner, ScriptedLaboratory, source_of, task

from prismem_core.evolution.archive import Archive
from prismem_core.evolution.designer import IntegrationBrief, ParentBrief
from prismem_core.evolution.engine import EvolutionResult, evolve
from prismem_core.evolution.settings import build_settings
from prismem_core.runs.events import CasesSelected, IntegrationPlanned
from prismem_core.tasks.capability import Capability

F, T, A = "factual_retrieval", "temporal", "adversarial"
TRAIN = [task("f0", F), task("f1", F), task("t0", T), task("t1", T), task("a0", A)]
VALID = [task("vf", F), task("vt", T), task("va", A)]


def row(f: float, t: float, a: float) -> dict[str, float]:
    values = {F: f, T: t, A: a}
    return {x.id: values[x.primary] for x in [*TRAIN, *VALID]}


# Each refinement lifts one capability; the best program stays without the temporal gain, so integration has work to do.
SCORES = {
    "seed": row(0.1, 0.2, 0.3),
    "cold-1": row(0.2, 0.2, 0.3),
    "cold-2": row(0.2, 0.2, 0.2),
    "f-3": row(0.7, 0.2, 0.3),
    "t-4": row(0.0, 0.6, 0.0),
    "all-5": row(0.6, 0.2, 0.3),
    "all-6": row(0.7, 0.6, 0.3),
}
REPLIES = dict(enumerate(["seed", "cold-1", "cold-2", "f-3", "t-4", "all-5", "all-6"]))


def go(**settings: Any) -> tuple[EvolutionResult, ScriptedDesigner, Recorder]:
    laboratory = ScriptedLaboratory(TRAIN, VALID, {source_of(n): s for n, s in SCORES.items()})
    designer = ScriptedDesigner(lambda t, n: source_of(REPLIES[t]))
    recorder = Recorder()
    chosen = build_settings({"T1": 2, "T2": 2, "T3": 2, "repair_attempts": 0, "seed": 9, **settings})
    return evolve(laboratory, designer, source_of("seed"), chosen, None, recorder), designer, recorder


@pytest.fixture(scope="module")
def told() -> tuple[EvolutionResult, ScriptedDesigner, Recorder]:
    return go()


def test_the_cold_start_sees_the_table_and_one_case_a_capability(told: Any) -> None:
    first, second = told[1].briefs[:2]
    assert isinstance(first, ParentBrief) and isinstance(second, ParentBrief)
    assert (first.stage, first.parent_id, first.source, first.target) == ("cold_start", "n00", source_of("seed"), None)
    assert first.accuracy == {Capability(F): 0.1, Capability(T): 0.2, Capability(A): 0.3}
    assert first.train == pytest.approx(0.18)
    assert first.table is not None and first.lengths.chars_per_unit == 11.0
    assert [case.task_id for case in first.cases] == ["f0", "t0", "a0"]
    assert first.explored == () and first.tried == ()
    # The child is better, so it is the parent now, and it was shown no case before.
    assert second.parent_id == "n01" and [case.task_id for case in second.cases] == ["f0", "t0", "a0"]
    assert second.explored == ()
    assert [(r.program_id, r.outcome) for r in second.tried] == [("n01", "retained")]


def test_a_parent_shows_the_case_it_showed_least() -> None:
    laboratory = ScriptedLaboratory(TRAIN, VALID, {source_of(n): row(0.1, 0.2, 0.3) for n in SCORES})
    recorder = Recorder()
    settings = build_settings({"T1": 3, "T2": 0, "T3": 0, "repair_attempts": 0})
    designer = ScriptedDesigner(lambda t, n: source_of(REPLIES[t]))
    evolve(laboratory, designer, source_of("seed"), settings, None, recorder)
    shown = [list(e.tasks) for e in recorder.events if isinstance(e, CasesSelected)]
    assert shown == [["f0", "t0", "a0"], ["f1", "t1", "a0"], ["f0", "t0", "a0"]]
    brief = designer.briefs[2]
    assert isinstance(brief, ParentBrief)
    assert [(r.iteration, r.program_id, r.summary) for r in brief.explored] == [
        (1, "n01", "revision 1.0"),
        (2, "n02", "revision 2.0"),
    ]
    assert brief.explored[0].components == ("NAME",) and brief.explored[0].valid == pytest.approx(0.2)


def test_refinement_sees_its_target_and_no_table(told: Any) -> None:
    brief = told[1].briefs[2]
    assert (brief.stage, brief.parent_id, brief.target) == ("refinement", "n01", Capability.FACTUAL_RETRIEVAL)
    assert brief.table is None and brief.lengths.retrieved_chars == 44.0
    assert {case.task_id for case in brief.cases} == {"f0", "f1"}
    assert brief.explored == () and len(brief.tried) == 2


def test_retained_versions_of_the_target_are_explored_and_all_attempts_are_tried() -> None:
    levels = {"seed": 0.1, "cold-1": 0.2, "cold-2": 0.15, "f-3": 0.3}
    tasks, valid = [task("f0", F), task("f1", F)], [task("v0", F)]
    scores = {source_of(name): dict.fromkeys(("f0", "f1", "v0"), level) for name, level in levels.items()}
    designer = ScriptedDesigner(lambda t, n: source_of(REPLIES[t]))
    settings = build_settings({"T1": 0, "T2": 3, "T3": 0, "repair_attempts": 0})
    evolve(ScriptedLaboratory(tasks, valid, scores), designer, source_of("seed"), settings)
    last = designer.briefs[-1]
    assert isinstance(last, ParentBrief) and last.target is Capability.FACTUAL_RETRIEVAL
    assert [(r.iteration, r.program_id, r.outcome) for r in last.explored] == [(1, "n01", "retained")]
    assert [(r.iteration, r.program_id, r.outcome) for r in last.tried] == [
        (1, "n01", "retained"),
        (2, "n02", "gate:target"),
    ]
    failed = last.tried[1]
    assert failed.accuracy == {Capability.FACTUAL_RETRIEVAL: 0.15} and failed.train is None and failed.valid is None
    assert (failed.diagnosis, failed.summary, failed.details) == (
        "weak in factual_retrieval",
        "revision 2.0",
        {"edit": 2, "because": ["a", 1]},
    )


def test_integration_goes_from_the_nearest_specialist_to_the_farthest(told: Any) -> None:
    _, designer, recorder = told
    brief = designer.briefs[4]
    assert isinstance(brief, IntegrationBrief)
    assert (brief.base_id, brief.source) == ("n03", source_of("f-3"))
    assert [(v.capability.letter, v.program_id, v.distance, v.is_base) for v in brief.specialists] == [
        ("F", "n03", 0, True),
        ("P", "n03", 0, True),
        ("M", "n03", 0, True),
        ("A", "n01", 1, False),
        ("T", "n04", 2, False),
    ]
    temporal = brief.specialists[-1]
    assert temporal.gain == pytest.approx(0.4) and temporal.parent_id == "n01"
    (pair,) = brief.pairs
    assert (pair.capability, pair.task_id) == (Capability.TEMPORAL, "t0")
    assert [pair.base.predicted, pair.specialist.predicted] == ["n03 says no", "n04 says no"]
    assert pair.specialist_parent is not None and pair.specialist_parent.predicted == "n01 says no"
    planned = [e for e in recorder.events if isinstance(e, IntegrationPlanned)]
    assert len(planned) == 1 and planned[0].order == [T] and planned[0].pairs == {T: "t0"}


def test_the_next_round_sees_the_last_candidate_on_the_paired_cases(told: Any) -> None:
    result, designer, _ = told
    (attempt,) = designer.feedback[5]
    assert (attempt.iteration, attempt.program_id, attempt.reason) == (5, "n05", "gate:gain")
    assert [(case.task_id, case.predicted) for case in attempt.cases] == [("t0", "n05 says no")]
    assert attempt.valid == pytest.approx((0.6 + 0.2 + 0.3) / 3)
    assert (result.base, result.final, result.reason) == ("n03", "n06", "integrated in iteration 6")


def test_chance_depends_on_seed_and_iteration_alone(told: Any) -> None:
    first, second = told[1].briefs[:2]
    assert first.rng().random() == first.rng().random() != second.rng().random()


def test_lineage_distance_counts_edges(told: Any) -> None:
    archive: Archive = told[0].archive
    assert archive.distance("n04", "n04") == 0
    assert archive.distance("n03", "n04") == archive.distance("n04", "n03") == 2
    assert archive.distance("n00", "n04") == 2
    assert archive.ancestry("n04") == ["n04", "n01", "n00"]


def test_steps_tell_where_the_run_is(told: Any) -> None:
    recorder = told[2]
    assert [s[2] for s in recorder.steps if s[0] == 3] == [
        "select",
        "cases",
        "diagnose",
        "revise",
        "validate",
        "evaluate target",
        "evaluate full",
    ]
    assert {s[1] for s in recorder.steps} == {6}
