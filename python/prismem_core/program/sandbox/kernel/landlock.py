"""A second layer: no file system access, no TCP, no signals to the outside, for this process and all it forks.

Landlock needs no privilege but `no_new_privs`. What it can deny depends on its ABI version. See landlock(7).
"""

from __future__ import annotations

import ctypes
import errno
import os

from prismem_core.program.sandbox.kernel import calls

_VERSION = 1

# The access rights of files that each ABI knows, as the number of low bits; later ones are those of ABI 5.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
_ALL_FILE_RIGHTS = 16
_TCP = 0b11  # bind, connect
_SCOPES = 0b11  # abstract UNIX sockets, signals
TCP_SINCE, SCOPES_SINCE = 4, 6


class _Ruleset(ctypes.Structure):
    """struct landlock_ruleset_attr; an older kernel takes only the part it knows."""

    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64)]


def abi() -> int:
    """The version of Landlock in this kernel, 0 where there is none or it is turned off."""
    try:
        return calls.syscall("landlock_create_ruleset", 0, 0, _VERSION)
    except OSError:
        return 0


def ruleset(version: int) -> bytes:
    """The attributes that deny all that ABI `version` (1 or more) can deny, of the size that it knows."""
    files = (1 << _FILE_RIGHTS.get(version, _ALL_FILE_RIGHTS)) - 1
    attributes = bytes(_Ruleset(files, _TCP, _SCOPES))
    known = 1 if version < TCP_SINCE else 2 if version < SCOPES_SINCE else 3
    return attributes[: 8 * known]


def deny_all() -> str:
    """Deny all that this kernel's Landlock can; in words what that is.

    Open descriptors go on working. OSError if Landlock is missing or the process lacks `no_new_privs`.
    """
    version = abi()
    if version < 1:
        raise OSError(errno.ENOSYS, "Landlock is not in this kernel or is turned off; Linux 5.13 or later has it")
    attributes = ruleset(version)
    descriptor = calls.syscall("landlock_create_ruleset", calls.address(attributes), len(attributes), 0)
    try:
        calls.syscall("landlock_restrict_self", descriptor, 0)
    finally:
        os.close(descriptor)
    return words(version)


def words(version: int) -> str:
    """What ABI `version` denies."""
    denied = ["no files", *["no TCP"] * (version >= TCP_SINCE), *["no signals out"] * (version >= SCOPES_SINCE)]
    return f"{', '.join(denied)} (ABI {version})"
