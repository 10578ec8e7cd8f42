"""The five capabilities in canonical order and the native question types they stand for (P Table 1 and 5)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Capability(StrEnum):
    """A capability; iteration order is the canonical order that settles every tie."""

    FACTUAL_RETRIEVAL = "factual_retrieval"
    TEMPORAL = "temporal"
    PREFERENCE_EXTRACTION = "preference_extraction"
    MULTI_SESSION_SYNTHESIS = "multi_session_synthesis"
    ADVERSARIAL = "adversarial"

    @property
    def letter(self) -> str:
        """F, T, P, M or A."""
        return _LETTERS[self]


_LETTERS = dict(zip(Capability, "FTPMA", strict=True))
CAPABILITIES: tuple[Capability, ...] = tuple(Capability)

MEANINGS: Mapping[Capability, str] = {
    Capability.FACTUAL_RETRIEVAL: "find one fact that was said, by whomever it was said.",
    Capability.TEMPORAL: "when something happened, in what order, how long it took, and which of several states of a "
    "thing is the latest.",
    Capability.PREFERENCE_EXTRACTION: "what a person likes, wants or asked always to be done, and answers that keep "
    "to it.",
    Capability.MULTI_SESSION_SYNTHESIS: "gather what is spread over several sessions: lists, counts, comparisons, "
    "summaries.",
    Capability.ADVERSARIAL: "notice that a question cannot be answered, rests on something untrue or meets "
    "contradicting statements, and say so.",
}
"""What each capability asks of a memory, in the words that prompts use."""
