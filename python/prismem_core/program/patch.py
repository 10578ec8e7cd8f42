"""Apply and make unified diffs whose hunks are found by their lines alone (PrisMem appendix F)."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import NamedTuple

from prismem_core.errors import ArgumentError, PatchError


@dataclass(frozen=True)
class Hunk:
    """The lines of one hunk as (mark, text); the mark is a space, `-` or `+`."""

    lines: tuple[tuple[str, str], ...]

    @property
    def old(self) -> list[str]:
        """Context and removed lines: the block that must stand in the source."""
        return [text for mark, text in self.lines if mark != "+"]


def apply_patch(source: str, diff: str) -> str:
    """`source` with every hunk of `diff` applied; hunks are located in the original source, in any order.

    Raises PatchError with a code (`empty_diff`, `no_hunks`, `bad_line`, `no_context`, `context_not_found`,
    `ambiguous_context`, `overlap`, `noop`) and the 0-based hunk where one is at fault.
    """
    source, diff = _newlines(source), _newlines(diff)
    hunks = _parse(diff)
    if source == "" and len(hunks) == 1 and not hunks[0].old:
        lines = [text for _, text in hunks[0].lines]
        result = "\n".join(lines) + "\n" if lines else ""
    else:
        result = _replace(source, hunks)
    if result == source:
        raise PatchError("noop", "the diff leaves the source as it was; change at least one line")
    return result


def make_patch(old: str, new: str) -> str:
    """A diff that `apply_patch` turns `old` into `new` with; "" if they agree.

    Hunks are widened until each old block occurs once in `old`; where that needs the whole file, one hunk holds it.
    Carriage returns do not count. Raises ArgumentError if one text ends in a newline and the other does not: no diff
    can say so.
    """
    old, new = _newlines(old), _newlines(new)
    if old == new:
        return ""
    if new and (new.endswith("\n") != (old.endswith("\n") or old == "")):
        raise ArgumentError("make_patch: a diff cannot add or take away the final newline; let both texts end alike")
    before, after = _lines(old), _lines(new)
    changes = [
        _Change(low, high, start, end)
        for tag, low, high, start, end in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        if tag != "equal"
    ]
    parts = []
    for low, high, start, end in _widen(changes, _Places(before)):
        parts.append(f"@@ -{low + 1},{high - low} +{start + 1},{end - start} @@")
        block = difflib.SequenceMatcher(None, before[low:high], after[start:end], autojunk=False)
        for tag, a, b, c, d in block.get_opcodes():
            if tag == "equal":
                parts.extend(" " + line for line in before[low + a : low + b])
            else:
                parts.extend("-" + line for line in before[low + a : low + b])
                parts.extend("+" + line for line in after[start + c : start + d])
    return "\n".join(parts) + "\n"


def _newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _lines(text: str) -> list[str]:
    """Lines without their newlines; only `\\n` ends a line, unlike `str.splitlines`."""
    if not text:
        return []
    return text.removesuffix("\n").split("\n")


def _parse(diff: str) -> list[Hunk]:
    if not diff.strip():
        raise PatchError("empty_diff", "the diff is blank; expected at least one hunk that starts with '@@'")
    lines = diff.split("\n")
    filled = [number for number, line in enumerate(lines) if line.strip()]
    if lines[filled[0]].startswith("```"):
        dropped = {filled[0]}
        if lines[filled[-1]].strip() == "```":
            dropped.add(filled[-1])
        lines = [line for number, line in enumerate(lines) if number not in dropped]
    bodies: list[list[str]] = []
    for line in lines:
        if line.startswith("@@"):
            bodies.append([])
        elif bodies and not line.startswith("\\"):
            bodies[-1].append(line)
    if not bodies:
        raise PatchError("no_hunks", "the diff holds no hunk; start each hunk with a line '@@'")
    return [_hunk(number, body) for number, body in enumerate(bodies)]


def _hunk(number: int, body: list[str]) -> Hunk:
    while body and body[-1] == "":
        body.pop()
    lines = []
    for line in body:
        mark = line[:1] or " "
        if mark not in " -+":
            raise PatchError(
                "bad_line",
                f"hunk {number}: the line {line[:80]!r} starts with none of ' ', '-', '+'; mark every line of a hunk",
                number,
            )
        lines.append((mark, line[1:]))
    return Hunk(tuple(lines))


def _replace(source: str, hunks: list[Hunk]) -> str:
    lines = _lines(source)
    starts = [_locate(number, hunk, lines) for number, hunk in enumerate(hunks)]
    order = sorted(range(len(hunks)), key=lambda number: starts[number])
    end = 0
    for number in order:
        if starts[number] < end:
            raise PatchError("overlap", f"hunk {number} shares lines with another hunk; join the two into one", number)
        end = starts[number] + len(hunks[number].old)
    result: list[str] = []
    position = 0
    for number in order:
        result.extend(lines[position : starts[number]])
        position = starts[number]
        for mark, text in hunks[number].lines:
            if mark == "+":
                result.append(text)
                continue
            if mark == " ":
                result.append(lines[position])
            position += 1
    result.extend(lines[position:])
    if not result:
        return ""
    return "\n".join(result) + ("\n" if source.endswith("\n") else "")


def _locate(number: int, hunk: Hunk, lines: list[str]) -> int:
    """The line at which the hunk's old block stands: exactly, or else but for trailing whitespace."""
    old = hunk.old
    if not old:
        raise PatchError(
            "no_context",
            f"hunk {number} has neither context nor removed lines; add the lines that stand around the place",
            number,
        )
    found = _find(old, lines)
    if not found:
        found = _find([line.rstrip() for line in old], [line.rstrip() for line in lines])
    if not found:
        raise PatchError(
            "context_not_found",
            f"hunk {number}: its context and removed lines, starting with {old[0][:80]!r}, do not stand together in "
            "the source; copy them from the source, indentation included",
            number,
        )
    if len(found) > 1:
        raise PatchError(
            "ambiguous_context",
            f"hunk {number}: its context and removed lines, starting with {old[0][:80]!r}, occur {len(found)} times in "
            "the source; add lines around them until they occur once",
            number,
        )
    return found[0]


