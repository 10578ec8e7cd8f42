"""Stage 1: cut a history into the segments that extraction reads."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from prismem_core.errors import ProgramError
from prismem_core.tasks.history import History, Session, Turn

SEGMENT_CHARS = 12_000


@dataclass(frozen=True)
class Segment:
    """A piece of a history with the text extraction is shown."""

    text: str
    turn_ids: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """What one call of `index` covers: the segments its units come from and its raw text."""

    segments: tuple[Segment, ...]
    raw_text: str


def segment(history: History, segmentation: str = "session", segment_chars: int = SEGMENT_CHARS) -> list[Group]:
    """Groups in chronological order: one a session, or one a window for `window:LENGTH:STRIDE` (TriMem).

    A session's segments hold whole turns and at most `segment_chars` characters; a longer turn is its own segment.
    Raises ProgramError (`bad_segmentation`) for another value.
    """
    if segmentation == "session":
        return [Group(tuple(_session_segments(s, segment_chars)), s.text) for s in history.sessions]
    match = re.fullmatch(r"window:([1-9][0-9]*):([1-9][0-9]*)", segmentation)
    if match is None or int(match[2]) > int(match[1]):
        raise ProgramError(
            "bad_segmentation",
            f"Segmentation is {segmentation!r}; expected 'session' or 'window:LENGTH:STRIDE' "
            "with 1 <= STRIDE <= LENGTH",
        )
    return _windows(history, int(match[1]), int(match[2]))


def _session_segments(session: Session, segment_chars: int) -> list[Segment]:
    segments: list[Segment] = []
    lines: list[str] = []
    ids: list[str] = []
    size = len(session.header)
    for turn in session.turns:
        line = f"{turn.speaker}: {turn.text}"
        if lines and size + 1 + len(line) > segment_chars:
            segments.append(Segment("\n".join([session.header, *lines]), tuple(ids)))
            lines, ids, size = [], [], len(session.header)
        lines.append(line)
        ids.append(turn.id)
        size += 1 + len(line)
    if lines:
        segments.append(Segment("\n".join([session.header, *lines]), tuple(ids)))
    return segments


def _windows(history: History, length: int, stride: int) -> list[Group]:
    turns: list[tuple[Session, Turn]] = [(s, t) for s in history.sessions for t in s.turns]
    if not turns:
        return []
    count = max(1, math.ceil((len(turns) - length) / stride) + 1)
    groups = []
    for i in range(count):
        window = turns[i * stride : min(len(turns), i * stride + length)]
        text = "\n".join(f"[{t.id} | {s.timestamp}] {t.speaker}: {t.text}" for s, t in window)
        groups.append(Group((Segment(text, tuple(t.id for _, t in window)),), text))
    return groups
