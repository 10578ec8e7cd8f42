"""What a designer is shown of a long text: whole lines within a budget of characters, and how much of everything.

The cut is plain: lines around the evidence where it stands in the text, else the first ones. `excerpt` and
`units_within` are the one place that decides what is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prismem_core.tasks.text import dice

MARK = "(...)"
_MARKS = 2 * (len(MARK) + 1)


@dataclass(frozen=True)
class Extent:
    """How much a prompt shows; None is no bound.

    `excerpt` is the budget in characters of a displayed text (original, retrieved, answer, units), `code` that of an
    earlier attempt's diff; the others count pieces of evidence of a case, cases, earlier revisions and attempts.
    `whole_sources` is False where specialists are shown as diffs against the base.
    """

    excerpt: int = 2400
    code: int | None = None
    evidence: int | None = None
    cases: int | None = None
    records: int | None = None
    attempts: int | None = None
    whole_sources: bool = True


# From everything to the least that is still worth a call; a prompt takes the first that fits.
EXTENTS: tuple[Extent, ...] = (
    Extent(),
    Extent(1200, records=24),
    Extent(1200, 12_000, evidence=8, records=12),
    Extent(600, 12_000, evidence=6, records=8, attempts=6),
    Extent(600, 8_000, evidence=4, records=6, attempts=4, whole_sources=False),
    Extent(300, 6_000, evidence=3, records=4, attempts=3, whole_sources=False),
    Extent(300, 4_000, evidence=2, cases=3, records=3, attempts=2, whole_sources=False),
    Extent(200, 2_000, evidence=1, cases=2, records=2, attempts=1, whole_sources=False),
    Extent(200, 1_000, evidence=1, cases=1, records=0, attempts=1, whole_sources=False),
)


def fitted(render: Callable[[Extent], tuple[str, str]], limit: int) -> tuple[str, str]:
    """The richest system and prompt text of at most `limit` characters, the shortest where none fits."""
    system = prompt = ""
    for extent in EXTENTS:
        system, prompt = render(extent)
        if len(system) + len(prompt) <= limit:
            break
    return system, prompt


def excerpt(text: str, budget: int, focus: Sequence[str] = ()) -> str:
    """`text` within `budget` characters, markers counted: unchanged where it fits, else whole lines in one piece.

    The lines are those around the first of `focus` that stands in the text, or the first ones; `(...)` marks what was
    left out. A line that alone exceeds the budget is cut.
    """
    if len(text) <= budget:
        return text
    room = max(1, budget - _MARKS)
    place = next((at for at in (text.find(snippet) for snippet in focus if snippet) if at >= 0), 0)
    lines = text.split("\n")
    low = text.count("\n", 0, place)
    high = low + 1
    size = len(lines[low])
    if size > room:
        column = place - (text.rfind("\n", 0, place) + 1)
        start = max(0, min(column, size - room))
        end = start + room
        return _marked(lines[low][start:end], low > 0 or start > 0, end < size or high < len(lines))
    while True:
        shown = low, high
        if high < len(lines) and size + 1 + len(lines[high]) <= room:
            size, high = size + 1 + len(lines[high]), high + 1
        if low > 0 and size + 1 + len(lines[low - 1]) <= room:
            size, low = size + 1 + len(lines[low - 1]), low - 1
        if shown == (low, high):
            break
    return _marked("\n".join(lines[low:high]), low > 0, high < len(lines))


def units_within(units: Sequence[str], budget: int, snippet: str) -> list[str]:
    """Distinct units in their order, the likest to `snippet` first to be kept; at least one, however long it is."""
    distinct = list(dict.fromkeys(units))
    if sum(map(len, distinct)) + len(distinct) - 1 <= budget:
        return distinct
    likest = sorted(range(len(distinct)), key=lambda i: (-round(dice(distinct[i], snippet), 9), i))
    kept, used = {likest[0]}, len(distinct[likest[0]])
    for i in likest[1:]:
        if used + 1 + len(distinct[i]) <= budget:
            kept.add(i)
            used += 1 + len(distinct[i])
    return [unit for i, unit in enumerate(distinct) if i in kept]


def _marked(piece: str, before: bool, after: bool) -> str:
    return f"{MARK}\n" * before + piece + f"\n{MARK}" * after
