"""Lengths of the soak tests: a short one that always runs, a long one behind the marker `soak`."""

from __future__ import annotations

import os
from dataclasses import dataclass

AMPLE_DISK = 4 << 30
"""Enough that nothing is evicted: what was acknowledged must be there."""

TIGHT_DISK = 5 << 19
"""So little that entries go all the time: what is there must be right, and no older version may come back."""


@dataclass(frozen=True)
class Crowd:
    """Processes that use one directory for so many seconds while so many of them are killed."""

    processes: int
    seconds: float
    kills: int
    disk_bytes: int = AMPLE_DISK


SHORT = Crowd(processes=4, seconds=8.0, kills=12)
SHORT_TIGHT = Crowd(processes=3, seconds=4.0, kills=6, disk_bytes=TIGHT_DISK)
LONG = Crowd(
    processes=int(os.environ.get("PRISMEM_SOAK_PROCESSES", "16")),
    seconds=float(os.environ.get("PRISMEM_SOAK_SECONDS", "300")),
    kills=int(os.environ.get("PRISMEM_SOAK_KILLS", "200")),
)
LONG_TIGHT = Crowd(LONG.processes, LONG.seconds / 5, LONG.kills // 5, TIGHT_DISK)
