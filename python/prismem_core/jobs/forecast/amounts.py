"""Amounts that are not known yet: at least, expected, at most."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Range:
    """A number that lies between `low` and `high`, most likely near `expected`."""

    low: float = 0.0
    expected: float = 0.0
    high: float = 0.0

    @classmethod
    def exactly(cls, value: float) -> Range:
        """A number that is known."""
        return cls(value, value, value)

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.expected + other.expected, self.high + other.high)

    def times(self, factor: Range | float) -> Range:
        """The product, of numbers that are not negative."""
        by = factor if isinstance(factor, Range) else Range.exactly(factor)
        return Range(self.low * by.low, self.expected * by.expected, self.high * by.high)

    def to_json(self) -> dict[str, float]:
        """Whole numbers below, near and above; money keeps six decimals."""
        return {"low": self.low, "expected": self.expected, "high": self.high}


@dataclass(frozen=True)
class Amount:
    """Calls of a model and the tokens they read and write, all in all."""

    calls: Range = field(default_factory=Range)
    input_tokens: Range = field(default_factory=Range)
    output_tokens: Range = field(default_factory=Range)

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
        )

    def times(self, factor: Range | float) -> Amount:
        """As often."""
        return Amount(self.calls.times(factor), self.input_tokens.times(factor), self.output_tokens.times(factor))

    @property
    def tokens(self) -> Range:
        """Tokens read and written."""
        return self.input_tokens + self.output_tokens


def total(amounts: Iterable[Amount]) -> Amount:
    """The sum."""
    whole = Amount()
    for amount in amounts:
        whole += amount
    return whole