def _find(block: list[str], lines: list[str]) -> list[int]:
    size = len(block)
    return [at for at in range(len(lines) - size + 1) if lines[at] == block[0] and lines[at : at + size] == block]


class _Change(NamedTuple):
    """Old lines low..high give way to new lines start..end."""

    low: int
    high: int
    start: int
    end: int


class _Places:
    """Where each line of a text occurs, to tell quickly whether a block of it occurs once."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._at: dict[str, list[int]] = {}
        for number, line in enumerate(lines):
            self._at.setdefault(line, []).append(number)

    def unique(self, low: int, high: int) -> bool:
        block = self.lines[low:high]
        if not block:
            return False
        # The rarest line of the block decides how many places are worth comparing.
        offset = min(range(len(block)), key=lambda index: len(self._at[block[index]]))
        found = 0
        for at in self._at[block[offset]]:
            start = at - offset
            found += start >= 0 and self.lines[start : start + len(block)] == block
        return found == 1


def _widen(changes: list[_Change], places: _Places) -> list[_Change]:
    """Ranges around `changes` with two lines of context, each old block unique and none sharing a line with another."""
    size = len(places.lines)
    blocks = [(max(0, change.low - 2), min(size, change.high + 2)) for change in changes]
    while True:
        blocks = _join([_grow(low, high, places) for low, high in blocks])
        if all(places.unique(low, high) or (low, high) == (0, size) for low, high in blocks):
            return [_cover(low, high, changes) for low, high in blocks]


def _grow(low: int, high: int, places: _Places) -> tuple[int, int]:
    """The smallest range around (low, high), widened by one line on both sides at a time, whose block occurs once."""
    size = len(places.lines)
    while not places.unique(low, high) and (low, high) != (0, size):
        low, high = max(0, low - 1), min(size, high + 1)
    return low, high


def _join(blocks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Blocks in order, those that share a line or touch made one."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(blocks):
        if joined and low <= joined[-1][1]:
            first, last = joined.pop()
            low, high = first, max(high, last)
        joined.append((low, high))
    return joined


def _cover(low: int, high: int, changes: list[_Change]) -> _Change:
    """The old range (low, high) with the new range that the changes inside it give."""
    inside = [change for change in changes if low <= change.low and change.high <= high]
    return _Change(low, high, inside[0].start - (inside[0].low - low), inside[-1].end + (high - inside[-1].high))
