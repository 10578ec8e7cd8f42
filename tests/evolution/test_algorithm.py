"""Whole runs of Algorithm 1 against the golden traces."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_laboratory import Recorder, ScriptedDesigner, ScriptedLaboratory, golden_tasks, source_of

from prismem_core.evolution import integration
from prismem_core.evolution.archive import IterationRecord
from prismem_core.evolution.context import Evolution
from prismem_core.evolution.engine import EvolutionResult, evolve
from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.evolution.recipes import RECIPES
from prismem_core.evolution.settings import EvolutionSettings, build_settings
from prismem_core.runs.events import Accepted, Event, IterationFinished, Rejected, SpecialistsChanged

CLOSE = 1e-9


def run_vector(vector: dict[str, Any]) -> tuple[EvolutionResult, list[Event], ScriptedLaboratory, EvolutionSettings]:
    """Evolve along the vector's script; null proposals become diffs that do not apply."""
    proposals = {int(t): p for t, p in vector["proposals"].items()}
    scores = {source_of(0): vector["seed_scores"]}
    scores |= {source_of(t): p["scores"] for t, p in proposals.items() if p}
    breaks = {source_of(t): "full" for t, p in proposals.items() if p and not p["full_eval_ok"]}
    train, valid = golden_tasks(vector["train_tasks"]), golden_tasks(vector["valid_tasks"])
    laboratory = ScriptedLaboratory(train, valid, scores, breaks)
    designer = ScriptedDesigner(lambda t, _: source_of(t) if proposals.get(t) else None)
    settings = build_settings({**vector["config"], "strategy": vector["strategy"], "repair_attempts": 0})
    recorder = Recorder()
    result = evolve(laboratory, designer, source_of(0), settings, None, recorder)
    return result, recorder.events, laboratory, settings


def number(program: str | None) -> int | None:
    return None if program is None else int(program[1:])


def trace_row(record: IterationRecord, specialists: dict[str, str], best: str) -> dict[str, Any]:
    """An iteration in the form of the vectors."""
    finished = record.finished
    assert finished is not None
    row: dict[str, Any] = {"t": record.iteration, "parent": number(finished.parent), "retained": finished.retained}
    if finished.stage == "cold_start":
        return row | {"stage": 1}
    assert record.selected is not None and record.cases is not None
    return row | {
        "stage": 2,
        "target": finished.target,
        "rho": record.selected.terms.get("rho"),
        "cases": list(record.cases.tasks),
        "weights": record.cases.weights,
        "gate": finished.gate,
        "specialists": {c: number(p) for c, p in finished.specialists.items()},
        "best": number(finished.best),
    }


def same(actual: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return actual.keys() == expected.keys() and all(same(actual[k], v) for k, v in expected.items())
    if isinstance(expected, float):
        return abs(actual - expected) <= CLOSE
    return bool(actual == expected and isinstance(actual, bool) == isinstance(expected, bool))


def test_trace_is_that_of_the_vector(algorithm_vector: dict[str, Any]) -> None:
    if algorithm_vector["strategy"] not in RECIPES:
        pytest.skip(f"strategy {algorithm_vector['strategy']!r} is not built; available: {', '.join(RECIPES)}")
    result, events, laboratory, settings = run_vector(algorithm_vector)
    expect, archive = algorithm_vector["expect"], result.archive
    rows = [archive.iterations[t] for t in range(1, archive.next_iteration)]
    rows = [row for row in rows if row.finished is not None and row.finished.stage != "integration"]
    assert len(rows) == len(expect["trace"])
    for record, expected in zip(rows, expect["trace"], strict=True):
        actual = trace_row(record, archive.specialists, archive.best or "")
        for key, value in expected.items():
            assert same(actual[key], value), (key, actual[key], value)

    base = next(event for event in events if isinstance(event, SpecialistsChanged))
    assert number(base.best) == expect["cold_start_base"]
    assert number(result.final) == expect["final"]
    if "integration" in expect and expect["integration"] is not None:
        evolution = Evolution(laboratory, None, settings, archive, None, SilentObserver(), 0)  # type: ignore[arg-type]
        assert number(result.base) == expect["integration"]["base"]
        assert (
            integration.find_pairs(evolution, RECIPES[algorithm_vector["strategy"]], result.base)
            == expect["integration"]["pairs"]
        )
        assert (archive.plan is not None) == expect["integration"]["planned"]
        rounds = [e for e in events if isinstance(e, IterationFinished) and e.stage == "integration"]
        assert len(rounds) == len(expect["integration"]["rounds"])
        for finished, expected in zip(rounds, expect["integration"]["rounds"], strict=True):
            check_round(finished, expected, events)


def check_round(finished: IterationFinished, expected: dict[str, Any], events: list[Event]) -> None:
    assert finished.iteration == expected["t"]
    decisive = [e for e in events if e.iteration == finished.iteration and isinstance(e, Accepted | Rejected)][-1]
    actual = {"t": finished.iteration, "accept": finished.retained, "valid_program": finished.valid is not None}
    actual |= {key: decisive.measures.get(key) for key in ("max_drop", "gain_ok", "drop_ok")}
    for key, value in expected.items():
        assert same(actual[key], value), (key, actual[key], value)


def test_only_what_the_algorithm_asks_for_is_evaluated(algorithm_vector: dict[str, Any]) -> None:
    if algorithm_vector["strategy"] != "prismem":
        pytest.skip("stated for the strategy of the paper")
    result, _, laboratory, _ = run_vector(algorithm_vector)
    archive = result.archive
    suite = archive.train_ids + archive.valid_ids
    expected: list[tuple[str, str, tuple[str, ...]]] = [("n00", "full", suite)]
    for t in range(1, archive.next_iteration):
        record = archive.iterations[t]
        assert record.finished is not None
        for attempt in record.attempts:
            if attempt.program is None:
                continue
            if record.finished.stage == "refinement":
                assert record.target is not None
                expected.append((attempt.program, "target", archive.train_by_capability()[record.target]))
            if record.finished.stage != "refinement" or record.finished.gate:
                expected.append((attempt.program, "full", suite))
    assert laboratory.evaluations == expected
