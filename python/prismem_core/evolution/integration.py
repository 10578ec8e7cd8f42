"""Stage III, integration: bring the specialists' gains into the best program (P section 3.1.3)."""

from __future__ import annotations

from collections.abc import Sequence

from prismem_core.errors import RunError
from prismem_core.evolution import gates
from prismem_core.evolution.attempts import Measurement, attempt_view, propose
from prismem_core.evolution.briefs import integration_brief, specialist_order
from prismem_core.evolution.context import Evolution
from prismem_core.evolution.designer import Attempt, IntegrationBrief, IntegrationPlan
from prismem_core.evolution.recipes import Recipe
from prismem_core.runs.events import IntegrationPlanned


def find_pairs(evolution: Evolution, recipe: Recipe, base: str) -> dict[str, str]:
    """The paired task of each capability whose specialist beats the base on its training tasks."""
    archive = evolution.archive
    scores = {c: archive.program(p).scores for c, p in archive.specialists.items()}
    found = gates.pairings(scores, archive.program(base).scores, archive.train_by_capability())
    return {pairing.capability: recipe.choose_pair(evolution.settings, pairing) for pairing in found}


def iterate(evolution: Evolution, iteration: int, base: str, pairs: dict[str, str]) -> bool:
    """One round on the fixed base; True if its candidate is accepted, which ends the run."""
    archive = evolution.archive
    brief = integration_brief(evolution, iteration, base, pairs)
    planned = _planned(evolution, brief, pairs)
    plan = IntegrationPlan(planned.text, planned.details)

    def feedback() -> Sequence[Attempt]:
        records = [a for n, r in sorted(archive.iterations.items()) if n >= planned.iteration for a in r.attempts]
        return [attempt_view(evolution, record, tuple(pairs.values())) for record in records]

    def measure(program: str) -> Measurement:
        failure = evolution.evaluate_full(iteration, program)
        if failure:
            return Measurement.failure(failure, False)
        verdict = gates.integration_gate(
            archive.program(program).scores,
            archive.program(base).scores,
            archive.train_by_capability(),
            archive.overall_ids,
            evolution.settings.theta,
        )
        if verdict.accept:
            return Measurement(True, True, measures=verdict.to_json())
        reasons = []
        if not verdict.gain_ok:
            reasons.append(
                f"overall {verdict.overall_candidate:.4f} is not above the base's {verdict.overall_base:.4f}"
            )
        if not verdict.drop_ok:
            reasons.append(f"a capability drops by {verdict.max_drop:.1%}, allowed {evolution.settings.theta:.1%}")
        reason = "gate:drop" if verdict.gain_ok else "gate:gain"
        return Measurement(False, False, reason, "; ".join(reasons), verdict.to_json())

    outcome = propose(
        evolution,
        iteration,
        base,
        lambda attempts: evolution.designer.integrate(brief, plan, attempts),
        measure,
        feedback,
    )
    evolution.finish(
        iteration,
        "integration",
        parent=base,
        program=outcome.program,
        gate=outcome.gate,
        retained=outcome.accepted,
    )
    return outcome.accepted


def _planned(evolution: Evolution, brief: IntegrationBrief, pairs: dict[str, str]) -> IntegrationPlanned:
    """The stage's one plan, asked for in its first round and taken from the archive afterwards."""
    archive = evolution.archive
    if archive.plan is None:
        evolution.step(brief.iteration, "plan")
        plan = evolution.designer.plan_integration(brief)
        order = [c for c in specialist_order(archive, brief.base_id) if c in pairs]
        evolution.emit(IntegrationPlanned(brief.iteration, brief.base_id, pairs, order, plan.text, plan.details))
    if archive.plan is None:
        raise RunError("the archive did not take in the plan of the integration")
    return archive.plan
