"""Sandboxes that may be around the engine, made of one filter: `python outer_sandbox.py NAME COMMAND...`."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

from prismem_core.program.sandbox.kernel import bpf, calls, seccomp

# CLONE_NEW* but the time namespace, which shares its bit with the exit signal.
_NEW_NAMESPACES = 0x7E020000

# Capabilities that the common container tools leave to root, by number; the others are gone for good.
_CONTAINER_CAPABILITIES = {0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31}
_LAST_CAPABILITY = 40
_PR_CAPBSET_DROP = 24


def refusing(**answers: int) -> bytes:
    """A filter that allows all calls but those named, which fail with an errno; `clone`: only for new namespaces."""
    here = calls.architecture()
    program = bpf.Assembler()
    program.load(bpf.NUMBER)
    for name in answers:
        number = calls.number(name, here)
        if number is not None:
            program.test(bpf.EQUAL, number, then=name)
    program.give(seccomp.ALLOW)
    for name, answer in answers.items():
        program.place(name)
        if name == "clone":
            program.load_argument(0)
            program.test(bpf.ANY_BIT, _NEW_NAMESPACES, otherwise="allow")
        program.give(seccomp.ERRNO | answer)
    program.place("allow")
    program.give(seccomp.ALLOW)
    return program.assemble()


def container() -> None:
    """As in a container of the common tools: no namespaces, no mounts, few capabilities."""
    if os.geteuid() == 0:
        for number in set(range(_LAST_CAPABILITY + 1)) - _CONTAINER_CAPABILITIES:
            calls.prctl(_PR_CAPBSET_DROP, number)
    names = ("unshare", "mount", "umount2", "pivot_root", "setns", "clone", "bpf", "perf_event_open", "keyctl")
    _filter(**dict.fromkeys((*names, "userfaultfd", "io_uring_setup"), errno.EPERM), clone3=errno.ENOSYS)


def without_landlock() -> None:
    """As an older kernel, or a container tool older than Landlock."""
    _filter(landlock_create_ruleset=errno.ENOSYS)


def without_notification() -> None:
    """As where another supervisor holds the one listener that a process can have."""
    program = bpf.Assembler()
    program.load(bpf.NUMBER)
    program.test(bpf.EQUAL, calls.number("seccomp", calls.architecture()) or 0, otherwise="allow")
    program.load_argument(1)
    program.test(bpf.ANY_BIT, 8, otherwise="allow")
    program.give(seccomp.ERRNO | errno.EBUSY)
    program.place("allow")
    program.give(seccomp.ALLOW)
    _install(program.assemble())


def without_seccomp() -> None:
    """As a kernel that has none."""
    _filter(seccomp=errno.ENOSYS)


def _filter(**answers: int) -> None:
    _install(refusing(**answers))


def _install(program: bytes) -> None:
    calls.prctl(calls.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install(program, listener=False)


KINDS: dict[str, Callable[[], None]] = {
    "nothing": lambda: None,
    "container": container,
    "without-landlock": without_landlock,
    "without-notification": without_notification,
    "without-seccomp": without_seccomp,
}


if __name__ == "__main__":
    KINDS[sys.argv[1]]()
    os.execv(sys.argv[2], sys.argv[2:])
