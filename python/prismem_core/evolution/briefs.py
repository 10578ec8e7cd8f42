"""What a designer is told, gathered from the archive and the laboratory."""

from __future__ import annotations

from collections.abc import Sequence

from prismem_core.evolution.archive import Archive, AttemptRecord, IterationRecord
from prismem_core.evolution.context import Evolution
from prismem_core.evolution.designer import (
    IntegrationBrief,
    PairedCase,
    ParentBrief,
    RevisionRecord,
    SpecialistView,
    Stage,
)
from prismem_core.tasks.capability import CAPABILITIES, Capability


def parent_brief(
    evolution: Evolution, iteration: int, stage: Stage, parent: str, target: Capability | None, tasks: Sequence[str]
) -> ParentBrief:
    """The brief of stage I (with the diagnostics table) or stage II (without)."""
    archive, laboratory = evolution.archive, evolution.laboratory
    program = archive.program(parent)
    evolution.step(iteration, "cases")
    table = laboratory.diagnostics(parent, program.source) if stage == "cold_start" else None
    earlier = [r for n, r in sorted(archive.iterations.items()) if n < iteration]
    if stage == "cold_start":
        shown = [(r, a) for r in earlier for a in r.attempts if a.parent == parent and a.program is not None]
    else:
        shown = [(r, a) for r in earlier for a in r.attempts if r.selected and r.target == target and a.accepted]
    return ParentBrief(
        stage=stage,
        iteration=iteration,
        parent_id=parent,
        source=program.source,
        target=target,
        accuracy=archive.accuracy(parent),
        train=archive.mean(parent, archive.train_ids),
        table=table,
        lengths=table.lengths if table is not None else laboratory.lengths(parent, program.source),
        cases=tuple(laboratory.cases(parent, program.source, tasks)) if tasks else (),
        explored=tuple(_record(archive, r, a) for r, a in shown),
        tried=tried(archive, iteration),
        seed=evolution.settings.seed,
        interface=evolution.laboratory.interface,
    )


def tried(archive: Archive, iteration: int) -> tuple[RevisionRecord, ...]:
    """Every attempt of the iterations before this one."""
    earlier = [r for n, r in sorted(archive.iterations.items()) if n < iteration]
    return tuple(_record(archive, r, a) for r in earlier for a in r.attempts)


def _record(archive: Archive, iteration: IterationRecord, attempt: AttemptRecord) -> RevisionRecord:
    program = archive.program(attempt.program) if attempt.program is not None else None
    full = program is not None and program.full
    return RevisionRecord(
        iteration=iteration.iteration,
        parent_id=attempt.parent,
        program_id=attempt.program,
        target=Capability(iteration.target) if iteration.target else None,
        diagnosis=iteration.diagnosed.text if iteration.diagnosed else "",
        summary=attempt.summary,
        components=program.components if program else (),
        accuracy=archive.accuracy(program.id) if program else {},
        train=archive.mean(program.id, archive.train_ids) if program and full else None,
        valid=archive.mean(program.id, archive.valid_ids) if program and full else None,
        outcome="retained" if attempt.accepted else attempt.reason,
        details=attempt.details,
    )


def specialist_order(archive: Archive, base: str) -> list[str]:
    """Capabilities from the specialist nearest to the base to the farthest, ties canonical."""
    return sorted(map(str, CAPABILITIES), key=lambda c: archive.distance(base, archive.specialists[c]))


def integration_brief(evolution: Evolution, iteration: int, base: str, pairs: dict[str, str]) -> IntegrationBrief:
    """The brief of stage III; `pairs` maps a capability to its paired task."""
    archive, laboratory = evolution.archive, evolution.laboratory
    evolution.step(iteration, "cases")
    by_capability = archive.train_by_capability()
    program = archive.program(base)
    views = []
    for capability in specialist_order(archive, base):
        specialist = archive.program(archive.specialists[capability])
        tasks = by_capability[capability]
        views.append(
            SpecialistView(
                capability=Capability(capability),
                program_id=specialist.id,
                source=specialist.source,
                distance=archive.distance(base, specialist.id),
                gain=archive.mean(specialist.id, tasks) - archive.mean(base, tasks),
                accuracy=archive.accuracy(specialist.id),
                parent_id=specialist.parent,
                is_base=specialist.id == base,
            )
        )
    base_cases = laboratory.cases(base, program.source, tuple(pairs.values()))
    paired = []
    for (capability, task), base_case in zip(pairs.items(), base_cases, strict=True):
        specialist = archive.program(archive.specialists[capability])
        parent = archive.program(specialist.parent) if specialist.parent is not None else None
        paired.append(
            PairedCase(
                capability=Capability(capability),
                task_id=task,
                base=base_case,
                specialist=laboratory.cases(specialist.id, specialist.source, (task,))[0],
                specialist_parent=laboratory.cases(parent.id, parent.source, (task,))[0] if parent else None,
            )
        )
    return IntegrationBrief(
        iteration=iteration,
        base_id=base,
        source=program.source,
        accuracy=archive.accuracy(base),
        train=archive.mean(base, archive.train_ids),
        lengths=laboratory.lengths(base, program.source),
        specialists=tuple(views),
        pairs=tuple(paired),
        tried=tried(archive, iteration),
        seed=evolution.settings.seed,
        interface=evolution.laboratory.interface,
    )
