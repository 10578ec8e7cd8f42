"""Bounds on what one process can take, which the kernel keeps for every process alike. See setrlimit(2)."""

from __future__ import annotations

import contextlib
import errno
import resource

# Three standard streams, the channel, and one more that an order may bring: with no room for another, and none of the
# first four ever closed, a worker cannot keep the channel of an earlier copy.
OPEN_FILES = 5
_OPEN_FILES_UNFILTERED = 16
_PROCESSES = 128
_STACK_BYTES = 8 << 20
# A second bound behind the engine's clock, for all calls of a worker together.
_CPU_SECONDS = 3600


def impose(memory_bytes: int, *, own_user: bool, filtered: bool = True, descriptors: bool = True) -> None:
    """Bound address space, descriptors, stack and processor time; no core dumps, no file writes, no locked memory.

    Only a process that the filter keeps from closing its own is held to OPEN_FILES; without `descriptors` that waits
    for `bound_descriptors`.

    With `own_user` the number of processes is bounded too: the kernel counts all those of a user, so a number has a
    meaning only where the user is the worker's own. Never raises a limit that is lower already. OSError if the system
    does not let a limit be lowered.
    """
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, 0)
    if descriptors:
        _lower(resource.RLIMIT_NOFILE, OPEN_FILES if filtered else _OPEN_FILES_UNFILTERED)
    _lower(resource.RLIMIT_STACK, _STACK_BYTES)
    _lower(resource.RLIMIT_MEMLOCK, 0)
    _lower(resource.RLIMIT_AS, memory_bytes)
    _lower(resource.RLIMIT_CPU, _CPU_SECONDS)
    # gVisor does not let this one be changed; the filter has no call for message queues anyway.
    with contextlib.suppress(OSError):
        _lower(resource.RLIMIT_MSGQUEUE, 0)
    if own_user:
        _lower(resource.RLIMIT_NPROC, _PROCESSES)


def bound_descriptors() -> None:
    """Hold this process to OPEN_FILES.

    The kernel holds all descriptors on their way of a user, such as orders of copies, against the limit of whoever
    sends one, so a process that has one to send does this after it.
    """
    _lower(resource.RLIMIT_NOFILE, OPEN_FILES)


def _lower(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    try:
        resource.setrlimit(which, (value, value))
    except ValueError as error:
        # Python's word for EPERM, which a system that has no such limit may answer.
        raise OSError(errno.EPERM, f"setrlimit({which}, {value}): {error}") from error
