"""Strategies as choices of the same small parts: target, parent, cases, pairs, ending (P Table 4, section C.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from prismem_core.evolution import gates
from prismem_core.evolution.archive import Archive
from prismem_core.evolution.capability_selection import CapabilityChoice, select_capability
from prismem_core.evolution.case_selection import (
    case_weights,
    combination_counts,
    eligible_cases,
    select_cases,
    weakest_cases,
)
from prismem_core.evolution.gates import Pairing
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
    """A strategy: how stage II chooses, which pairs stage III shows, and what the run ends with.

    `choose_pair` picks the paired case of a capability whose specialist beats the base. `ending` is `integrate` (stage
    III), `best` (the best program as it is) or `route` (every question goes to the specialist of its capability).
    """

    name: str
    choose_target: Callable[[Archive, EvolutionSettings, int], TargetChoice]
    choose_cases: Callable[[Archive, EvolutionSettings, TargetChoice, int], CaseChoice]
    choose_pair: Callable[[EvolutionSettings, Pairing], str]
    ending: Literal["integrate", "best", "route"]

    @property
    def integrates(self) -> bool:
        """Whether stage III follows."""
        return self.ending == "integrate"

    def refinements(self, settings: EvolutionSettings) -> int:
        """Iterations of stage II; without integration its rounds are spent here too, if the settings say so."""
        extra = settings.T3 if settings.reallocate_budget and not self.integrates else 0
        return settings.T2 + extra


def most_urgent_capability(archive: Archive, settings: EvolutionSettings, iteration: int) -> TargetChoice:
    """Eq. 1-6 with the present specialists; the parent is the specialist of the target."""
    choice = _priorities(archive)
    return TargetChoice(choice.capability, archive.specialists[choice.capability], choice.terms)


def next_capability(archive: Archive, settings: EvolutionSettings, iteration: int) -> TargetChoice:
    """The capabilities that have training tasks in turn, canonical order, the first of them at T1 + 1.

    The terms of Eq. 1-6 are computed all the same, for the record.
    """
    tasks = archive.train_by_capability()
    present = [c for c in CAPABILITIES if tasks[c]]
    target = present[(iteration - settings.T1 - 1) % len(present)]
    return TargetChoice(target, archive.specialists[target], _priorities(archive).terms)


def no_capability(archive: Archive, settings: EvolutionSettings, iteration: int) -> TargetChoice:
    """No target; the parent is the best program by the overall score."""
    return TargetChoice(None, archive.best_of(archive.retained, archive.overall_ids), {})


def weighted_cases(archive: Archive, settings: EvolutionSettings, choice: TargetChoice, iteration: int) -> CaseChoice:
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


def lowest_cases(archive: Archive, settings: EvolutionSettings, choice: TargetChoice, iteration: int) -> CaseChoice:
    """The lowest training scores below delta over all capabilities."""
    current = archive.train_scores(choice.parent)
    eligible = eligible_cases(np.ones(len(current), dtype=bool), current, settings.delta)
    return CaseChoice(tuple(archive.train_ids[i] for i in weakest_cases(eligible, current, settings.K)), {})


def drawn_cases(archive: Archive, settings: EvolutionSettings, choice: TargetChoice, iteration: int) -> CaseChoice:
    """K training tasks of any capability and score, drawn uniformly without replacement."""
    rng = np.random.default_rng([settings.seed, iteration, _CASES])
    ids = archive.train_ids
    drawn = rng.choice(len(ids), size=min(settings.K, len(ids)), replace=False)
    return CaseChoice(tuple(ids[i] for i in drawn), {})


def furthest_pair(settings: EvolutionSettings, pairing: Pairing) -> str:
    """The training task where the specialist is furthest above the base; the first of equals."""
    return pairing.tasks[gates.first_best(pairing.gains)]


def drawn_pair(settings: EvolutionSettings, pairing: Pairing) -> str:
    """A training task of the capability, drawn uniformly."""
    rng = np.random.default_rng([settings.seed, CAPABILITIES.index(Capability(pairing.capability)), _PAIRS])
    return pairing.tasks[int(rng.integers(len(pairing.tasks)))]


def _priorities(archive: Archive) -> CapabilityChoice:
    primary, secondary = archive.labels()
    scores = np.array([archive.train_scores(archive.specialists[c]) for c in CAPABILITIES])
    return select_capability(primary, secondary, scores, archive.target_counts())


# Streams of chance: two uses of one seed and iteration never share their numbers.
_CASES = 1
_PAIRS = 2

PRISMEM = Recipe("prismem", most_urgent_capability, weighted_cases, furthest_pair, "integrate")
HOLISTIC = Recipe("holistic", no_capability, lowest_cases, furthest_pair, "best")
ROUND_ROBIN = Recipe("round-robin", next_capability, weighted_cases, furthest_pair, "integrate")
RANDOM_CASE = Recipe("random-case", most_urgent_capability, drawn_cases, drawn_pair, "integrate")
NO_INTEGRATION = Recipe("no-integration", most_urgent_capability, weighted_cases, furthest_pair, "best")
ROUTER = Recipe("router", most_urgent_capability, weighted_cases, furthest_pair, "route")
RECIPES = {recipe.name: recipe for recipe in (PRISMEM, HOLISTIC, ROUND_ROBIN, RANDOM_CASE, NO_INTEGRATION, ROUTER)}
