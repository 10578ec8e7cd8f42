"""A text as spans: records of a dialogue under their headers, cut at paragraphs, sentences and fences (spec 5.2)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

SPAN_MAX = 400

_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")
_HEADER = re.compile(
    r"\[[^\]]{1,100}\]"
    r"|(?:session|date|time|timestamp) *[:#0-9].{0,100}"
    r"|===.*==="
    r"|#{1,6} .{1,100}",
    re.IGNORECASE,
)
_ROLE = re.compile(r"\s*(?:user|assistant|system|human|ai) *:[ \t]?", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n")


@dataclass(frozen=True)
class Span:
    """A piece of a text that is shown whole or not at all.

    `headers` are the lines of its header block, `record` counts the records from 0. `role` is the prefix of its record
    with one space, "" where there is none; `text` has neither. A `fence` keeps its fence lines.
    """

    text: str
    headers: tuple[str, ...]
    record: int
    role: str
    fence: bool


@dataclass
class _Record:
    headers: tuple[str, ...]
    role: str
    # Each line with the number of its fence, None outside.
    lines: list[tuple[str, int | None]] = field(default_factory=list)


def spans_of(text: str) -> list[Span]:
    r"""The spans of a text in its order; lines end at `\n` alone. A text of headers and blank lines has none."""
    return [
        Span(piece, record.headers, number, record.role, fence)
        for number, record in enumerate(_records(text))
        for piece, fence in _pieces(record)
    ]


def _records(text: str) -> list[_Record]:
    records: list[_Record] = []
    headers: list[str] = []
    after_header = True
    current: _Record | None = None
    for line, fence in _fenced(text.split("\n")):
        role = None
        if fence is None:
            if _HEADER.fullmatch(line.strip()):
                headers = [*headers, line] if after_header else [line]
                after_header, current = True, None
                continue
            if not line.strip() and current is None:
                continue
            role = _ROLE.match(line)
        if current is None or role:
            current = _Record(tuple(headers), f"{role[0].strip()} " if role else "")
            records.append(current)
            after_header = False
        current.lines.append((line[role.end() :] if role else line, fence))
    return records


def _fenced(lines: Sequence[str]) -> Iterator[tuple[str, int | None]]:
    """Each line with the number of the fence that it belongs to; a fence without an end goes on to the last line."""
    number = 0
    opened: str | None = None
    for line in lines:
        if opened is None:
            found = _FENCE.match(line)
            opened = found[1] if found else None
            yield line, number if found else None
            continue
        yield line, number
        bare = line.strip()
        if len(bare) >= len(opened) and bare == opened[0] * len(bare):
            opened = None
            number += 1


def _pieces(record: _Record) -> list[tuple[str, bool]]:
    """The texts of a record's spans, each with whether it is a fence."""
    body = "\n".join(line for line, _ in record.lines).strip()
    if len(body) <= SPAN_MAX and all(fence is None for _, fence in record.lines):
        return [(body, False)]
    pieces: list[tuple[str, bool]] = []
    for fence, lines in _blocks(record.lines):
        block = "\n".join(lines)
        if fence:
            pieces.append((block.strip("\n"), True))
            continue
        paragraph = block.strip()
        parts = [paragraph] if len(paragraph) <= SPAN_MAX else _SENTENCE.split(paragraph)
        pieces += [(part.strip(), False) for part in parts if part.strip()]
    return pieces


def _blocks(lines: Sequence[tuple[str, int | None]]) -> list[tuple[bool, list[str]]]:
    """Whole fences and the paragraphs between them, each with whether it is a fence; blank lines end a paragraph."""
    blocks: list[tuple[bool, list[str]]] = []
    # What the last block goes on with: the number of its fence, None for a paragraph; "" for nothing.
    goes_on: int | str | None = ""
    for line, fence in lines:
        if fence is None and not line.strip():
            goes_on = ""
            continue
        if fence != goes_on:
            blocks.append((fence is not None, []))
            goes_on = fence
        blocks[-1][1].append(line)
    return blocks
