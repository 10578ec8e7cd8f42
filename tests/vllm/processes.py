"""The processes below another one, told from later ones of the same number by when they began."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

PATIENCE_SECONDS = 600.0
"""Generous: a process that is starting looks for its owner when it has imported vLLM."""


class Process(NamedTuple):
    """`began` is in the kernel's ticks since its start; `line` is the command line or the title that replaced it."""

    number: int
    began: int
    line: str


def below(number: int) -> list[Process]:
    """The processes that descend from the one with that number, which lives."""
    parents: dict[int, int] = {}
    processes: list[Process] = []
    for entry in Path("/proc").iterdir():
        found = _read(int(entry.name)) if entry.name.isdigit() else None
        if found is not None:
            parents[int(entry.name)], process = found
            processes.append(process)

    def descends(other: int) -> bool:
        while other in parents and other != number:
            other = parents[other]
        return other == number

    return [process for process in processes if process.number != number and descends(process.number)]


def left_of(processes: Iterable[Process]) -> list[Process]:
    """Those that have not ended, once all have or a long time has passed."""
    wait_until(lambda: not _living(processes), lambda: None)
    return _living(processes)


def wait_until(holds: Callable[[], bool], check: Callable[[], None]) -> None:
    """Waits until something holds, or until a long time has passed; `check` may raise meanwhile."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds() and time.monotonic() < end:
        check()
        time.sleep(0.05)


def _living(processes: Iterable[Process]) -> list[Process]:
    now = [(process, _read(process.number)) for process in processes]
    return [process for process, found in now if found is not None and found[1].began == process.began]


def _read(number: int) -> tuple[int, Process] | None:
    """Its parent and what it is; None if it has ended, though nobody may have asked for its exit code yet."""
    try:
        fields = Path(f"/proc/{number}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        line = Path(f"/proc/{number}/cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ")
    except OSError:
        return None
    return None if fields[0] in "ZX" else (int(fields[1]), Process(number, int(fields[19]), line))
