"""The five capabilities in canonical order and the native question types they stand for (P Table 1 and 5)."""

from __future__ import annotations

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
