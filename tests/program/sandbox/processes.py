"""What runs below a process, by /proc."""

from __future__ import annotations

import contextlib
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


SEALED = "/memfd:rows"


def open_descriptors() -> int:
    """How many files this process holds, without the sealed rows that a sandbox keeps until it is closed."""
    return sum(not link.startswith(SEALED) for link in _links())


def sealed_rows() -> int:
    """How many files of sealed rows this process holds."""
    return sum(link.startswith(SEALED) for link in _links())


def _links() -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        # The listing's own descriptor is gone by now.
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
