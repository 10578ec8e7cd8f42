"""Stage II, capability refinement: a gated revision of the target's specialist (P section 3.1.2)."""

from __future__ import annotations

from prismem_core.evolution import gates
from prismem_core.evolution.attempts import Measurement, Outcome, propose
from prismem_core.evolution.briefs import parent_brief
from prismem_core.evolution.context import Evolution
from prismem_core.evolution.recipes import Recipe, TargetChoice
from prismem_core.runs.events import CapabilitySelected, CasesSelected, Diagnosed, Rejected, SpecialistsChanged


def iterate(evolution: Evolution, recipe: Recipe, iteration: int) -> None:
    """One refinement iteration."""
    archive = evolution.archive
    evolution.step(iteration, "select")
    choice = recipe.choose_target(archive, evolution.settings, iteration)
    cases = recipe.choose_cases(archive, evolution.settings, choice, iteration)
    evolution.emit(CapabilitySelected(iteration, choice.target, choice.parent, choice.terms))
    evolution.emit(CasesSelected(iteration, "refinement", choice.target, choice.parent, cases.tasks, cases.weights))
    if cases.tasks:
        outcome = _refine(evolution, iteration, choice, cases.tasks)
    else:
        message = f"no training task of the parent scores below {evolution.settings.delta}"
        evolution.emit(Rejected(iteration, 0, None, "no_cases", message))
        outcome = Outcome(gate=False)
    if outcome.accepted:
        specialists, best = archive.choose_specialists()
        if (specialists, best) != (archive.specialists, archive.best):
            evolution.emit(SpecialistsChanged(iteration, specialists, best, list(archive.retained)))
    evolution.finish(
        iteration,
        "refinement",
        target=choice.target,
        parent=choice.parent,
        program=outcome.program,
        gate=outcome.gate,
        retained=outcome.accepted,
    )


def _refine(evolution: Evolution, iteration: int, choice: TargetChoice, tasks: tuple[str, ...]) -> Outcome:
    archive = evolution.archive
    brief = parent_brief(evolution, iteration, "refinement", choice.parent, choice.target, tasks)
    evolution.step(iteration, "diagnose")
    diagnosis = evolution.designer.diagnose(brief)
    evolution.emit(Diagnosed(iteration, choice.parent, diagnosis.text, diagnosis.capability, diagnosis.details))
    gate_tasks = archive.train_by_capability()[choice.target] if choice.target else archive.train_ids
    gate_name = "target" if choice.target else "train"

    def measure(program: str) -> Measurement:
        failure = evolution.evaluate(iteration, program, gate_tasks, "target")
        if failure:
            return Measurement.failure(failure, False)
        candidate, parent = archive.program(program).scores, archive.program(choice.parent).scores
        before, after = (gates.mean_score(scores, gate_tasks) for scores in (parent, candidate))
        measures = {"gate": gate_name, "candidate": after, "parent": before}
        if not gates.improves(candidate, parent, gate_tasks):
            where = f"the training tasks of {choice.target}" if choice.target else "the training tasks"
            message = f"scored {after:.4f} on {where}, not above the parent's {before:.4f}"
            return Measurement(False, False, f"gate:{gate_name}", message, measures)
        failure = evolution.evaluate_full(iteration, program)
        return Measurement.failure(failure, True) if failure else Measurement(True, True, measures=measures)

    return propose(
        evolution,
        iteration,
        choice.parent,
        lambda feedback: evolution.designer.revise(brief, diagnosis, feedback),
        measure,
    )
