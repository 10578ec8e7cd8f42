"""Attempts within an iteration: repair, retry, feedback, and failures that are the candidate's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from scripted_laboratory import Recorder, ScriptedDesigner, ScriptedLaboratory, source_of, task

from prismem_core.errors import ProgramError
from prismem_core.evolution.archive import Archive
from prismem_core.evolution.designer import Attempt, Diagnosis, ParentBrief, Revision
from prismem_core.evolution.engine import evolve
from prismem_core.evolution.settings import build_settings
from prismem_core.runs.events import Accepted, CasesSelected, Evaluated, IterationFinished, ProgramAdded, Rejected

TRAIN = [task("t0", "temporal"), task("t1", "temporal", ["adversarial"]), task("t2", "adversarial")]
VALID = [task("v0", "temporal"), task("v1", "adversarial")]
IDS = [t.id for t in [*TRAIN, *VALID]]


def flat(level: float) -> dict[str, float]:
    return dict.fromkeys(IDS, level)


def go(
    replies: Mapping[tuple[int, int], str | None],
    scores: Mapping[str, Mapping[str, float]],
    *,
    breaks: Mapping[str, str] | None = None,
    invalid: Mapping[str, str] | None = None,
    **settings: Any,
) -> tuple[Recorder, ScriptedDesigner, ScriptedLaboratory]:
    """One run over named programs; iterations run for as long as the settings say."""
    table = {source_of(name): values for name, values in {"seed": flat(0.25), **scores}.items()}
    laboratory = ScriptedLaboratory(
        TRAIN,
        VALID,
        table,
        {source_of(name): how for name, how in (breaks or {}).items()},
        {source_of(name): code for name, code in (invalid or {}).items()},
    )
    designer = ScriptedDesigner(lambda t, n: source_of(replies[t, n]) if replies[t, n] else None)
    recorder = Recorder()
    chosen = build_settings({"T1": 0, "T2": 1, "T3": 0, **settings})
    evolve(laboratory, designer, source_of("seed"), chosen, None, recorder)
    return recorder, designer, laboratory


def reasons(recorder: Recorder) -> list[str]:
    return [e.reason for e in recorder.events if isinstance(e, Rejected)]


def last(recorder: Recorder) -> IterationFinished:
    return [e for e in recorder.events if isinstance(e, IterationFinished)][-1]


def test_errors_go_back_to_the_coder_until_the_repairs_are_used_up() -> None:
    recorder, designer, _ = go(
        {(1, 0): None, (1, 1): "bad", (1, 2): "good"}, {"good": flat(0.5)}, invalid={"bad": "load_error"}
    )
    assert reasons(recorder) == ["patch:no_hunks", "validation:load_error"]
    assert [len(seen) for seen in designer.feedback] == [0, 1, 2]
    third = designer.feedback[2]
    assert [a.reason for a in third] == ["patch:no_hunks", "validation:load_error"]
    assert third[1].message == "check load_error" and third[1].source is None
    assert (last(recorder).program, last(recorder).retained, last(recorder).gate) == ("n01", True, True)


def test_without_repairs_the_first_error_ends_the_iteration() -> None:
    recorder, _, laboratory = go({(1, 0): None}, {}, repair_attempts=0)
    assert reasons(recorder) == ["patch:no_hunks"]
    assert (last(recorder).program, last(recorder).gate) == (None, False)
    assert len(laboratory.evaluations) == 1


def test_a_patch_that_changes_nothing_costs_no_evaluation() -> None:
    class Idle(ScriptedDesigner):
        def revise(self, brief: ParentBrief, diagnosis: Diagnosis, feedback: Any) -> Revision:
            return Revision("nothing", "@@\n-NAME = 'seed'\n+NAME = 'seed'\n")

    laboratory = ScriptedLaboratory(TRAIN, VALID, {source_of("seed"): flat(0.25)})
    recorder = Recorder()
    settings = build_settings({"T1": 0, "T2": 1, "T3": 0, "repair_attempts": 0})
    evolve(laboratory, Idle(lambda t, n: None), source_of("seed"), settings, None, recorder)
    assert reasons(recorder) == ["patch:noop"]
    assert [purpose for _, purpose, _ in laboratory.evaluations] == ["full"]


@pytest.mark.parametrize(
    ("how", "reason", "gate"),
    [
        ("raise:target", "execution:error", False),
        ("target", "execution:limit:cpu", False),
        ("unscored:target", "execution:unscored", False),
        ("full", "execution:limit:cpu", True),
        ("unscored:full", "execution:unscored", True),
    ],
)
def test_a_candidate_that_breaks_is_repaired_as_a_new_program(how: str, reason: str, gate: bool) -> None:
    recorder, designer, _ = go(
        {(1, 0): "bad", (1, 1): "good"}, {"bad": flat(0.5), "good": flat(0.5)}, breaks={"bad": how}
    )
    assert reasons(recorder) == [reason]
    assert [e.program for e in recorder.events if isinstance(e, ProgramAdded)] == ["n00", "n01", "n01r1"]
    assert designer.feedback[1][0].source == source_of("bad")
    assert (last(recorder).program, last(recorder).retained) == ("n01r1", True)
    recorder, _, _ = go({(1, 0): "bad"}, {"bad": flat(0.5)}, breaks={"bad": how}, repair_attempts=0)
    assert (last(recorder).retained, last(recorder).gate) == (False, gate)
    failed = [e for e in recorder.events if isinstance(e, Evaluated) and e.failure]
    assert len(failed) == 1 and failed[0].scores == {}


@pytest.mark.parametrize("value", [1.0000001, -0.1, float("nan"), float("inf")])
def test_a_score_outside_the_unit_interval_is_no_score(value: float) -> None:
    recorder, _, _ = go({(1, 0): "odd"}, {"odd": flat(0.5) | {"t1": value}}, repair_attempts=0)
    assert reasons(recorder) == ["execution:unscored"]


def test_a_measured_candidate_is_tried_again_only_if_asked() -> None:
    scores = {"same": flat(0.25), "good": flat(0.5)}
    recorder, designer, _ = go({(1, 0): "same", (1, 1): "good"}, scores)
    assert reasons(recorder) == ["gate:target"] and not last(recorder).retained
    recorder, designer, _ = go({(1, 0): "same", (1, 1): "good"}, scores, measured_retries=1)
    assert reasons(recorder) == ["gate:target"] and last(recorder).retained
    shown = designer.feedback[1][0]
    assert "not above the parent's 0.2500" in shown.message and shown.accuracy["temporal"] == 0.25
    assert shown.valid is None


def test_only_target_tasks_are_measured_before_the_gate() -> None:
    recorder, _, laboratory = go({(1, 0): "same"}, {"same": flat(0.25)})
    target = next(e for e in recorder.events if isinstance(e, CasesSelected)).target
    assert target == "temporal"
    assert laboratory.evaluations[1:] == [("n01", "target", ("t0", "t1"))]


def test_a_designer_may_decline() -> None:
    class Tired(ScriptedDesigner):
        def revise(self, brief: ParentBrief, diagnosis: Diagnosis, feedback: Any) -> None:
            return None

    recorder = Recorder()
    laboratory = ScriptedLaboratory(TRAIN, VALID, {source_of("seed"): flat(0.25)})
    settings = build_settings({"T1": 1, "T2": 1, "T3": 0})
    evolve(laboratory, Tired(lambda t, n: None), source_of("seed"), settings, None, recorder)
    assert reasons(recorder) == ["declined", "declined"]
    assert not any(isinstance(e, Accepted) and e.iteration for e in recorder.events)


def test_without_eligible_cases_the_designer_is_not_asked_but_the_target_counts() -> None:
    recorder, designer, _ = go({}, {"seed": flat(0.8)}, T2=2)
    assert reasons(recorder) == ["no_cases", "no_cases"]
    assert designer.briefs == []
    targets = [e.target for e in recorder.events if isinstance(e, CasesSelected)]
    assert targets == ["temporal", "adversarial"]


def test_a_seed_that_is_invalid_or_breaks_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"seed program is invalid \(load_error\)"):
        go({}, {}, invalid={"seed": "load_error"})
    with pytest.raises(ProgramError, match=r"seed program failed \(limit:cpu\)"):
        go({}, {}, breaks={"seed": "full"})


def test_the_last_measured_candidate_of_an_iteration_is_the_history_program() -> None:
    scores = {"first": flat(0.5), "second": flat(0.75)}
    replies = {(1, 0): "first", (1, 1): "second", (1, 2): None, (2, 0): None}
    settings = {"T2": 1, "breaks": {"first": "full", "second": "full"}, "repair_attempts": 2}
    recorder, _, _ = go(replies, scores, **settings)
    archive = Archive(recorder.events)
    assert archive.history_scores("temporal")[:, :2].tolist() == [[0.75, 0.75]]
    assert archive.history_scores("adversarial").shape == (0, 3)


def test_feedback_is_that_of_the_iteration() -> None:
    replies = {(1, 0): None, (1, 1): None, (1, 2): None, (2, 0): "good"}
    _, designer, _ = go(replies, {"good": flat(0.5)}, T2=2)
    assert [len(seen) for seen in designer.feedback] == [0, 1, 2, 0]
    assert all(isinstance(a, Attempt) for seen in designer.feedback for a in seen)
