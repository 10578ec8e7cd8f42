"""What calls of a role cost: calls with their tries, tokens by the role's own count or estimated from characters."""

from __future__ import annotations

from dataclasses import dataclass

from prismem_core.jobs.forecast import assumptions as take
from prismem_core.jobs.forecast.amounts import Amount, Range
from prismem_core.jobs.forecast.counts import Prompts
from prismem_core.pipeline.structured import WIDEST

MOST_SCHEMA_CHARS = 6000
"""Characters of a JSON schema, which some servers are told in the prompt."""


@dataclass(frozen=True)
class Player:
    """The model of a role; `offline` counts characters / 4 itself, of others that is an estimate.

    A reply has at most `max_tokens` tokens, twice as many after each one that was cut, and is asked for again up to
    `retries` times.
    """

    offline: bool
    max_tokens: int
    retries: int

    def amount(
        self, prompts: Prompts, output: float, *, extra_chars: Range | None = None, most_output: float | None = None
    ) -> Amount:
        """Of one call for each prompt, with `extra_chars` of further text each and `output` tokens expected in reply.

        `most_output` bounds a reply of the embedded default, which knows no limit on tokens.
        """
        count, tries = prompts.count, 1 + self.retries
        extra = extra_chars or Range()
        wide = prompts.size / prompts.chars if prompts.chars else 1.0
        again = self.retries * count * self._most(take.PROBLEM_CHARS, take.PROBLEM_CHARS)
        given = Range(
            self._least(prompts.chars + count * extra.low),
            take.TRIES * (prompts.chars + count * extra.expected) * take.TOKENS_A_CHAR,
            tries * self._most(prompts.chars + count * extra.high, prompts.size + count * extra.high * wide)
            + tries * count * self._most_beside()
            + again,
        )
        return Amount(
            Range(count, take.TRIES * count, tries * count),
            given,
            Range(0.0 if self.offline else count, take.TRIES * count * output, count * self._most_output(most_output)),
        )

    def _least(self, chars: float) -> float:
        return chars * (take.TOKENS_A_CHAR if self.offline else take.LEAST_TOKENS_A_CHAR)

    def _most(self, chars: float, size: float) -> float:
        return chars * take.TOKENS_A_CHAR if self.offline else size * take.MOST_TOKENS_A_BYTE

    def _most_beside(self) -> float:
        """Tokens of a call beside its texts."""
        return 1.0 if self.offline else take.MOST_TOKENS_A_CALL + MOST_SCHEMA_CHARS * take.TOKENS_A_CHAR

    def _most_output(self, offline: float | None) -> float:
        """Tokens of all replies to one question."""
        if self.offline:
            return (1 + self.retries) * (self.max_tokens if offline is None else offline)
        return float(sum(max(self.max_tokens, min(self.max_tokens << n, WIDEST)) for n in range(1 + self.retries)))


def possible(amount: Amount, expected: float, most: float = 1.0) -> Amount:
    """What need not be asked at all: the share `expected` of it, `most` times it at most."""
    return amount.times(Range(0.0, expected, most))
