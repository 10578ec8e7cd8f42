"""What runs below a process, by /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def children(pid: int) -> set[int]:
    try:
        return {int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    except OSError:
        return set()


def descendants(pid: int) -> set[int]:
    found = children(pid)
    for child in tuple(found):
        found |= descendants(child)
    return found


def running(pids: set[int]) -> set[int]:
    """Those of `pids` that exist and are no zombies."""
    alive = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            alive.add(pid)
    return alive


def open_descriptors() -> int:
    """How many files this process holds."""
    return len(os.listdir("/proc/self/fd"))


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
