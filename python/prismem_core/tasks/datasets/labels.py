"""The offline annotation: secondary capabilities by rules, for training and validation tasks only (P §A.1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from prismem_core.tasks.capability import CAPABILITIES, Capability
from prismem_core.tasks.task import Dataset, Split, Task

_MAX_SECONDARY = 2

_ASKS_TIME = re.compile(
    r"\bwhen\b|\bhow (?:long|often|recently|old)\b|\b(?:what|which) (?:day|date|week|month|year|season|time|order)\b"
    r"|\bhow many (?:days|weeks|months|years|hours)\b|\b(?:in|during|since|until|as of) (?:19|20)\d\d\b"
    r"|\b(?:first|last|latest|most recently?|currently|nowadays|still|earlier|later|before|after|since|until|ago)\b"
    r"|\b(?:january|february|march|april|may|june|july|august|september|october|november|december)\b(?= \d| of\b|,)",
    re.IGNORECASE,
)
_ASKS_TASTE = re.compile(
    r"\b(?:recommend\w*|suggest\w*|advice|advise|prefer\w*|favou?rite|taste|hobb(?:y|ies)|dislike\w*|hate\w*|enjoy\w*)\b"
    r"|\b(?:would|does|do|did|might)\b[^.?!]*\b(?:like|love|want|appreciate|mind)\b|\bwhat should\b|\bgift\b"
    r"|\bideas? for\b|\bhelp me (?:plan|choose|pick|find|decide)\b",
    re.IGNORECASE,
)


def secondary_labels(question: str, evidence_sessions: Sequence[str], primary: Capability) -> tuple[Capability, ...]:
    """At most two further capabilities a question needs, in canonical order, never the primary.

    A question that asks for a time or an order needs T, one that asks for taste or advice P, and one whose evidence
    stands in several sessions M. `evidence_sessions` holds the session id of each piece of evidence, repeats allowed.
    """
    found = {
        Capability.TEMPORAL: bool(_ASKS_TIME.search(question)),
        Capability.PREFERENCE_EXTRACTION: bool(_ASKS_TASTE.search(question)),
        Capability.MULTI_SESSION_SYNTHESIS: len(set(evidence_sessions)) > 1,
    }
    return tuple(c for c in CAPABILITIES if found.get(c, False) and c is not primary)[:_MAX_SECONDARY]


def annotate(dataset: Dataset, split: Split) -> Dataset:
    """The data set with secondaries on train and valid tasks; others have none (the test set is never annotated).

    Labels that the source itself gave (`Task.labelled`) are kept in place of the rules.
    """
    annotated = {*split.train, *split.valid}
    sessions = {
        history.id: {turn.id: session.id for session in history.sessions for turn in session.turns}
        for history in dataset.histories.values()
    }

    def label(task: Task) -> Task:
        if task.id not in annotated:
            return replace(task, secondary=())
        if task.labelled:
            return task
        of_turn = sessions[task.history_id]
        cited = [of_turn[turn_id] for turn_id in task.evidence_ids if turn_id in of_turn]
        return replace(task, secondary=secondary_labels(task.question, cited, task.primary))

    return replace(dataset, tasks=tuple(label(task) for task in dataset.tasks))
