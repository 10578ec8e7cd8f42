"""What a fresh worker gives up before it sees a program: session, limits, user, privileges.

Every step goes through `enter`, so a further layer (namespaces, Landlock, seccomp) is a line here and nowhere else.
Linux only; imports the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import resource
import signal

# prctl(2) numbers.
_PDEATHSIG, _DUMPABLE, _SUBREAPER, _NO_NEW_PRIVS = 1, 4, 36, 38

# A range that neither distributions nor container tools hand out; one user a worker, so workers cannot signal each
# other and a limit on processes counts one program alone.
_FIRST_UID, _UIDS = 0x70000000, 1 << 16
_NOBODY = 65534

# Descriptors 0 to 3 are taken for good; the next one is for the socket of a copy.
_OPEN_FILES = 5
_PROCESSES = 128
_STACK_BYTES = 8 << 20
_SHUT = (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    rest = [ctypes.c_ulong(0)] * 3
    if libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), *rest) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")


def adopt_orphans() -> None:
    """Make this process the parent of every orphaned descendant, so that none escapes its clean-up."""
    _prctl(_SUBREAPER, 1)


def prefer_in_shortage() -> None:
    """Let the kernel end this process and its children before others when memory runs out."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when `parent`, whose single thread forked it, ends; also if it just did."""
    _prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def enter(parent: int, serial: int, memory_bytes: int) -> None:
    """Confine this just forked process; `serial` chooses its user where the engine runs as root.

    OSError if a step that must hold everywhere fails; changing the user is tried and left out where it is refused.
    """
    os.setsid()
    own_user = os.geteuid() == 0 and _become(_FIRST_UID + serial % _UIDS)
    _limits(memory_bytes, own_user)
    _prctl(_NO_NEW_PRIVS, 1)
    _prctl(_DUMPABLE, 0)
    # After the change of user: the kernel forgets the parent-death signal there.
    die_with_parent(parent)


def open_up() -> None:
    """Let this process take a descriptor and fork: only while it waits for orders, never while program code runs."""
    for which in _SHUT:
        hard = resource.getrlimit(which)[1]
        resource.setrlimit(which, (hard, hard))


def shut(*, for_good: bool) -> None:
    """Let this process open no file, socket or pipe and start no process or thread; what it has keeps working.

    `for_good` cannot be undone. The kernel lets the true root fork all the same.
    """
    for which in _SHUT:
        hard = 0 if for_good else resource.getrlimit(which)[1]
        resource.setrlimit(which, (0, hard))


def limit_cpu(seconds: float) -> None:
    """A coarse second bound behind the engine's own clock: at most `seconds` more, rounded up, with slack."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = math.ceil(used.ru_utime + used.ru_stime + seconds) + 2
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _become(uid: int) -> bool:
    for candidate in (uid, _NOBODY):
        try:
            os.setgroups([])
            os.setresgid(candidate, candidate, candidate)
            os.setresuid(candidate, candidate, candidate)
        except OSError:
            continue
        return candidate == uid
    return False


def _limits(memory_bytes: int, own_user: bool) -> None:
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, 0)
    _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _lower(resource.RLIMIT_STACK, _STACK_BYTES)
    _lower(resource.RLIMIT_MEMLOCK, 0)
    _lower(resource.RLIMIT_AS, memory_bytes)
    _lower(resource.RLIMIT_MSGQUEUE, 0)
    if own_user:
        # The kernel counts all processes of a user, so a number has a meaning only where the user is the worker's own.
        _lower(resource.RLIMIT_NPROC, _PROCESSES)


def _lower(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))
