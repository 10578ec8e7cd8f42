"""The real engine on a simulated world: who measures programs there, who designs them, and what a run came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prismem_core.evaluation.cases import Case
from prismem_core.evaluation.diagnostics_table import DiagnosticsTable, Lengths
from prismem_core.evolution.designer import (
    Attempt,
    Diagnosis,
    IntegrationBrief,
    IntegrationPlan,
    ParentBrief,
    Revision,
)
from prismem_core.evolution.engine import EvolutionResult, evolve
from prismem_core.evolution.laboratory import SetEvaluation, ValidationOutcome
from prismem_core.evolution.settings import EvolutionSettings
from prismem_core.program.interface import Interface
from prismem_core.tasks.capability import CAPABILITIES, Capability
from prismem_core.tasks.task import Task

from .world import SEED_SKILL, Floats, Rates, World, readable, skills_of, source_of

ROOT = "root"
"""Where a case's extras name the capability that decides its score."""


class SimulatedLaboratory:
    """Measures points in a world; a program is valid, and measuring it again gives the same."""

    interface: Interface = "paper"

    def __init__(self, world: World) -> None:
        self.world = world
        self._scores: dict[str, dict[str, float]] = {}

    @property
    def train(self) -> Sequence[Task]:
        return self.world.train

    @property
    def valid(self) -> Sequence[Task]:
        return self.world.valid

    def scores(self, source: str) -> Mapping[str, float]:
        """Observed scores of all tasks by id."""
        if source not in self._scores:
            self._scores[source] = dict(zip(self.world.position, self.world.observed(source).tolist(), strict=True))
        return self._scores[source]

    def validate(self, source: str, parent: str | None) -> ValidationOutcome:
        return ValidationOutcome(True)

    def evaluate(self, program_id: str, source: str, task_ids: Sequence[str], purpose: str) -> SetEvaluation:
        scores = self.scores(source)
        return SetEvaluation({task: scores[task] for task in task_ids})

    def cases(self, program_id: str, source: str, task_ids: Sequence[str]) -> list[Case]:
        scores, roots = self.scores(source), self.world.labelled.roots(skills_of(source))
        found = []
        for task_id in task_ids:
            position = self.world.position[task_id]
            task = self.world.train[position]
            extras = {ROOT: str(CAPABILITIES[roots[position]])}
            score = scores[task_id]
            labels = (task.primary, task.secondary)
            found.append(Case(task_id, *labels, task.question, "", "", score, None, {}, "", (), extras))
        return found

    def diagnostics(self, program_id: str, source: str) -> DiagnosticsTable:
        return DiagnosticsTable({}, Lengths(0.0, 0.0))

    def lengths(self, program_id: str, source: str) -> Lengths:
        return Lengths(0.0, 0.0)


