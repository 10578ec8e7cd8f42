"""Stage III of the catalogue designer: edits that specialists owe their gains to, and unions of them on the base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prismem_core.evolution.catalog.choice import effect_on
from prismem_core.evolution.catalog.detect import detect
from prismem_core.evolution.catalog.diffs import draft
from prismem_core.evolution.catalog.edits import BY_NAME
from prismem_core.evolution.designer import Attempt, IntegrationBrief, RevisionRecord
from prismem_core.tasks.capability import Capability

DEAREST = 0.1  # relative loss of a capability beyond which an integration is refused (the default theta)


@dataclass(frozen=True)
class Contribution:
    """An edit of a specialist's lineage that the base's lineage lacks, and what measuring showed when it was made.

    `valid` is the change of the overall score, None where one of the two programs has none.
    """

    edit: str
    capability: Capability | None
    gain: float
    valid: float | None
    on: Mapping[Capability, float]


def lineage(program_id: str, tried: Sequence[RevisionRecord]) -> list[RevisionRecord]:
    """The revisions that made a program, the oldest first; empty for the seed and for what no designer of ours made."""
    made = {record.program_id: record for record in tried if record.program_id is not None}
    path: list[RevisionRecord] = []
    while program_id in made and len(path) <= len(made):
        path.append(made[program_id])
        program_id = made[program_id].parent_id
    return path[::-1]


def contributions(brief: IntegrationBrief) -> list[Contribution]:
    """The edits that specialists have over the base, from the nearest specialist to the farthest, each edit once."""
    found: dict[str, Contribution] = {}
    for view in brief.specialists:
        if not view.is_base and view.gain > 0.0:
            for record in lineage(view.program_id, brief.tried):
                item = _contribution(brief, record, view.capability, view.gain)
                if item is not None:
                    found.setdefault(item.edit, item)
    return list(found.values())


def spare_contributions(brief: IntegrationBrief, found: Sequence[Contribution]) -> list[Contribution]:
    """Edits outside the specialists' lineages that raised the overall score where they were made, best first.

    They are for rounds that remain when every union of the specialists' edits was rejected.
    """
    names = {item.edit for item in found}
    spare: dict[str, Contribution] = {}
    for record in brief.tried:
        item = _contribution(brief, record, record.target, 0.0)
        if item is not None and item.edit not in names and (item.valid or 0.0) > 0.0:
            spare.setdefault(item.edit, item)
    return sorted(spare.values(), key=_by_valid)


def _contribution(
    brief: IntegrationBrief, record: RevisionRecord, capability: Capability | None, gain: float
) -> Contribution | None:
    """The record's edit with its measurements, None where the base has it or it is none of the catalogue's."""
    edit = BY_NAME.get(str(record.details.get("edit", "")))
    if edit is None or edit.applied(detect(brief.source)) is None:
        return None
    before = next((r.valid for r in brief.tried if r.program_id == record.parent_id), None)
    change = None if record.valid is None or before is None else record.valid - before
    measured = {c: effect_on(record, c) for c in Capability}
    on = {c: value for c, value in measured.items() if value is not None}
    return Contribution(edit.name, capability, gain, change, on)


def _too_dear(item: Contribution, accuracy: Mapping[Capability, float]) -> bool:
    return any(-change > DEAREST * accuracy.get(c, 0.0) for c, change in item.on.items())


def _by_valid(item: Contribution) -> float:
    return -round(item.valid or 0.0, 9)


def merged(source: str, names: Sequence[str]) -> tuple[str, list[str]]:
    """The source after the edits in order, and the edits that fitted."""
    used: list[str] = []
    for name in names:
        made = draft(source, BY_NAME[name])
        if made is not None and made.source != source:
            source, used = made.source, [*used, name]
    return source, used


def narrowed(
    chosen: Sequence[Contribution], attempt: Attempt, accuracy: Mapping[Capability, float]
) -> list[Contribution]:
    """What is left of a selection after it was rejected; always fewer.

    Where a capability fell, the edit that had hurt it most goes, with every edit that had lowered the overall score.
    Where none fell, or nothing was measured, the edit with the smallest overall change goes (then that of the
    smallest gain).
    """
    if not chosen:
        return []
    falls = {c: accuracy.get(c, 0.0) - value for c, value in attempt.accuracy.items()}
    worst = max(falls, key=lambda c: (round(falls[c], 9), -list(Capability).index(c)), default=None)
    leaving = {item.edit for item in chosen if item.valid is not None and item.valid < 0.0}
    if worst is not None and falls[worst] > 0.0:
        blamed = min(chosen, key=lambda item: round(item.on.get(worst, 0.0), 9))
        if blamed.on.get(worst, 0.0) < 0.0:
            leaving.add(blamed.edit)
    if not leaving:
        leaving.add(min(chosen, key=lambda item: (round(item.valid or 0.0, 9), round(item.gain, 9))).edit)
    return [item for item in chosen if item.edit not in leaving]


def selection(
    brief: IntegrationBrief, found: Sequence[Contribution], attempts: Sequence[Attempt]
) -> tuple[list[str], str] | None:
    """The edits of the next round and the program they make; None when no new program is left to try.

    The first round takes all contributions but those that cost a capability more than an integration may (all, where
    none is left), each rejection narrows them. Then come single contributions, the one of the largest overall change
    first, then what raised the overall score elsewhere, all together and one by one; what is known to have lowered the
    overall score is not tried alone.
    """
    seen = {brief.source} | {attempt.source for attempt in attempts if attempt.source is not None}
    chosen = [item for item in found if not _too_dear(item, brief.accuracy)] or list(found)
    for attempt in attempts:
        chosen = narrowed(chosen, attempt, brief.accuracy)
    rounds = [chosen]
    while rounds[-1]:
        rounds.append(sorted(rounds[-1], key=_by_valid)[:-1])
    rounds += [[item] for item in sorted(found, key=_by_valid) if item.valid is None or item.valid > 0.0]
    spare = spare_contributions(brief, found)
    rounds += [spare, *([item] for item in spare)]
    order = [*found, *spare]
    for items in rounds:
        source, used = merged(brief.source, [item.edit for item in order if item in items])
        if used and source not in seen:
            return used, source
    return None
