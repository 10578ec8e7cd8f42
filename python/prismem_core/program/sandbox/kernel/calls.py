"""System calls that the standard library has no name for, made through ctypes; Linux on x86-64 and aarch64.

The numbers of aarch64 are those of the kernel's generic table; they have not been run on such a machine.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from typing import NamedTuple


class Architecture(NamedTuple):
    """How system calls are told apart: `audit` is the AUDIT_ARCH_ value, `column` a place in `NUMBERS`."""

    name: str
    audit: int
    column: int


X86_64 = Architecture("x86_64", 0xC000003E, 0)
AARCH64 = Architecture("aarch64", 0xC00000B7, 1)

# Name: number on x86-64, number on aarch64; None where the call does not exist.
NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "poll": (7, None),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "dup2": (33, None),
    "nanosleep": (35, 101),
    "getpid": (39, 172),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "sendmsg": (46, 211),
    "recvmsg": (47, 212),
    "clone": (56, 220),
    "vfork": (58, None),
    "execve": (59, 221),
    "exit": (60, 93),
    "gettimeofday": (96, 169),
    "getrusage": (98, 165),
    "ptrace": (101, 117),
    "getppid": (110, 173),
    "capset": (126, 91),
    "sigaltstack": (131, 132),
    "pivot_root": (155, 41),
    "prctl": (157, 167),
    "mount": (165, 40),
    "umount2": (166, 39),
    "init_module": (175, 105),
    "gettid": (186, 178),
    "time": (201, None),
    "futex": (202, 98),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "ppoll": (271, 73),
    "unshare": (272, 97),
    "set_robust_list": (273, 99),
    "dup3": (292, 24),
    "perf_event_open": (298, 241),
    "prlimit64": (302, 261),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "finit_module": (313, 273),
    "seccomp": (317, 277),
    "getrandom": (318, 278),
    "bpf": (321, 280),
    "execveat": (322, 281),
    "userfaultfd": (323, 282),
    "rseq": (334, 293),
    "io_uring_setup": (425, 425),
    "clone3": (435, 435),
    "pidfd_getfd": (438, 438),
    "landlock_create_ruleset": (444, 444),
    "landlock_restrict_self": (446, 446),
}

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = [ctypes.c_long] * 7


@functools.cache
def architecture() -> Architecture:
    """This machine's; OSError (ENOSYS) if its calls are not known here. A confined process cannot ask for it again."""
    name = os.uname().machine
    for known in (X86_64, AARCH64):
        if known.name == name:
            return known
    raise OSError(errno.ENOSYS, f"system calls of {name!r} are not known; expected a 64-bit x86_64 or aarch64 kernel")


def number(name: str, of: Architecture) -> int | None:
    """The number of a system call, None where that architecture has no such call; KeyError for an unknown name."""
    return NUMBERS[name][of.column]


def syscall(name: str, *arguments: int) -> int:
    """Make a call with up to six integers or addresses; OSError that names the call if the kernel refuses it."""
    return _checked(name, name, arguments)


def address(text: bytes) -> int:
    """Where the bytes lie, a zero behind them; the caller keeps them for as long as the address is used."""
    return ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value or 0


def prctl(option: int, value: int) -> None:
    """Set one attribute of this process; OSError if the kernel refuses it."""
    _checked("prctl", f"prctl({option}, {value})", (option, value))


def _checked(name: str, told: str, arguments: tuple[int, ...]) -> int:
    here = number(name, architecture())
    if here is None:
        raise OSError(errno.ENOSYS, f"{told}: no such system call on this processor")
    result: int = _syscall(here, *arguments, *[0] * (6 - len(arguments)))
    if result < 0:
        reason = ctypes.get_errno()
        raise OSError(reason, f"{told}: {os.strerror(reason)}")
    return result
