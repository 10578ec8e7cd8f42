"""The user and the capabilities of a process, given up for good."""

from __future__ import annotations

import ctypes
import os

from prismem_core.program.sandbox.kernel import calls

SPARE_USERS = range(0x70000000, 0x70010000)
"""A range that neither distributions nor container tools hand out, so that each worker can have a user of its own."""

_NOBODY = 65534
_CAPABILITY_VERSION_3 = 0x20080522


class _Header(ctypes.Structure):
    """struct __user_cap_header_struct; pid 0 is the caller."""

    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Sets(ctypes.Structure):
    """Two struct __user_cap_data_struct: effective, permitted and inheritable, low and high words."""

    _fields_ = [("words", ctypes.c_uint32 * 6)]


_HEADER = _Header(_CAPABILITY_VERSION_3, 0)
_NONE = _Sets()


def become(uid: int) -> bool:
    """Change for good to user and group `uid` without further groups; whether that worked.

    Where it is refused, `nobody` is tried, which separates from the engine though not from other workers.
    """
    for candidate in (uid, _NOBODY):
        try:
            os.setgroups([])
            os.setresgid(candidate, candidate, candidate)
            os.setresuid(candidate, candidate, candidate)
        except OSError:
            continue
        return candidate == uid
    return False


def drop_capabilities() -> None:
    """Give up every capability; OSError if the kernel refuses, which it has no reason to."""
    # The kernel writes its own version into the header only where it does not know this one.
    calls.syscall("capset", ctypes.addressof(_HEADER), ctypes.addressof(_NONE))
