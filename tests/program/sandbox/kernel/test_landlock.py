"""Landlock by the ABI of the kernel at hand, and by those of other kernels."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable

import pytest

from prismem_core.program.sandbox.kernel import calls, landlock

needs_landlock = pytest.mark.skipif(landlock.abi() == 0, reason="this kernel has no Landlock")


@pytest.mark.parametrize(
    ("version", "attributes"),
    [
        (1, struct.pack("=Q", 0x1FFF)),
        (2, struct.pack("=Q", 0x3FFF)),
        (3, struct.pack("=Q", 0x7FFF)),
        (4, struct.pack("=QQ", 0x7FFF, 3)),
        (5, struct.pack("=QQ", 0xFFFF, 3)),
        (6, struct.pack("=QQQ", 0xFFFF, 3, 3)),
        (7, struct.pack("=QQQ", 0xFFFF, 3, 3)),
        (99, struct.pack("=QQQ", 0xFFFF, 3, 3)),
    ],
)
def test_each_abi_gets_all_that_it_knows_and_nothing_else(version: int, attributes: bytes) -> None:
    assert landlock.ruleset(version) == attributes


@pytest.mark.parametrize(
    ("version", "words"),
    [(1, "no files (ABI 1)"), (4, "no files, no TCP (ABI 4)"), (6, "no files, no TCP, no signals out (ABI 6)")],
)
def test_the_words_say_what_is_denied(version: int, words: str) -> None:
    assert landlock.words(version) == words


@pytest.mark.parametrize("reason", [errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_kernel_without_landlock_is_told_apart(reason: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(calls, "syscall", refuse)
    assert landlock.abi() == 0
    with pytest.raises(OSError, match=r"not in this kernel or is turned off; Linux 5.13 or later"):
        landlock.deny_all()


def _refusal(deed: Callable[[], object]) -> str:
    try:
        deed()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "worked"


def _bind() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))


def _deny() -> str:
    calls.prctl(calls.PR_SET_NO_NEW_PRIVS, 1)
    return landlock.deny_all()


@needs_landlock
def test_files_and_tcp_are_denied_and_what_is_open_stays(apart: Callable[..., str]) -> None:
    version = landlock.abi()

    def deed() -> str:
        held = os.open("/proc/self/stat", os.O_RDONLY)
        words = _deny()
        found = [
            _refusal(lambda: os.open("/", os.O_RDONLY)),
            _refusal(lambda: os.open("/tmp/made-by-nobody", os.O_CREAT | os.O_WRONLY)),
            _refusal(_bind),
            "read" if os.read(held, 10) else "empty",
        ]
        return f"{words}: {' '.join(found)}"

    tcp = "EACCES" if version >= 4 else "worked"
    assert apart(deed) == f"{landlock.words(version)}: EACCES EACCES {tcp} read"


@needs_landlock
@pytest.mark.parametrize("faked", [1, 3, 5])
def test_a_newer_kernel_takes_the_structures_of_older_ones(
    faked: int, apart: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if landlock.abi() < faked:
        pytest.skip("this kernel is older")
    monkeypatch.setattr(landlock, "abi", lambda: faked)

    def deed() -> str:
        words = _deny()
        return f"{words}: {_refusal(lambda: os.open('/', os.O_RDONLY))} {_refusal(_bind)}"

    tcp = "EACCES" if faked >= 4 else "worked"
    assert apart(deed) == f"{landlock.words(faked)}: EACCES {tcp}"


@needs_landlock
@pytest.mark.skipif(landlock.abi() < 6, reason="this kernel's Landlock leaves signals alone")
def test_no_signal_leaves(apart: Callable[..., str]) -> None:
    def deed() -> str:
        readable, writable = os.pipe()
        inner = os.fork()
        if inner == 0:
            before = _refusal(lambda: os.kill(os.getppid(), 0))
            _deny()
            after = _refusal(lambda: os.kill(os.getppid(), 0))
            itself = _refusal(lambda: os.kill(os.getpid(), 0))
            os.write(writable, f"{before} {after} {itself}".encode())
            os._exit(0)
        os.waitpid(inner, 0)
        return os.read(readable, 100).decode()

    assert apart(deed) == "worked EPERM worked"


@needs_landlock
def test_nothing_is_left_open(apart: Callable[..., str]) -> None:
    def deed() -> str:
        lowest = os.dup(0)
        os.close(lowest)
        _deny()
        after = os.dup(0)
        return str(after - lowest)

    assert apart(deed) == "0"


@needs_landlock
def test_it_needs_no_new_privileges_from_a_user() -> None:
    from prismem_core.program.sandbox.kernel import trial

    def deed() -> str:
        if os.geteuid() == 0:
            os.setresuid(65534, 65534, 65534)
        try:
            landlock.deny_all()
        except OSError as error:
            return str(error.strerror)
        return "denied all"

    assert trial.in_child(deed) == "landlock_restrict_self: Operation not permitted"
