"""Specialists, gates and paired cases on hand-made cases and on the golden vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from scripted_laboratory import golden_tasks

from prismem_core.evolution import gates
from prismem_core.evolution.recipes import furthest_pair
from prismem_core.evolution.settings import EvolutionSettings
from prismem_core.tasks.capability import CAPABILITIES
from prismem_core.tasks.task import Task


def by_capability(tasks: Sequence[Task]) -> dict[str, list[str]]:
    return {str(c): [t.id for t in tasks if t.primary == c] for c in CAPABILITIES}


def paired(scores: Any, base: Any, groups: Any) -> dict[str, str]:
    found = gates.pairings(scores, base, groups)
    return {pairing.capability: furthest_pair(EvolutionSettings(), pairing) for pairing in found}


def test_rounding_noise_is_no_gain() -> None:
    assert not gates.improves({"a": 0.1 + 0.2}, {"a": 0.3}, ["a"])
    assert gates.improves({"a": 0.3 + 2e-9}, {"a": 0.3}, ["a"])


def test_nothing_improves_on_no_tasks() -> None:
    assert not gates.improves({"a": 1.0}, {"a": 0.0}, [])


def test_first_best_wants_a_strictly_greater_value() -> None:
    assert gates.first_best([0.1, 0.3, 0.1 + 0.2]) == 1
    with pytest.raises(ValueError, match="no program"):
        gates.first_best([])


def test_a_drop_from_zero_is_none() -> None:
    assert gates.drop({"a": 0.0}, {"a": 0.0}, ["a"]) == 0.0
    assert gates.drop({"a": 0.5}, {"a": 1.0}, ["a"]) == 0.5
    assert gates.drop({"a": 1.0}, {"a": 0.5}, ["a"]) == -1.0


def test_integration_without_training_tasks_has_no_drop() -> None:
    verdict = gates.integration_gate({"v": 1.0}, {"v": 0.5}, {"temporal": []}, ["v"], 0.0)
    assert verdict.accept and verdict.max_drop == 0.0


def test_paired_case_is_the_largest_signed_gap() -> None:
    pairs = paired(
        {"x": {"a": 0.0, "b": 0.9, "c": 0.9}, "y": {"d": 0.1}},
        {"a": 1.0, "b": 0.2, "c": 0.2, "d": 0.1},
        {"x": ["a", "b", "c"], "y": ["d"]},
    )
    assert pairs == {"x": "b"}


def test_specialists_vector(specialists_vector: dict[str, Any]) -> None:
    tasks = golden_tasks(specialists_vector["valid_tasks"])
    programs = specialists_vector["programs"]
    chosen, best = gates.specialists([p["scores"] for p in programs], by_capability(tasks), [t.id for t in tasks])
    assert {c: programs[i]["id"] for c, i in chosen.items()} == specialists_vector["expect"]["specialists"]
    assert programs[best]["id"] == specialists_vector["expect"]["best"]


def test_target_gate_vector(target_gate_vector: dict[str, Any]) -> None:
    tasks = by_capability(golden_tasks(target_gate_vector["tasks"]))[target_gate_vector["target"]]
    passed = gates.improves(target_gate_vector["candidate"], target_gate_vector["parent"], tasks)
    assert passed is target_gate_vector["expect"]


def test_integration_vector(integration_vector: dict[str, Any]) -> None:
    train, valid = golden_tasks(integration_vector["train_tasks"]), golden_tasks(integration_vector["valid_tasks"])
    verdict = gates.integration_gate(
        integration_vector["candidate"],
        integration_vector["base"],
        by_capability(train),
        [t.id for t in valid],
        integration_vector["theta"],
    )
    expect = integration_vector["expect"]
    assert verdict.overall_candidate == pytest.approx(expect["valid_candidate"], abs=1e-9)
    assert verdict.overall_base == pytest.approx(expect["valid_base"], abs=1e-9)
    assert verdict.max_drop == pytest.approx(expect["max_drop"], abs=1e-9)
    assert (verdict.gain_ok, verdict.drop_ok, verdict.accept) == (
        expect["gain_ok"],
        expect["drop_ok"],
        expect["accept"],
    )


def test_paired_vector(paired_vector: dict[str, Any]) -> None:
    groups = by_capability(golden_tasks(paired_vector["train_tasks"]))
    pairs = paired(paired_vector["specialist_scores"], paired_vector["base"], groups)
    assert pairs == paired_vector["expect"]
