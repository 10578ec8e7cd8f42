"""What is timed: a call of ours, its rivals on the same data, the floor of its work and the goals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..floors import Work
from .stage import Stage
from .timing import Call


@dataclass(frozen=True)
class Goal:
    """`ours` ("best": the fastest of ours) is at least `ratio` times as fast as the rival `against`.

    "bandwidth": the floor's bytes at the rate of the measured copy are at least this share of the time. "memory": what
    a call adds is at most this share of a float32 matrix of scores. "rows": the time is at most this share of what it
    would take to read the plain rows.
    """

    ours: str
    against: str
    ratio: float


@dataclass(frozen=True)
class Contest:
    """Competitors ready to run: `agree` looks at one result of each and says what is wrong, or None.

    `missing` tells why a competitor does not take part; `sets` is how many sets of inputs calls go round;
    `capturable` names ours that a graph may hold; `matrix_bytes` is the size of the scores as a float32 matrix,
    `row_bytes` that of the rows that codes stand for.
    """

    competitors: Mapping[str, Call]
    agree: Callable[[Mapping[str, Any]], Mapping[str, str | None]]
    missing: Mapping[str, str] = field(default_factory=dict)
    sets: int = 1
    capturable: tuple[str, ...] = ()
    matrix_bytes: int = 0
    row_bytes: float = 0.0


@dataclass(frozen=True)
class Timed:
    """A case: `make(stage)` prepares a contest; `seconds` is about what it takes on a GPU in all."""

    name: str
    work: Callable[[bool], Work]
    make: Callable[[Stage], Contest]
    goals: tuple[Goal, ...] = ()
    seconds: float = 8.0


def all_cases() -> Iterator[Timed]:
    """Every case, in the order of how sorely it is missed when time runs out."""
    from . import codes, diagnostics, search, selection

    yield from (*search.CASES[:3], *selection.CASES[:1], *diagnostics.CASES, *codes.CASES)
    yield from (*search.CASES[3:], *selection.CASES[1:])
