"""The designer of the embedded default: no model, a catalogue of program edits chosen from what the measurements
show.

It reads a brief for signals (`catalog/signals.py`), ranks the edits that fit the parent's design by how much they may
mend and by what the run has learnt of them (`catalog/choice.py`), and hands the best one in as a unified diff like
any model's. Integration brings the edits that specialists owe their gains to into the base (`catalog/merge.py`).
Everything is a function of the brief: a resumed run repeats its decisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prismem_core.evolution.catalog.choice import program_mark, rank_choices
from prismem_core.evolution.catalog.detect import detect, is_own
from prismem_core.evolution.catalog.diffs import difference
from prismem_core.evolution.catalog.edits import BY_NAME
from prismem_core.evolution.catalog.merge import contributions, selection
from prismem_core.evolution.catalog.signals import SENTENCES, Signals, read_signals
from prismem_core.evolution.designer import (
    Attempt,
    Diagnosis,
    IntegrationBrief,
    IntegrationPlan,
    ParentBrief,
    Revision,
)
from prismem_core.tasks.capability import Capability

SIGNALS_TOLD = 4


class CatalogDesigner:
    """Implements `Designer` with the edits of `catalog/edits.py`."""

    identity = "catalog/1"

    def diagnose(self, brief: ParentBrief) -> Diagnosis:
        """The signals of the brief in words, the strongest first; `details` holds their strengths."""
        signals = read_signals(brief, detect(brief.source))
        capability = brief.target or _weakest(brief.accuracy)
        return Diagnosis(
            " ".join([_standing(brief, capability), *_told(signals)]),
            capability,
            {"signals": {name: round(value, 6) for name, value in signals.ranked()}},
        )

    def revise(self, brief: ParentBrief, diagnosis: Diagnosis, feedback: Sequence[Attempt]) -> Revision | None:
        """The most promising edit that this run has not yet tried on this program; None when none fits any more."""
        strengths = {str(name): float(value) for name, value in dict(diagnosis.details.get("signals", {})).items()}
        done = [name for name, edit in BY_NAME.items() if any(edit.summary == a.summary for a in feedback)]
        choices = rank_choices(brief.source, strengths, brief.target, brief.tried, brief.rng(), done)
        if not choices:
            return None
        best = choices[0]
        return Revision(
            best.edit.summary,
            difference(brief.source, best.draft.source),
            {
                "edit": best.edit.name,
                "component": best.edit.component,
                "program": program_mark(best.draft.source),
                "before": {str(c): value for c, value in brief.accuracy.items()},
                "value": round(best.value, 6),
                "runners_up": [choice.edit.name for choice in choices[1:4]],
                "rewritten": best.draft.rewritten,
            },
        )

    def plan_integration(self, brief: IntegrationBrief) -> IntegrationPlan:
        """Which edits of which specialist come into the base, from the nearest specialist to the farthest."""
        found = contributions(brief)
        if not found:
            return IntegrationPlan(
                f"The specialists hold no edit that {brief.base_id} lacks; there is nothing to bring in."
            )
        lines = [
            f"Bring into {brief.base_id} what its specialists have and it lacks, from the nearest to the farthest:"
        ]
        for item in found:
            change = "" if item.valid is None else f", overall {item.valid:+.3f} when it was made"
            lines.append(
                f"- {item.edit} ({item.capability}, gain {item.gain:+.3f}{change}): {BY_NAME[item.edit].summary}"
            )
        lines.append("If the union is rejected, leave out what lowered the overall score or hurt what fell most;")
        lines.append("at last, try what raised the overall score in other lineages.")
        return IntegrationPlan("\n".join(lines), {"edits": [item.edit for item in found]})

    def integrate(self, brief: IntegrationBrief, plan: IntegrationPlan, attempts: Sequence[Attempt]) -> Revision | None:
        """The base with the planned edits, fewer after each rejection; None when no new union is left."""
        planned = list(plan.details.get("edits", []))
        found = [item for item in contributions(brief) if item.edit in planned]
        chosen = selection(brief, found, attempts)
        if chosen is None:
            return None
        names, source = chosen
        summary = "Bring in " + ", ".join(names) + "."
        details: dict[str, Any] = {"edits": names, "program": program_mark(source), "own": is_own(source)}
        return Revision(summary, difference(brief.source, source), details)


def _weakest(accuracy: Mapping[Capability, float]) -> Capability | None:
    """The capability of the lowest mean, the first in canonical order among equals."""
    measured = [c for c in Capability if c in accuracy]
    return min(measured, key=lambda c: round(accuracy[c], 9), default=None)


def _standing(brief: ParentBrief, capability: Capability | None) -> str:
    scores = ", ".join(f"{c.letter} {brief.accuracy[c]:.3f}" for c in Capability if c in brief.accuracy)
    start = f"{brief.parent_id} scores {brief.train:.3f} on the training tasks ({scores})."
    if brief.target is not None:
        return f"{start} Target: {brief.target}."
    return start if capability is None else f"{start} Weakest: {capability}."


def _told(signals: Signals) -> list[str]:
    told = []
    for name, strength in signals.ranked()[:SIGNALS_TOLD]:
        cases = signals.shown_by.get(name, [])
        where = f", {len(cases)} case{'s' if len(cases) > 1 else ''}" if cases else ""
        sentence = SENTENCES[name]
        told.append(f"{sentence[0].upper()}{sentence[1:]} ({strength:.2f}{where}).")
    return told or ["No weakness stands out."]
