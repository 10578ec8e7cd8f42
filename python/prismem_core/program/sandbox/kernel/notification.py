"""A supervisor's half of seccomp's user notification: receive a call that a filter left to it, answer it.

Only register arguments may decide an answer, because another thread could change memory after the look. See
seccomp_unotify(2).
"""

from __future__ import annotations

import errno
import fcntl
import struct
from typing import NamedTuple

# ioctl(2) requests of a listener and the structures they take (linux/seccomp.h).
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_NOTIFICATION_BYTES = 80
_NUMBER_AND_PID = struct.Struct("=QI")
_RESPONSE = struct.Struct("=QqiI")
_CONTINUE = 1


class Waiting(NamedTuple):
    """A call that waits for its answer: `pid` of the caller as this process's namespace numbers it."""

    number: int
    pid: int


def receive(listener: int) -> Waiting | None:
    """The next waiting call, blocking until there is one; None if its caller ended meanwhile.

    OSError if the descriptor is no listener.
    """
    notification = bytearray(_NOTIFICATION_BYTES)
    try:
        fcntl.ioctl(listener, _RECEIVE, notification)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    return Waiting(*_NUMBER_AND_PID.unpack_from(notification))


def let(listener: int, call: Waiting) -> None:
    """Have the kernel carry the call out; OSError (EINVAL) before Linux 5.5, (ENOENT) if the caller ended."""
    fcntl.ioctl(listener, _SEND, _RESPONSE.pack(call.number, 0, 0, _CONTINUE))


def refuse(listener: int, call: Waiting) -> None:
    """Have the call fail with EPERM; OSError (ENOENT) if the caller ended."""
    fcntl.ioctl(listener, _SEND, _RESPONSE.pack(call.number, 0, -errno.EPERM, 0))
