"""Ties a process of an engine to the one that started it, so that none is left behind, however that one ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from multiprocessing.context import get_spawning_popen
from typing import Any

_LOOK_SECONDS = 0.5

KEY = "prismem_leash"
"""Its place in vLLM's `additional_config`."""


class Leash(str):
    """A text that travels in an engine's configuration; the process that a pickle of it is spawned into leaves the
    process group of the terminal and ends itself once its parent has gone.

    vLLM hands its configuration to each process that it spawns, the engine and the workers of the engine. Copies and
    other pickles are the plain text; a forked process is not held. Its value never changes, since vLLM's compilation
    cache is keyed by it.
    """

    def __new__(cls) -> Leash:
        return super().__new__(cls, "held")

    def __reduce__(self) -> tuple[Any, ...]:
        spawning = get_spawning_popen()
        if getattr(spawning, "method", None) == "spawn":
            return _held, (os.getpid(),)
        return Leash, ()


def _held(parent: int) -> Leash:
    """The same in the new process, whose parent may have gone while it was starting."""
    # The parent of a process is another as soon as the first has ended, and its number cannot be another's before.
    if os.getppid() != parent:
        _end()
    # A Ctrl-C is the owner's to hear, which then ends the engine in order; vLLM's processes would print tracebacks.
    os.setpgid(0, 0)
    threading.Thread(target=_watch, args=(parent,), name="prismem-leash", daemon=True).start()
    return Leash()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    _end()


def _end() -> None:
    # vLLM turns SIGTERM into a request that a process which is starting or hanging does not get to.
    os.kill(os.getpid(), signal.SIGKILL)
