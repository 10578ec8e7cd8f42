"""Stage III of the catalogue designer: which edits the specialists owe their gains to, and what their union makes of
the base.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prismem_core.evolution.catalog.choice import effect_on
from prismem_core.evolution.catalog.diffs import draft
from prismem_core.evolution.catalog.edits import BY_NAME
from prismem_core.evolution.designer import Attempt, IntegrationBrief, RevisionRecord
from prismem_core.tasks.capability import Capability


@dataclass(frozen=True)
class Contribution:
    """An edit of a specialist's lineage that the base's lineage lacks, and what measuring showed when it was made.

    `valid` is the change of the overall score, None where one of the two programs has none.
    """

    edit: str
    capability: Capability
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
    valid = {record.program_id: record.valid for record in brief.tried}
    present = [record.program_id for record in lineage(brief.base_id, brief.tried)]
    found: dict[str, Contribution] = {}
    for view in brief.specialists:
        if view.is_base or view.gain <= 0.0:
            continue
        for record in lineage(view.program_id, brief.tried):
            name = str(record.details.get("edit", ""))
            if record.program_id in present or name not in BY_NAME or name in found:
                continue
            measured = {c: effect_on(record, c) for c in Capability}
            earlier = valid.get(record.parent_id, record.details.get("valid_before"))
            change = None if record.valid is None or earlier is None else record.valid - float(earlier)
            on = {c: value for c, value in measured.items() if value is not None}
            found[name] = Contribution(name, view.capability, view.gain, change, on)
    return list(found.values())


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

    The first round takes all contributions, each rejection narrows them. If they narrow to nothing, single
    contributions follow, the one of largest overall change first.
    """
    seen = {brief.source} | {attempt.source for attempt in attempts if attempt.source is not None}
    chosen = list(found)
    for attempt in attempts:
        chosen = narrowed(chosen, attempt, brief.accuracy)
    rounds = [chosen]
    while rounds[-1]:
        rounds.append(sorted(rounds[-1], key=lambda item: -round(item.valid or 0.0, 9))[:-1])
    rounds += [[item] for item in sorted(found, key=lambda item: -round(item.valid or 0.0, 9))]
    for items in rounds:
        source, used = merged(brief.source, [item.edit for item in found if item in items])
        if used and source not in seen:
            return used, source
    return None
