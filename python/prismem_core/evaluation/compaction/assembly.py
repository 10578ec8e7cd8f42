"""Kept spans as one text again, with marks where something was left out (spec 5.5)."""

from __future__ import annotations

from collections.abc import Sequence

from prismem_core.evaluation.compaction.spans import Span

MARK = "(...)"


def assemble(spans: Sequence[Span], kept: Sequence[int]) -> str:
    """The spans at the ascending positions `kept` as a text; a mark alone where spans exist and none is kept."""
    lines: list[str] = []
    before = -1
    for position in kept:
        lines += _lines(spans, before, position)
        before = position
    return "\n".join([*lines, *_end(spans, before)])


def _lines(spans: Sequence[Span], before: int, position: int) -> list[str]:
    """What a kept span adds where the last kept one is at `before` (-1: none); it depends on nothing else."""
    span = spans[position]
    left_out = position > before + 1
    first = before < 0
    lines = [MARK] if left_out else []
    # Every span shows its headers unless they were shown, so the last ones shown are those of the span before.
    if span.headers != (() if first else spans[before].headers):
        lines += span.headers
    role = span.role if left_out or first or span.record != spans[before].record else ""
    if role and span.fence:
        return [*lines, role[:-1], span.text]
    return [*lines, role + span.text]


def _end(spans: Sequence[Span], last: int) -> list[str]:
    return [MARK] if last < len(spans) - 1 else []


class Assembly:
    """Spans that are chosen one after the other, and how long the text of the chosen ones is."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._sizes: dict[tuple[int, int], int] = {}
        self._length = -1 + self._end(-1)
        # Neighbours of a span that is not chosen: the chosen one before it (-1: none) and after it (-2: none).
        self._before = [-1] * len(spans)
        self._after = [-2] * len(spans)

    def length_with(self, position: int) -> int:
        """The characters of the text once the span at `position`, which is not chosen, is added."""
        before, after = self._before[position], self._after[position]
        if after < 0:
            change = self._end(position) - self._end(before)
        else:
            change = self._size(position, after) - self._size(before, after)
        return self._length + self._size(before, position) + change

    def add(self, position: int) -> None:
        """Choose a span."""
        self._length = self.length_with(position)
        before, after = self._before[position], self._after[position]
        for i in range(before + 1, position):
            self._after[i] = position
        for i in range(position + 1, after if after >= 0 else len(self._spans)):
            self._before[i] = position

    def _size(self, before: int, position: int) -> int:
        """Characters that a span adds behind the one at `before`, newlines counted."""
        key = before, position
        known = self._sizes.get(key)
        if known is None:
            known = self._sizes[key] = sum(len(line) + 1 for line in _lines(self._spans, before, position))
        return known

    def _end(self, last: int) -> int:
        return sum(len(line) + 1 for line in _end(self._spans, last))
