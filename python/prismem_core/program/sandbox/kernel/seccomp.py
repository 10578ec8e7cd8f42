"""The boundary: an allow-list of system calls, as a classic BPF program that the kernel runs before each call.

A program needs no file, socket, process, signal or executable page of its own, so everything outside the list fails:
with EPERM, which Python raises as PermissionError, or with the end of the process for calls that only an attack makes.
Decisions use registers alone: memory that an argument points to could change after the look. See seccomp(2).
"""

from __future__ import annotations

import ctypes
import errno
import signal
import struct
from typing import Literal

from prismem_core.program.sandbox.kernel import calls

Fork = Literal["notify", "plain", "deny"]

ALLOWED = (
    "read",
    "write",
    "recvmsg",
    "sendmsg",
    "recvfrom",
    "sendto",
    "poll",
    "ppoll",
    "close",
    "munmap",
    "brk",
    "mremap",
    "madvise",
    "futex",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sigaltstack",
    "sched_yield",
    "nanosleep",
    "clock_nanosleep",
    "clock_gettime",
    "clock_getres",
    "gettimeofday",
    "time",
    "getpid",
    "getppid",
    "gettid",
    "getrusage",
    "exit",
    "exit_group",
    "set_robust_list",
    "rseq",
    "getrandom",
    "restart_syscall",
)
KILLED = (
    "execve",
    "execveat",
    "vfork",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "pidfd_getfd",
    "unshare",
    "setns",
    "mount",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "io_uring_setup",
    "keyctl",
    "kexec_load",
    "init_module",
    "finit_module",
)

KILL_PROCESS, ERRNO, USER_NOTIF, ALLOW = 0x80000000, 0x00050000, 0x7FC00000, 0x7FFF0000
REFUSE, ABSENT = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS

# CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD: all that fork() of the C library passes; a thread passes more.
FORK_FLAGS = 0x01200000 | signal.SIGCHLD

_PROT_EXEC, _MAP_SHARED = 4, 1
_X32_NUMBERS = 0x40000000

# Where struct seccomp_data keeps the number, the architecture and the six 64-bit arguments (low word first).
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06

_SET_MODE_FILTER, _NEW_LISTENER = 1, 8


class _Assembler:
    """Instructions whose jumps name places; the empty name is the next instruction."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, int, str, str]] = []
        self._places: dict[str, int] = {}

    def place(self, name: str) -> None:
        self._places[name] = len(self._steps)

    def load(self, offset: int) -> None:
        self._steps.append((_LOAD, offset, "", ""))

    def load_argument(self, index: int, word: int = 0) -> None:
        self.load(_ARGUMENTS + 8 * index + 4 * word)

    def test(self, kind: int, value: int, *, then: str = "", otherwise: str = "") -> None:
        self._steps.append((kind, value, then, otherwise))

    def expect_argument(self, index: int, value: int, *, otherwise: str) -> None:
        """Go on only if the whole argument is `value`, which fits the low word."""
        self.load_argument(index)
        self.test(_EQUAL, value, otherwise=otherwise)
        self.load_argument(index, word=1)
        self.test(_EQUAL, 0, otherwise=otherwise)

    def give(self, action: int) -> None:
        self._steps.append((_RETURN, action, "", ""))

    def assemble(self) -> bytes:
        return b"".join(
            struct.pack("=HBBI", code, self._distance(at, then), self._distance(at, otherwise), value)
            for at, (code, value, then, otherwise) in enumerate(self._steps)
        )

    def _distance(self, at: int, name: str) -> int:
        return self._places[name] - at - 1 if name else 0


def build_filter(fork: Fork, architecture: calls.Architecture | None = None) -> bytes:
    """The program for this machine, or for `architecture`: `struct sock_filter` of 8 bytes each.

    Exactly the flags of fork() get the action that `fork` says (a supervisor decides, allowed, EPERM); other flags of
    clone, threads among them, end the process. Executable and shared memory are refused: the first would be code that
    no one saw, the second a channel between copies that answer different queries. prctl may only tie a process's life
    to its parent's. OSError if this machine's calls are not known.
    """
    of = architecture or calls.architecture()
    program = _Assembler()

    def each(names: tuple[str, ...], action: str) -> None:
        for name in names:
            here = calls.number(name, of)
            if here is not None:
                program.test(_EQUAL, here, then=action)

    program.load(_ARCHITECTURE)
    program.test(_EQUAL, of.audit, otherwise="kill")
    program.load(_NUMBER)
    if of is calls.X86_64:
        program.test(_AT_LEAST, _X32_NUMBERS, then="kill")
    each(ALLOWED, "allow")
    each(KILLED, "kill")
    # The C library takes ENOSYS as a reason to use clone, whose flags can be seen.
    each(("clone3",), "absent")
    for name in ("mmap", "mprotect", "clone", "prctl"):
        each((name,), name)
    program.give(REFUSE)

    program.place("mmap")
    program.load_argument(3)
    program.test(_ANY_BIT, _MAP_SHARED, then="refuse")
    program.place("mprotect")
    program.load_argument(2)
    program.test(_ANY_BIT, _PROT_EXEC, then="refuse", otherwise="allow")

    program.place("prctl")
    program.expect_argument(0, calls.PR_SET_PDEATHSIG, otherwise="refuse")
    program.expect_argument(1, signal.SIGKILL, otherwise="refuse")
    program.give(ALLOW)

    program.place("clone")
    program.expect_argument(0, FORK_FLAGS, otherwise="kill")
    program.give({"notify": USER_NOTIF, "plain": ALLOW, "deny": REFUSE}[fork])

    program.place("refuse")
    program.give(REFUSE)
    program.place("absent")
    program.give(ABSENT)
    program.place("kill")
    program.give(KILL_PROCESS)
    program.place("allow")
    program.give(ALLOW)
    return program.assemble()


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def install(program: bytes, *, listener: bool) -> int | None:
    """Put the filter on this thread for good; it must have `no_new_privs`. OSError if the kernel refuses.

    With `listener` returns the descriptor on which a supervisor receives the calls that the filter leaves to one.
    Without it such calls fail with ENOSYS.
    """
    described = _Program(len(program) // 8, program)
    flags = _NEW_LISTENER if listener else 0
    result = calls.syscall("seccomp", _SET_MODE_FILTER, flags, ctypes.addressof(described))
    return result if listener else None
