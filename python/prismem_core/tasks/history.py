"""A long dialogue: sessions of turns. It holds nothing that a memory program must not see."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from prismem_core.digests import digest


@dataclass(frozen=True)
class Turn:
    """One utterance; `id` is unique in its history, `text` may hold line breaks."""

    id: str
    speaker: str
    text: str


@dataclass(frozen=True)
class Session:
    """Turns under one timestamp, kept as the source spells it ("" if it has none)."""

    id: str
    timestamp: str
    turns: tuple[Turn, ...]

    @property
    def header(self) -> str:
        """The bracket line that opens the session's text."""
        return f"[Session {self.id}: {self.timestamp}]" if self.timestamp else f"[Session {self.id}]"

    @property
    def text(self) -> str:
        """Header and turns as a memory program gets them: one `speaker: text` a turn."""
        return "\n".join([self.header, *(f"{turn.speaker}: {turn.text}" for turn in self.turns)])


@dataclass(frozen=True)
class History:
    """Sessions in chronological order."""

    id: str
    sessions: tuple[Session, ...]

    @cached_property
    def digest(self) -> str:
        """Content digest; the id does not count."""
        return digest(
            "history",
            [[s.id, s.timestamp, [[t.id, t.speaker, t.text] for t in s.turns]] for s in self.sessions],
        )