class SimulatedDesigner:
    """Reads roots from cases with errors, and moves the parent's point by the rates of the model."""

    identity = "simulated"

    def __init__(self, rates: Rates, delta: float) -> None:
        self.rates, self.delta = rates, delta

    def diagnose(self, brief: ParentBrief) -> Diagnosis:
        rng = brief.rng().spawn(1)[0]
        telling = [c for c in brief.cases if c.score < self.delta and brief.target in (None, c.primary)]
        votes = Counter(self._read(Capability(case.extras[ROOT]), rng) for case in telling)
        weakest = sorted(brief.accuracy, key=lambda c: (brief.accuracy[c], CAPABILITIES.index(c)))
        named = min(votes, key=lambda c: (-votes[c], weakest.index(c))) if votes else None
        root = named or brief.target or weakest[0]
        return Diagnosis(f"{root} fails", root)

    def _read(self, root: Capability, rng: np.random.Generator) -> Capability:
        wrong, which = rng.random() < self.rates.misreading, int(rng.integers(len(CAPABILITIES) - 1))
        return [c for c in CAPABILITIES if c != root][which] if wrong else root

    def revise(self, brief: ParentBrief, diagnosis: Diagnosis, feedback: Sequence[Attempt]) -> Revision:
        if diagnosis.capability is None:
            raise ValueError("a simulated diagnosis names a capability")
        rng = brief.rng().spawn(2 + len(feedback))[-1]
        skills = skills_of(brief.source)
        moved = self.moved(skills, CAPABILITIES.index(diagnosis.capability), rng)
        return Revision(f"revision around {diagnosis.capability}", _patch(brief.source, moved))

    def moved(self, skills: Floats, root: int, rng: np.random.Generator) -> Floats:
        """The skills after one revision; every draw is made whatever comes of it, so that luck is shared; (C,)."""
        rates = self.rates
        succeeds, trades = rng.random() < rates.success, rng.random() < rates.tradeoffs
        size = rng.uniform(rates.smallest, rates.largest)
        losses = rng.uniform(rates.smallest, rates.largest, size=2)
        hurt_count = 1 + int(rng.random() < rates.two_hurt)
        order = [int(c) for c in rng.permutation(len(CAPABILITIES))]
        general = rng.random() < rates.general
        gains, harms = size * (1.0 - skills) / (1.0 - SEED_SKILL), -np.minimum(size, skills / 2)
        moved = skills.copy()
        if not trades and general:
            return readable(moved + rates.plain_share * (gains if succeeds else harms))
        if not trades:
            aim = root if succeeds else order[0]
            moved[aim] += (gains if succeeds else harms)[aim]
            return readable(moved)
        aim = root if succeeds else next(c for c in order if c != root)
        moved[aim] += gains[aim]
        hurt = [c for c in reversed(order) if c != aim][:hurt_count]
        for capability, loss in zip(hurt, losses, strict=False):
            moved[capability] -= min(loss, skills[capability] / 2)
        return readable(moved)

    def plan_integration(self, brief: IntegrationBrief) -> IntegrationPlan:
        return IntegrationPlan("merge " + ", ".join(str(pair.capability) for pair in brief.pairs))

    def integrate(self, brief: IntegrationBrief, plan: IntegrationPlan, attempts: Sequence[Attempt]) -> Revision:
        rng, base = brief.rng(), skills_of(brief.source)
        sources = {view.capability: view.source for view in brief.specialists}
        gain, loss = np.zeros(len(base)), np.zeros(len(base))
        for pair in brief.pairs:
            fidelity = rng.uniform(self.rates.least_fidelity, 1.0)
            if pair.specialist.score <= pair.base.score:
                fidelity *= self.rates.blind_factor
            difference = skills_of(sources[pair.capability]) - base
            gain = np.maximum(gain, fidelity * difference)
            loss = np.maximum(loss, -self.rates.interference * difference)
        merged = readable(base + gain - loss)
        return Revision("the specialists' gains in the base", _patch(brief.source, merged))


def _patch(source: str, skills: Floats) -> str:
    return f"@@\n-{source}+{source_of(skills)}"


@dataclass(frozen=True)
class Budget:
    """Iterations of the three stages."""

    T1: int = 5
    T2: int = 12
    T3: int = 3


@dataclass(frozen=True)
class Found:
    """What a run came to, in expected scores over the fresh population.

    `base` is the best program before integration. `valid` is the final program's observed validation mean. `revisions`
    and `retained` count programs of stages I and II.
    """

    start: float
    final: float
    base: float
    valid: float
    iterations: int
    integrated: bool
    revisions: int
    retained: int


def search(world: World, strategy: str, budget: Budget) -> EvolutionResult:
    """One run of the real engine in a world; the world's seed is the engine's."""
    settings = EvolutionSettings.model_validate(
        {"strategy": strategy, "seed": world.seed, "T1": budget.T1, "T2": budget.T2, "T3": budget.T3}
    )
    designer = SimulatedDesigner(world.rates, settings.delta)
    return evolve(SimulatedLaboratory(world), designer, source_of(world.seed_skills), settings)


def found(world: World, result: EvolutionResult) -> Found:
    """The result of a run in the world where it ran; a router answers each question by its primary's program."""
    archive = result.archive
    skills = {name: skills_of(program.source) for name, program in archive.programs.items()}
    final = world.worth(skills[result.final])
    if result.routes:
        final = world.routed_worth([skills[result.routes[str(c)]] for c in CAPABILITIES])
    records = [r.finished for n, r in archive.iterations.items() if n > 0 and r.finished is not None]
    designed = [r for r in records if r.stage != "integration" and r.program is not None]
    return Found(
        start=world.worth(world.seed_skills),
        final=final,
        base=world.worth(skills[result.base]),
        valid=archive.mean(result.final, archive.valid_ids),
        iterations=len(records),
        integrated=result.final != result.base,
        revisions=len(designed),
        retained=sum(r.retained for r in designed),
    )
