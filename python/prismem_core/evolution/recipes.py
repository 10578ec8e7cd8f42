"""Strategies as choices of the same small parts: what to target, from which parent, with which cases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from prismem_core.evolution.archive import Archive
from prismem_core.evolution.capability_selection import select_capability
from prismem_core.evolution.case_selection import (
    case_weights,
    combination_counts,
    eligible_cases,
    select_cases,
    weakest_cases,
)
from prismem_core.evolution.settings import EvolutionSettings
from prismem_core.tasks.capability import CAPABILITIES, Capability


@dataclass(frozen=True)
class TargetChoice:
    """A stage II target with the parent to refine and the terms that led there."""

    target: Capability | None
    parent: str
    terms: dict[str, Any]


@dataclass(frozen=True)
class CaseChoice:
    """Case ids in the order they are shown and the weights of all eligible ones."""

    tasks: tuple[str, ...]
    weights: dict[str, float]


@dataclass(frozen=True)
class Recipe:
    """A strategy: how stage II chooses and whether stage III follows."""

    name: str
    choose_target: Callable[[Archive], TargetChoice]
    choose_cases: Callable[[Archive, EvolutionSettings, TargetChoice], CaseChoice]
    integrates: bool

    def refinements(self, settings: EvolutionSettings) -> int:
        """Iterations of stage II; without integration its rounds are spent here too, if the settings say so."""
        extra = settings.T3 if settings.reallocate_budget and not self.integrates else 0
        return settings.T2 + extra


def most_urgent_capability(archive: Archive) -> TargetChoice:
    """Eq. 1-6 with the present specialists; the parent is the specialist of the target."""
    primary, secondary = archive.labels()
    scores = np.array([archive.train_scores(archive.specialists[c]) for c in CAPABILITIES])
    choice = select_capability(primary, secondary, scores, archive.target_counts())
    return TargetChoice(choice.capability, archive.specialists[choice.capability], choice.terms)


def no_capability(archive: Archive) -> TargetChoice:
    """No target; the parent is the best program by the overall score."""
    return TargetChoice(None, archive.best_of(archive.retained, archive.overall_ids), {})


def weighted_cases(archive: Archive, settings: EvolutionSettings, choice: TargetChoice) -> CaseChoice:
    """Eq. 7 over the target's training tasks."""
    if choice.target is None:
        raise ValueError("cases of Eq. 7 need a target capability")
    primary, secondary = archive.labels()
    current = archive.train_scores(choice.parent)
    eligible = eligible_cases(primary == CAPABILITIES.index(choice.target), current, settings.delta)
    counts = combination_counts(secondary, archive.refinement_batches())
    weights = case_weights(archive.history_scores(choice.target), *counts)
    chosen = select_cases(eligible, weights, current, settings.K)
    ids = archive.train_ids
    return CaseChoice(tuple(ids[i] for i in chosen), {ids[i]: float(weights[i]) for i in np.flatnonzero(eligible)})


def lowest_cases(archive: Archive, settings: EvolutionSettings, choice: TargetChoice) -> CaseChoice:
    """The lowest training scores below delta over all capabilities."""
    current = archive.train_scores(choice.parent)
    eligible = eligible_cases(np.ones(len(current), dtype=bool), current, settings.delta)
    return CaseChoice(tuple(archive.train_ids[i] for i in weakest_cases(eligible, current, settings.K)), {})


PRISMEM = Recipe("prismem", most_urgent_capability, weighted_cases, integrates=True)
HOLISTIC = Recipe("holistic", no_capability, lowest_cases, integrates=False)
RECIPES = {recipe.name: recipe for recipe in (PRISMEM, HOLISTIC)}
