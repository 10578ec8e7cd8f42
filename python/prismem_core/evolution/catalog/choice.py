"""Which edit comes next: signals say what an edit may mend, the run so far says what it did mend."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prismem_core.digests import digest
from prismem_core.evolution.catalog.detect import detect
from prismem_core.evolution.catalog.diffs import Draft, draft
from prismem_core.evolution.catalog.edit import Edit
from prismem_core.evolution.catalog.edits import EDITS
from prismem_core.evolution.designer import RevisionRecord
from prismem_core.tasks.capability import Capability

JITTER = 0.1  # standard deviation of the logarithm of chance
UNTRIED = 1.15  # factor of an edit that has not been measured for the target
PER_POINT = 0.25  # what a hundredth of mean gain adds to the factor
LEAST, MOST = 0.15, 3.0  # bounds of that
FAILED = 0.5  # further factor where the mean gain is not positive
BROKEN = 0.2  # factor for each use that made no valid program
REDUNDANT = 0.5  # factor where the design has another remedy for the same weakness
REWRITE = 0.5  # factor where a foreign program would be replaced whole


@dataclass(frozen=True)
class Choice:
    """An edit that fits, the program it makes and how much is expected of it."""

    edit: Edit
    draft: Draft
    value: float


def program_mark(source: str) -> str:
    """A short content mark by which a run remembers a program it has already tried."""
    return digest("catalog-program", source)[:16]


def rank_choices(
    source: str,
    strengths: Mapping[str, float],
    target: Capability | None,
    tried: Sequence[RevisionRecord],
    rng: np.random.Generator,
    skip: Collection[str] = (),
) -> list[Choice]:
    """All edits that fit and make a program not yet tried, from the most promising; ties in catalogue order.

    The value of an edit is its prior, times the chance that it mends one of the signals, times what the run has
    learnt of it, times a little chance of the iteration's own, so that two seeds do not walk the same way.
    """
    known = {str(record.details.get("program")) for record in tried} | {program_mark(source)}
    # One number an edit, fitting or not: the chance an edit gets does not depend on which others fit.
    chance = np.exp(JITTER * rng.standard_normal(len(EDITS)))
    design = detect(source)
    choices = []
    for edit, luck in zip(EDITS, chance.tolist(), strict=True):
        mends = 1.0 - math.prod(1.0 - strengths.get(name, 0.0) * share for name, share in edit.answers.items())
        made = draft(source, edit) if edit.name not in skip and mends > 0.0 else None
        if made is None or program_mark(made.source) in known:
            continue
        value = edit.prior * mends * experience(edit.name, target, tried) * luck
        value *= (REWRITE if made.rewritten else 1.0) * (REDUNDANT if edit.redundant(design) else 1.0)
        choices.append(Choice(edit, made, value))
    return sorted(choices, key=lambda choice: -round(choice.value, 9))


def effects(
    name: str, tried: Sequence[RevisionRecord], measure: Callable[[RevisionRecord], float | None]
) -> list[float]:
    """What `measure` gives for each earlier use of an edit, unmeasured uses left out."""
    found = (measure(record) for record in tried if record.details.get("edit") == name)
    return [value for value in found if value is not None]


def effect_on(record: RevisionRecord, capability: Capability) -> float | None:
    """The change of a capability's training mean by a revision, None where it was not measured."""
    before = record.details.get("before", {})
    if capability not in record.accuracy or str(capability) not in before:
        return None
    change: float = record.accuracy[capability] - float(before[str(capability)])
    return change


def overall_effect(record: RevisionRecord) -> float | None:
    """The mean change over the capabilities that were measured, None where fewer than all of the parent's were."""
    before = record.details.get("before", {})
    changes = [effect_on(record, Capability(name)) for name in before]
    known = [change for change in changes if change is not None]
    mean: float = math.fsum(known) / len(known) if known else 0.0
    return mean if known and len(known) == len(before) else None


def experience(name: str, target: Capability | None, tried: Sequence[RevisionRecord]) -> float:
    """A factor from earlier uses of an edit: above 1 where it helped the target, below 1 where it failed."""
    broken = sum(
        record.details.get("edit") == name and record.program_id is None and record.outcome != "retained"
        for record in tried
    )
    measured = effects(name, tried, overall_effect if target is None else lambda record: effect_on(record, target))
    if not measured:
        return float(UNTRIED if not broken else BROKEN**broken)
    mean = math.fsum(measured) / len(measured)
    learnt = min(max(1.0 + PER_POINT * 100.0 * mean, LEAST), MOST) * (FAILED if mean <= 0.0 else 1.0)
    return float(learnt * BROKEN**broken)
