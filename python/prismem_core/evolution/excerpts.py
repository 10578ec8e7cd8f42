"""How much of everything a prompt of the designer shows, and the plain cut of short texts.

Original and retrieved texts and units are cut by what bears on the case (`evaluation/compaction`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prismem_core.evaluation.compaction import MARK


@dataclass(frozen=True)
class Extent:
    """How much a prompt shows; None is no bound.

    `excerpt` is the budget in characters of a displayed text (original, retrieved, answer) and of the units of a piece
    of evidence, `code` that of an earlier attempt's diff; the others count pieces of evidence of a case, cases, earlier
    revisions and attempts.
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


def beginning(text: str, budget: int) -> str:
    """`text` within `budget` characters: unchanged where it fits, else its first whole lines and `(...)`.

    A first line that alone exceeds the budget is cut.
    """
    if len(text) <= budget:
        return text
    room = max(1, budget - len(MARK) - 1)
    end = text.rfind("\n", 0, room + 1)
    return f"{text[: end if end > 0 else room]}\n{MARK}"
