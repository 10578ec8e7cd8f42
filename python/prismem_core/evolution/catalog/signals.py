"""What a brief shows of a program's weaknesses: named signals with a strength in [0, 1] and a sentence for each.

Signals come from the program's own design, from the diagnostics table, from capability means and from the cases below
full score: whether the evidence was retrieved, and if it was, what kind of question was answered wrongly. Nothing a
data set's answers say goes further than that: no answer text becomes part of a program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from prismem_core.evolution.catalog.case_signals import read_case
from prismem_core.evolution.catalog.features import Features
from prismem_core.evolution.designer import ParentBrief
from prismem_core.tasks.capability import Capability

SENTENCES: dict[str, str] = {
    "blind": "retrieve ignores the query: every question gets the same text",
    "missed": "evidence that was extracted is not retrieved",
    "part_missed": "of several pieces of evidence only a part is retrieved",
    "beside": "a turn next to the missing evidence is retrieved, the evidence itself is not",
    "no_word_shared": "the question and the missing evidence have few words in common",
    "word_shared": "the missing evidence has rare words of the question, yet other units rank higher",
    "named": "the question names a person and the missing evidence is that person's",
    "timed": "the question names a time and the evidence of that time is missed",
    "lossy": "what is extracted is far from the evidence",
    "coarse": "units are long: few fit the budget",
    "fine": "units are short and lack their context",
    "roles": "lines of an assistant fill the retrieved text and what the user said is missing",
    "misread": "the evidence is retrieved, the answer is wrong all the same",
    "undated": "a time is asked for and retrieved lines have no date",
    "when": "a question for a time is answered wrongly",
    "several": "several things are asked for and the answer tells one",
    "invented": "a question that the memory cannot answer is answered",
    "denied": "a question that has an answer is declined",
    "changed": "a value that changed over time is asked for",
    "sequence": "an order of events is asked for",
    "advice": "advice is asked for and standing preferences are not followed",
    "conflict": "statements contradict each other and the answer does not say so",
    "yes_no": "a yes/no question is not answered so",
    "brief": "the expected answer is long, the given one short",
    "wordy": "the expected answer is short, the given one long",
}

CASE_SHARE = 0.5  # strength that one case of score 0 gives a signal
LONE_CASE_SHARE = 0.3
GAP_WEIGHT = 4.0  # strength of a miss for each unit of similarity lost between index and retrieval

# What is likely wrong where only the mean of a capability is known.
CAPABILITY_HINTS: dict[Capability, Mapping[str, float]] = {
    Capability.FACTUAL_RETRIEVAL: {"missed": 0.2, "misread": 0.2, "no_word_shared": 0.1},
    Capability.TEMPORAL: {"when": 0.3, "undated": 0.6, "changed": 0.1, "sequence": 0.05},
    Capability.PREFERENCE_EXTRACTION: {"advice": 0.3, "missed": 0.1},
    Capability.MULTI_SESSION_SYNTHESIS: {"several": 0.3, "part_missed": 0.2, "brief": 0.1},
    Capability.ADVERSARIAL: {"invented": 0.4, "conflict": 0.1},
}


@dataclass
class Signals:
    """Strengths by name, and for each name the ids of the cases that show it."""

    strength: dict[str, float] = field(default_factory=dict)
    shown_by: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, strength: float, case: str | None = None) -> None:
        """Raise a signal; strengths join as independent evidence and stay within [0, 1]."""
        kept = self.strength.get(name, 0.0)
        self.strength[name] = 1.0 - (1.0 - kept) * (1.0 - min(max(strength, 0.0), 1.0))
        if case is not None and case not in self.shown_by.setdefault(name, []):
            self.shown_by[name].append(case)

    def ranked(self, least: float = 0.05) -> list[tuple[str, float]]:
        """Signals from the strongest, ties in the order of SENTENCES."""
        order = {name: place for place, name in enumerate(SENTENCES)}
        found = [(name, value) for name, value in self.strength.items() if value >= least]
        return sorted(found, key=lambda item: (-round(item[1], 9), order[item[0]]))


def read_signals(brief: ParentBrief, design: Features) -> Signals:
    """The signals of stages I and II; without a target all capabilities count by how far they are from full score."""
    signals = Signals()
    if not design.ranked:
        signals.add("blind", 0.9)
    weights = _weights(brief)
    for capability, weight in weights.items():
        for name, strength in CAPABILITY_HINTS[capability].items():
            if name != "undated" or not design.dates:
                signals.add(name, weight * strength)
    _read_table(brief, weights, signals)
    if brief.lengths.chars_per_unit > 300:
        signals.add("coarse", 0.4)
    elif brief.lengths.chars_per_unit < 120:
        signals.add("fine", 0.3)
    for case in brief.cases:
        # A stage-I case is the worst of its capability and says little about the others; stage II shows several.
        share = CASE_SHARE if brief.target is not None else LONE_CASE_SHARE * weights.get(case.primary, 0.0)
        weight = share * (1.0 - case.score)
        for name, strength in read_case(case, ranked=design.ranked, dated=design.dates).items():
            signals.add(name, weight * strength, case.task_id)
    return signals


def _weights(brief: ParentBrief) -> dict[Capability, float]:
    """How much each capability matters now: its error, alone where there is a target, else relative to the largest."""
    errors = {c: 1.0 - value for c, value in brief.accuracy.items()}
    if brief.target is not None:
        return {brief.target: 1.0}
    largest = max(errors.values(), default=0.0)
    return {c: error / largest if largest else 0.0 for c, error in errors.items()}


def _read_table(brief: ParentBrief, weights: Mapping[Capability, float], signals: Signals) -> None:
    """Compare the diagnostics of each capability.

    Evidence that is found when asked for itself but not for the question is missed; a low similarity of the evidence to
    what was extracted is a lossy extraction; a low score over well retrieved evidence is misread.
    """
    if brief.table is None:
        return
    for capability, row in brief.table.rows.items():
        weight = weights.get(capability, 0.0)
        if row.d_ext is not None:
            signals.add("lossy", weight * (0.65 - row.d_ext))
        if row.d_ret is not None and row.d_idx is not None and row.d_idx > 0.0:
            gap = 1.0 - row.d_ret / row.d_idx
            signals.add("missed", weight * GAP_WEIGHT * gap)
            if gap < 0.1:
                signals.add("misread", 0.4 * weight * (1.0 - row.accuracy))
