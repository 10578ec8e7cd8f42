"""Throw-away children in which a layer is put on and tried, and the bounded wait for what they tell."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from prismem_core.program.sandbox.kernel import calls

# Only a child that hangs is ever waited for so long.
PATIENCE_SECONDS = 10.0

_MESSAGE_BYTES = 2000  # one atomic write to a pipe
_HELD, _MISSING = b"+", b"-"


class Missing(Exception):
    """A layer does not hold: what still worked, or why it could not be put on or tried."""


class Attempt(NamedTuple):
    """Something that a layer forbids; `do` raises OSError where it is refused."""

    words: str
    do: Callable[[], object]

    def works(self) -> bool:
        try:
            self.do()
        except OSError:
            return False
        return True


def compare(attempts: list[Attempt], put_on: Callable[[], object], kept: tuple[Attempt, ...] = ()) -> str:
    """Put a layer on this process and see that what worked before is refused after; in words what that was.

    `kept` has to go on working: an attempt that fails for another reason than the layer would tell nothing. Missing if
    the layer cannot be put on, if something still works or works no more, or if nothing had worked before.
    """
    tried = [attempt for attempt in attempts if attempt.works()]
    try:
        put_on()
    except OSError as error:
        raise Missing(error.strerror or str(error)) from error
    still = [attempt for attempt in tried if attempt.works()]
    if still:
        raise Missing(f"still possible: {_listed(still)}")
    lost = [attempt for attempt in kept if not attempt.works()]
    if lost:
        raise Missing(f"possible no more, though it should be: {_listed(lost)}")
    if not tried:
        raise Missing(f"cannot be tried, because this was refused before it too: {_listed(attempts)}")
    untried = [attempt for attempt in attempts if attempt not in tried]
    text = f"refused: {_listed(tried)}"
    return f"{text} (refused before it too: {_listed(untried)})" if untried else text


def _listed(attempts: list[Attempt]) -> str:
    return ", ".join(attempt.words for attempt in attempts)


class Child:
    """A process of its own session that runs `deed` and tells its result or its reason for Missing, once."""

    def __init__(self, deed: Callable[[], str]) -> None:
        self._started = time.monotonic()
        self.told, writable = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                calls.prctl(calls.PR_SET_PDEATHSIG, signal.SIGKILL)
                os.write(writable, _message(deed))
            finally:
                os._exit(0)
        os.close(writable)

    def wait_for(self, *descriptors: int) -> list[int]:
        """Those of `descriptors` that are readable or at their end; Missing if none is before the patience ends."""
        poll = select.poll()
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(max(0.0, self._started + PATIENCE_SECONDS - time.monotonic()) * 1000)
        if not ready:
            raise Missing(f"the process that tried it was still at it after {PATIENCE_SECONDS:g} s")
        return [descriptor for descriptor, _ in ready]

    def result(self) -> str:
        """What the deed returned; Missing if it raised, ended without a word or did not end in time."""
        self.wait_for(self.told)
        message = os.read(self.told, _MESSAGE_BYTES)
        text = message[1:].decode("utf-8", "replace")
        if message[:1] == _HELD:
            return text
        raise Missing(text or "the process that tried it ended without a word")

    def end(self) -> None:
        """Leave nothing of it: the child, what it forked, the pipe."""
        os.close(self.told)
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        # What it forked is in its group, and is handed on to this process where that is process 1.
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-self.pid, 0)


def _message(deed: Callable[[], str]) -> bytes:
    try:
        return _HELD + deed().encode()[: _MESSAGE_BYTES - 1]
    except Missing as missing:
        return _MISSING + str(missing).encode()[: _MESSAGE_BYTES - 1]
    except OSError as error:
        return _MISSING + (error.strerror or str(error)).encode()[: _MESSAGE_BYTES - 1]
    except BaseException as error:
        return _MISSING + f"{type(error).__name__}: {error}".encode()[: _MESSAGE_BYTES - 1]


def in_child(deed: Callable[[], str]) -> str:
    """What `deed` returned in a throw-away child; Missing as its `result` raises it."""
    child = Child(deed)
    try:
        return child.result()
    finally:
        child.end()
