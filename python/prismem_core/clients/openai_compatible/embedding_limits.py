"""What is known of the longest text an embedding model reads, from the token counts of its server."""

from __future__ import annotations

_ROOM = 4
_SAFETY = 1.5


class EmbeddingLimits:
    """`confirmed`: texts of up to that many tokens are known not to be cut. `limit`: tokens at which texts are cut or
    refused, None while no text has met it.

    `ratio` is the largest number of tokens to a byte seen so far; a text has at most one token a byte.
    """

    def __init__(self, max_input_tokens: int | None = None) -> None:
        self.confirmed = max_input_tokens or 0
        self.limit = max_input_tokens
        # A limit from the settings binds as it is given; one that was seen is a count at which texts were cut.
        self._given = max_input_tokens is not None
        self._ratio: float | None = None

    def estimate(self, text: str) -> int:
        """Tokens that a text hardly exceeds."""
        size = len(text.encode("utf-8", "replace"))
        ratio = 1.0 if self._ratio is None else min(1.0, _SAFETY * self._ratio)
        return int(size * ratio) + _ROOM

    def is_safe(self, text: str) -> bool:
        """Whether a text may share a call, where its own tokens cannot be told."""
        return self.estimate(text) <= self.confirmed

    def seen(self, text: str, tokens: int) -> None:
        """Learn from the tokens of a text that was not cut."""
        size = max(1, len(text.encode("utf-8", "replace")))
        if tokens <= size + _ROOM:
            self._ratio = max(self._ratio or 0.0, tokens / size)

    def is_cut(self, tokens: int) -> bool:
        """Whether a text with that count was cut, as far as is known."""
        return self.limit is not None and (tokens > self.limit if self._given else tokens >= self.limit)

    def confirm(self, tokens: int) -> None:
        """Texts of up to that many tokens are read whole."""
        if self.limit is None or self._given or tokens < self.limit:
            self.confirmed = max(self.confirmed, tokens)

    def met(self, tokens: int) -> None:
        """Texts are cut at, or refused above, that many tokens."""
        if not self._given and (self.limit is None or tokens < self.limit):
            self.limit = tokens
            self.confirmed = min(self.confirmed, tokens - 1)

    def refused_above(self, tokens: int) -> None:
        """Texts of more tokens are refused, so those of no more are read whole."""
        if not self._given:
            self.limit = tokens + 1
            self.confirmed = tokens
