"""What a job is: competitors over the same data, a check of each result, goals, and what the work costs at least."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

OURS = "prismem-core"

Run = Callable[[], Any]


class PeerMissing(Exception):
    """A competitor cannot take part; the text is the reason, for the report."""


@dataclass(frozen=True)
class Work:
    """What a competitor cannot do without: bytes it must read at least once, float operations, products of bytes."""

    bytes_read: float = 0.0
    flops: float = 0.0
    products: float = 0.0


@dataclass(frozen=True)
class Competitor:
    """One way to do the job. `make` builds what it needs (that time is reported apart) and returns the call to time.

    `accuracy` is "exact", "lossy" (another answer is possible by design; its recall is reported) or a word for what
    is left out, such as "sum only". `work` is the least that this way must move and compute, None where it is unknown;
    a rate above the limits for it is a fault of the benchmark. `make` raises PeerMissing where it cannot take part.
    """

    name: str
    library: str
    make: Callable[[], Run]
    accuracy: str = "exact"
    work: Work | None = None

    @property
    def ours(self) -> bool:
        """Whether it is a way of this project."""
        return self.library == OURS


@dataclass(frozen=True)
class Finding:
    """What the check of a result came to: a complaint or "", and figures such as the recall.

    `costs` are what the competitor takes besides the time of the call, each the less the better and named with its unit
    ("disk_bytes", "reopen_seconds").
    """

    complaint: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)


def _nothing() -> None:
    pass


def _no_seconds() -> float:
    return 0.0


@dataclass(frozen=True)
class Contest:
    """The prepared job. `fp32` is what a float32 program must read and compute: the limit that percentages refer to.

    `finish` is called after the measurement, however it ended: it closes and removes what the competitors opened.
    `other_seconds` are processor seconds so far that count beside those of this process and of the processes it waited
    for; what it takes away is left out. They do not enter wall times.
    """

    data: str
    shape: dict[str, int]
    competitors: Sequence[Competitor]
    check: Callable[[Competitor, Any], Finding]
    fp32: Work
    finish: Callable[[], None] = _nothing
    other_seconds: Callable[[], float] = _no_seconds


@dataclass(frozen=True)
class Goal:
    """`ours` shall be `ratio` times as fast as `against`.

    `against` is BEST_EXACT, the name of a competitor, or FP32_LIMIT: the time the machine needs at least for the
    float32 work of the job. With `cost` it is not the time but this cost that shall be that much smaller; against
    AT_MOST, `ratio` is the most that the cost, or the seconds without one, may be.
    """

    ours: str
    against: str
    ratio: float
    cost: str = ""


BEST_EXACT = "best exact peer"
FP32_LIMIT = "float32 limit"
AT_MOST = "at most"


@dataclass(frozen=True)
class Job:
    """A named measurement. `prepare(quick)` makes the data; quick shapes take seconds and judge no goal."""

    name: str
    summary: str
    prepare: Callable[[bool], Contest]
    goals: tuple[Goal, ...] = ()
    threads: int = 1

    @property
    def op(self) -> str:
        """The part of the name before the slash."""
        return self.name.partition("/")[0]


def require(module: str, distribution: str, *, extra: bool = True) -> ModuleType:
    """An optional library, imported now; PeerMissing says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        remedy = "pip install 'prismem-core[bench]'" if extra else f"pip install {distribution}"
        if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
            raise PeerMissing(f"{distribution} is not installed ({remedy})") from error
        raise PeerMissing(f"{distribution} cannot be imported: {error}") from error
