"""The four roles an evaluation needs, in one value."""

from __future__ import annotations

from dataclasses import dataclass

from prismem_core.roles.protocols import Chat, Embedder, Judge


@dataclass(frozen=True)
class Roles:
    """`embedder` serves programs; `diagnostic_embedder` serves Eq. 8-11 and may be cheaper."""

    chat: Chat
    embedder: Embedder
    judge: Judge
    diagnostic_embedder: Embedder

    @property
    def identities(self) -> dict[str, str]:
        """What each role calls itself, for run records."""
        return {
            "chat": self.chat.identity,
            "embedder": self.embedder.identity,
            "judge": self.judge.identity,
            "diagnostic_embedder": self.diagnostic_embedder.identity,
        }
