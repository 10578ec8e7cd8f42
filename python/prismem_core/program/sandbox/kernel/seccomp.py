"""The boundary: an allow-list of system calls, as a classic BPF program that the kernel runs before each call.

A program needs no file, socket, process, signal or executable page of its own, so everything outside the list fails:
with EPERM, which Python raises as PermissionError, or with the end of the process for calls that only an attack makes.
Decisions use registers alone: memory that an argument points to could change after the look. See seccomp(2).
"""

from __future__ import annotations

import ctypes
import errno
import signal
from typing import Literal

from prismem_core.program.sandbox.kernel import bpf, calls

Fork = Literal["notify", "plain", "deny"]

ALLOWED = (
    "write",
    "sendto",
    "poll",
    "ppoll",
    "munmap",
    "brk",
    "mremap",
    "madvise",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sigaltstack",
    "sched_yield",
    "nanosleep",
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
HANDING_OVER = ("sendmsg", "prlimit64", "seccomp")
"""What a worker needs to hand over its listener, to bound its descriptors after that, and to give up these calls."""

CLOCKS = ("clock_gettime", "clock_getres", "clock_nanosleep")
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

CHANNEL = 3
"""The descriptor on which a worker, and each copy of it, hears the engine."""

BROUGHT = CHANNEL + 1
"""Where the kernel puts what an order brings: the lowest number that is free."""

_PROT_EXEC, _MAP_SHARED = 4, 1
_FUTEX_PRIVATE = 128
# The sign of a clock's number: it names the clock of a process or of an open file.
_DYNAMIC_CLOCK = 0x80000000
_X32_NUMBERS = 0x40000000

_SET_MODE_FILTER, _NEW_LISTENER = 1, 8


def build_filter(fork: Fork, architecture: calls.Architecture | None = None) -> bytes:
    """The program for this machine, or for `architecture`: `struct sock_filter` of 8 bytes each.

    Exactly the flags of fork() get the action that `fork` says (a supervisor decides, allowed, EPERM); other flags of
    clone, threads among them, end the process. Executable and shared memory are refused: the first would be code that
    no one saw, the second a channel between copies that answer different queries. Channels, too, would be the processor
    clocks of other processes, futexes on pages that processes share, the offset of a file that copies share, and the
    sockets of copies, which their parent could keep: so nothing is read but CHANNEL, and nothing closed but BROUGHT,
    beside which a worker has no room. prctl may only tie a process's life to its parent's. OSError if this machine's
    calls are not known.
    """
    of = architecture or calls.architecture()
    program = bpf.Assembler()

    def each(names: tuple[str, ...], action: str) -> None:
        for name in names:
            here = calls.number(name, of)
            if here is not None:
                program.test(bpf.EQUAL, here, then=action)

    program.load(bpf.ARCHITECTURE)
    program.test(bpf.EQUAL, of.audit, otherwise="kill")
    program.load(bpf.NUMBER)
    if of is calls.X86_64:
        program.test(bpf.AT_LEAST, _X32_NUMBERS, then="kill")
    each(ALLOWED, "allow")
    if fork == "notify":
        each(HANDING_OVER, "allow")
    each(KILLED, "kill")
    # The C library takes ENOSYS as a reason to use clone, whose flags can be seen.
    each(("clone3",), "absent")
    for name in ("mmap", "mprotect", "futex", "clone", "prctl"):
        each((name,), name)
    each(CLOCKS, "clock")
    each(("recvfrom", "recvmsg"), "hear")
    each(("close",), "close")
    each(("dup2", "dup3"), "replace")
    program.give(REFUSE)

    program.place("mmap")
    program.load_argument(3)
    program.test(bpf.ANY_BIT, _MAP_SHARED, then="refuse")
    program.place("mprotect")
    program.load_argument(2)
    program.test(bpf.ANY_BIT, _PROT_EXEC, then="refuse", otherwise="allow")

    program.place("futex")
    program.load_argument(1)
    program.test(bpf.ANY_BIT, _FUTEX_PRIVATE, then="allow", otherwise="refuse")

    program.place("clock")
    program.load_argument(0)
    program.test(bpf.ANY_BIT, _DYNAMIC_CLOCK, then="refuse", otherwise="allow")

    program.place("prctl")
    program.expect_argument(0, calls.PR_SET_PDEATHSIG, otherwise="refuse")
    program.expect_argument(1, signal.SIGKILL, otherwise="refuse")
    program.give(ALLOW)

    # Of a descriptor the kernel takes the low word alone.
    program.place("hear")
    program.load_argument(0)
    program.test(bpf.EQUAL, CHANNEL, then="allow", otherwise="refuse")
    program.place("close")
    program.load_argument(0)
    program.test(bpf.EQUAL, BROUGHT, then="allow", otherwise="refuse")
    program.place("replace")
    program.load_argument(1)
    program.test(bpf.EQUAL, CHANNEL, then="allow", otherwise="refuse")

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


def build_seal(architecture: calls.Architecture | None = None) -> bytes:
    """The program that takes HANDING_OVER away once the listener is handed over.

    Descriptors on their way count for a user as a whole: a program that sent many, which nobody receives, would keep
    every other worker of that user from handing over its listener.
    """
    of = architecture or calls.architecture()
    program = bpf.Assembler()
    program.load(bpf.NUMBER)
    for name in HANDING_OVER:
        here = calls.number(name, of)
        if here is not None:
            program.test(bpf.EQUAL, here, then="refuse")
    program.give(ALLOW)
    program.place("refuse")
    program.give(REFUSE)
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
