"""Lengths of the soak tests: a short one that always runs, a long one behind the marker `soak`."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Crowd:
    """Processes that use one directory for so many seconds while so many of them are killed."""

    processes: int
    seconds: float
    kills: int


SHORT = Crowd(processes=4, seconds=8.0, kills=12)
LONG = Crowd(
    processes=int(os.environ.get("PRISMEM_SOAK_PROCESSES", "16")),
    seconds=float(os.environ.get("PRISMEM_SOAK_SECONDS", "300")),
    kills=int(os.environ.get("PRISMEM_SOAK_KILLS", "200")),
)
