"""Small talk: exchanges with alternatives in brackets, drawn with a generator that every machine repeats."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from prismem_core.errors import DataError

Item = TypeVar("Item")

_CHOICE = re.compile(r"\[(?:(\d)~)?([^\[\]]*)\]")
# An alternative may end in its own mark before the sentence's full stop.
_DOUBLE_MARK = re.compile(r"([?!])\.(?=\s|$)")


class Draw:
    """Choices that depend on the seed alone: SHA-256 in counter mode, so no library's generator can change them."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._count = 0

    def below(self, limit: int) -> int:
        """A whole number from 0 to limit - 1 (the bias of a 64-bit remainder is of no account here)."""
        self._count += 1
        block = hashlib.sha256(f"{self._seed}/{self._count}".encode()).digest()
        return int.from_bytes(block[:8], "big") % limit

    def choice(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """A new list in drawn order."""
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in range(len(rest))]


@dataclass(frozen=True)
class Exchange:
    """A few turns: `kind` is `bit`, `open` or `close`; each line is ("X" or "Y", text with alternatives).

    `[a|b]` draws one alternative. Brackets of one exchange that begin with the same number, `[1~a|b]`, draw the same
    one, so that an answer fits its question.
    """

    kind: str
    name: str
    lines: tuple[tuple[str, str], ...]

    def render(self, draw: Draw, starter: str, other: str) -> list[tuple[str, str]]:
        """(speaker, text) of each turn, alternatives drawn and the two names filled in."""
        names = {"X": starter, "Y": other}
        linked: dict[str, int] = {}

        def drawn(match: re.Match[str]) -> str:
            link, alternatives = match[1], str(match[2]).split("|")
            if link is None:
                return draw.choice(alternatives)
            if link not in linked:
                linked[link] = draw.below(len(alternatives))
            return alternatives[linked[link]]

        def filled(text: str) -> str:
            text = _DOUBLE_MARK.sub(r"\1", _CHOICE.sub(drawn, text))
            return text.replace("<X>", starter).replace("<Y>", other)

        return [(names[who], filled(text)) for who, text in self.lines]


def parse_exchanges(text: str) -> list[Exchange]:
    """The exchanges of the grammar file, in order; DataError with the line that is out of form."""
    exchanges: list[Exchange] = []
    for kind, name, lines in _paragraphs(text):
        exchanges.append(Exchange(kind, name, tuple(lines)))
    return exchanges


def _paragraphs(text: str) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    for paragraph in text.strip().split("\n\n"):
        head, *body = paragraph.strip().split("\n")
        kind, _, name = head.partition(" ")
        if kind not in ("bit", "open", "close") or not body:
            raise DataError(f"small talk: expected `bit NAME`, `open` or `close` and turns, not {head!r}")
        lines = []
        for line in body:
            who, separator, said = line.partition(": ")
            if who not in ("X", "Y") or not separator or said.count("[") != said.count("]"):
                raise DataError(f"small talk {head!r}: expected `X: text` or `Y: text`, brackets closed, not {line!r}")
            lines.append((who, said))
        _check_links(head, lines)
        yield kind, name, lines


def _check_links(head: str, lines: Sequence[tuple[str, str]]) -> None:
    """Brackets with the same number must offer the same number of alternatives."""
    counts: dict[str, int] = {}
    for _, said in lines:
        for link, alternatives in _CHOICE.findall(said):
            count = alternatives.count("|") + 1
            if link and counts.setdefault(link, count) != count:
                raise DataError(f"small talk {head!r}: link {link} has {counts[link]} alternatives and then {count}")
