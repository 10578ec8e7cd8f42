"""Stage I, cold start: grow a working set from the seed without a quality gate (P section 3.1.1)."""

from __future__ import annotations

import numpy as np

from prismem_core.evolution.attempts import Measurement, propose
from prismem_core.evolution.briefs import parent_brief
from prismem_core.evolution.case_selection import eligible_cases, representative_cases
from prismem_core.evolution.context import Evolution
from prismem_core.runs.events import CasesSelected, Diagnosed, SpecialistsChanged
from prismem_core.tasks.capability import CAPABILITIES


def iterate(evolution: Evolution, iteration: int) -> None:
    """One cold-start iteration; the caller records its end."""
    archive = evolution.archive
    parent = archive.best_of(archive.working, archive.valid_ids)
    tasks = _representatives(evolution, parent)
    evolution.emit(CasesSelected(iteration, "cold_start", None, parent, tasks, {}))
    brief = parent_brief(evolution, iteration, "cold_start", parent, None, tasks)
    evolution.step(iteration, "diagnose")
    diagnosis = evolution.designer.diagnose(brief)
    evolution.emit(Diagnosed(iteration, parent, diagnosis.text, diagnosis.capability, diagnosis.details))

    def measure(program: str) -> Measurement:
        failure = evolution.evaluate_full(iteration, program)
        return Measurement.failure(failure, None) if failure else Measurement(True, None)

    outcome = propose(
        evolution,
        iteration,
        parent,
        lambda feedback: evolution.designer.revise(brief, diagnosis, feedback),
        measure,
        gated=False,
    )
    close(evolution, iteration)
    evolution.finish(iteration, "cold_start", parent=parent, program=outcome.program, retained=outcome.accepted)


def close(evolution: Evolution, iteration: int) -> None:
    """After the last cold-start iteration: the best of the working set becomes every specialist."""
    archive = evolution.archive
    if iteration == evolution.settings.T1:
        base = archive.best_of(archive.working, archive.valid_ids)
        evolution.emit(SpecialistsChanged(iteration, {str(c): base for c in CAPABILITIES}, base, [base]))


def _representatives(evolution: Evolution, parent: str) -> list[str]:
    archive = evolution.archive
    primary, _ = archive.labels()
    scores = archive.train_scores(parent)
    eligible = eligible_cases(np.ones(len(scores), dtype=bool), scores, evolution.settings.delta)
    shown = archive.times_shown(parent)
    return [archive.train[i].id for i in representative_cases(primary, eligible, shown, scores, len(CAPABILITIES))]
