"""The filter, instruction by instruction on both architectures, and on this machine's kernel."""

from __future__ import annotations

import errno
import mmap
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest

from prismem_core.program.sandbox.kernel import bpf, calls, seccomp, trial

KILL, EPERM, ENOSYS, NOTIFY, ALLOW = 0x80000000, 0x00050001, 0x00050026, 0x7FC00000, 0x7FFF0000

# Read from the kernel's tables, not from the module under test. What needs a look at arguments is as all zeros find it.
ALLOWED = {
    calls.X86_64: {1, 7, 11, 12, 14, 15, 24, 25, 28, 35, 39, 44, 60, 96, 98, 110, 131, 186, 201}
    | {219, 228, 229, 230, 231, 271, 273, 318, 334},
    calls.AARCH64: {64, 73, 93, 94, 99, 101, 113, 114, 115, 124, 128, 132, 135, 139, 165, 169, 172, 173}
    | {178, 206, 214, 215, 216, 233, 278, 293},
}
KILLED = {
    calls.X86_64: {58, 59, 101, 165, 175, 246, 250, 272, 298, 308, 310, 311, 313, 321, 322, 323, 425, 438},
    calls.AARCH64: {40, 97, 104, 105, 117, 219, 221, 241, 268, 270, 271, 273, 280, 281, 282, 425, 438},
}
MMAP, MPROTECT, CLONE, PRCTL, CLONE3, FUTEX = "mmap", "mprotect", "clone", "prctl", "clone3", "futex"
ARGUED = {
    calls.X86_64: {MMAP: 9, MPROTECT: 10, CLONE: 56, PRCTL: 157, CLONE3: 435, FUTEX: 202},
    calls.AARCH64: {MMAP: 222, MPROTECT: 226, CLONE: 220, PRCTL: 167, CLONE3: 435, FUTEX: 98},
}
# sendmsg, prlimit64, seccomp
HANDING_OVER = {calls.X86_64: (46, 302, 317), calls.AARCH64: (211, 261, 277)}
# close; recvfrom, recvmsg; dup2 where there is one, dup3
CLOSING = {calls.X86_64: 3, calls.AARCH64: 57}
HEARING = {calls.X86_64: (45, 47), calls.AARCH64: (207, 212)}
REPLACING = {calls.X86_64: (33, 292), calls.AARCH64: (24,)}
# clock_gettime, clock_getres, clock_nanosleep
CLOCKS = {calls.X86_64: (228, 229, 230), calls.AARCH64: (113, 114, 115)}
FORK = 0x01200011
THREAD = 0x003D0F00

both = pytest.mark.parametrize("of", [calls.X86_64, calls.AARCH64], ids=lambda of: of.name)
every_mode = pytest.mark.parametrize("fork", ["notify", "plain", "deny"])


@both
@every_mode
def test_every_number_gets_the_action_of_the_table(
    of: calls.Architecture, fork: seccomp.Fork, action: Callable[..., int]
) -> None:
    program = seccomp.build_filter(fork, of)
    argued = ARGUED[of]
    expected = dict.fromkeys(range(1024), EPERM)
    expected.update(dict.fromkeys(ALLOWED[of], ALLOW))
    expected.update(dict.fromkeys(KILLED[of], KILL))
    if fork == "notify":
        expected.update(dict.fromkeys(HANDING_OVER[of], ALLOW))
    expected[argued[CLONE3]] = ENOSYS
    for name in (MMAP, MPROTECT, CLONE, PRCTL):
        del expected[argued[name]]
    assert {number: action(program, number, audit=of.audit) for number in expected} == expected


@both
def test_the_seal_takes_away_what_handed_the_listener_over(of: calls.Architecture, action: Callable[..., int]) -> None:
    program = seccomp.build_seal(of)
    refused = {number for number in range(1024) if action(program, number, audit=of.audit) == EPERM}
    assert refused == set(HANDING_OVER[of])
    assert {action(program, number, audit=of.audit) for number in set(range(1024)) - refused} == {ALLOW}


@both
@every_mode
def test_calls_of_another_architecture_end_the_process(
    of: calls.Architecture, fork: seccomp.Fork, action: Callable[..., int]
) -> None:
    program = seccomp.build_filter(fork, of)
    i386, arm = 0x40000003, 0x40000028
    for audit in {i386, arm, calls.X86_64.audit, calls.AARCH64.audit} - {of.audit}:
        assert {action(program, number, audit=audit) for number in range(512)} == {KILL}


def test_numbers_of_x32_end_the_process(action: Callable[..., int]) -> None:
    program = seccomp.build_filter("notify", calls.X86_64)
    numbers = [0x40000000, 0x40000001, 0x40000000 + 520, 0x7FFFFFFF, 0xFFFFFFFF]
    assert {action(program, number, audit=calls.X86_64.audit) for number in numbers} == {KILL}


def test_high_numbers_are_refused_where_there_is_no_x32(action: Callable[..., int]) -> None:
    program = seccomp.build_filter("notify", calls.AARCH64)
    numbers = [0x40000000, 0x40000001, 0xFFFFFFFF]
    assert {action(program, number, audit=calls.AARCH64.audit) for number in numbers} == {EPERM}


@both
@pytest.mark.parametrize(
    ("protection", "flags", "expected"),
    [
        (mmap.PROT_READ, mmap.MAP_PRIVATE, ALLOW),
        (mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, ALLOW),
        (0, mmap.MAP_PRIVATE, ALLOW),
        (mmap.PROT_EXEC, mmap.MAP_PRIVATE, EPERM),
        (7, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, EPERM),
        (mmap.PROT_EXEC | 1 << 40, mmap.MAP_PRIVATE, EPERM),
        (mmap.PROT_READ, mmap.MAP_SHARED, EPERM),
        (mmap.PROT_READ, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | 1 << 40, EPERM),
        (mmap.PROT_READ, 3, EPERM),  # MAP_SHARED_VALIDATE
    ],
)
def test_memory_may_be_neither_executable_nor_shared(
    of: calls.Architecture, protection: int, flags: int, expected: int, action: Callable[..., int]
) -> None:
    program = seccomp.build_filter("deny", of)
    given = action(program, ARGUED[of][MMAP], 0, 4096, protection, flags, (1 << 64) - 1, 0, audit=of.audit)
    assert given == expected


@both
@pytest.mark.parametrize(("protection", "expected"), [(0, ALLOW), (3, ALLOW), (4, EPERM), (7, EPERM), (5, EPERM)])
def test_memory_may_not_become_executable(
    of: calls.Architecture, protection: int, expected: int, action: Callable[..., int]
) -> None:
    program = seccomp.build_filter("deny", of)
    # The fourth register is no argument of mprotect; what lies in it must not count.
    assert action(program, ARGUED[of][MPROTECT], 0, 4096, protection, 0xFFFF, audit=of.audit) == expected


@both
@pytest.mark.parametrize(("fork", "expected"), [("notify", NOTIFY), ("plain", ALLOW), ("deny", EPERM)])
def test_only_the_flags_of_fork_are_left_to_the_mode(
    of: calls.Architecture, fork: seccomp.Fork, expected: int, action: Callable[..., int]
) -> None:
    program = seccomp.build_filter(fork, of)
    clone = ARGUED[of][CLONE]
    assert action(program, clone, FORK, audit=of.audit) == expected
    others = [0, signal.SIGCHLD, THREAD, FORK | 0x10000000, FORK | 0x8000, FORK | 1 << 32, FORK ^ 1]
    assert {action(program, clone, flags, audit=of.audit) for flags in others} == {KILL}


@both
@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        (1, 9, ALLOW),
        (1, 0, EPERM),
        (1, 15, EPERM),
        (1, 9 | 1 << 32, EPERM),
        (4, 9, EPERM),
        (22, 9, EPERM),
        (0, 0, EPERM),
        (1 | 1 << 32, 9, EPERM),
    ],
)
def test_prctl_may_only_tie_a_life_to_its_parent(
    of: calls.Architecture, option: int, value: int, expected: int, action: Callable[..., int]
) -> None:
    program = seccomp.build_filter("notify", of)
    assert action(program, ARGUED[of][PRCTL], option, value, audit=of.audit) == expected


@both
@pytest.mark.parametrize(
    ("operation", "expected"),
    [(128, ALLOW), (129, ALLOW), (137 | 256, ALLOW), (0, EPERM), (1, EPERM), (9, EPERM), (1 | 1 << 39, EPERM)],
)
def test_futexes_stay_within_the_process(
    of: calls.Architecture, operation: int, expected: int, action: Callable[..., int]
) -> None:
    program = seccomp.build_filter("notify", of)
    assert action(program, ARGUED[of][FUTEX], 4096, operation, audit=of.audit) == expected


@both
def test_clocks_of_other_processes_stay_unread(of: calls.Architecture, action: Callable[..., int]) -> None:
    program = seccomp.build_filter("notify", of)
    somebody = (~1234 << 3 | 2) & 0xFFFFFFFF
    for number in CLOCKS[of]:
        own = {action(program, number, clock, audit=of.audit) for clock in (0, 1, 2, 3, 7, 11)}
        others = {action(program, number, clock, audit=of.audit) for clock in (somebody, somebody | 0xFFFFFFFF << 32)}
        assert (own, others) == ({ALLOW}, {EPERM})


@both
def test_only_the_channel_is_heard_and_replaced(of: calls.Architecture, action: Callable[..., int]) -> None:
    program = seccomp.build_filter("notify", of)
    assert action(program, CLOSING[of], 4, audit=of.audit) == ALLOW
    assert {action(program, CLOSING[of], at, audit=of.audit) for at in (0, 1, 2, 3, 5, 0xFFFFFFFF)} == {EPERM}
    for number in HEARING[of]:
        assert {action(program, number, at, audit=of.audit) for at in (3, 3 | 1 << 32)} == {ALLOW}
        assert {action(program, number, at, audit=of.audit) for at in (0, 1, 2, 4, 0xFFFFFFFF)} == {EPERM}
    for number in REPLACING[of]:
        assert {action(program, number, source, 3, audit=of.audit) for source in (0, 3, 9)} == {ALLOW}
        assert {action(program, number, 3, at, audit=of.audit) for at in (0, 1, 2, 4, 0xFFFFFFFF)} == {EPERM}


@both
@every_mode
def test_the_program_is_one_the_kernel_takes(of: calls.Architecture, fork: seccomp.Fork) -> None:
    program = seccomp.build_filter(fork, of)
    steps = list(struct.iter_unpack("=HBBI", program))
    assert len(program) % 8 == 0 and len(steps) <= 4096
    assert steps[-1][0] == bpf.RETURN
    for at, (code, then, otherwise, value) in enumerate(steps):
        if code == bpf.LOAD:
            assert value % 4 == 0 and value < 64
        if code in (bpf.EQUAL, bpf.AT_LEAST, bpf.ANY_BIT):
            assert at + 1 + max(then, otherwise) < len(steps)


def _confine(fork: seccomp.Fork = "deny", *, listener: bool = False) -> int | None:
    program = seccomp.build_filter(fork)
    calls.prctl(calls.PR_SET_NO_NEW_PRIVS, 1)
    return seccomp.install(program, listener=listener)


def _refusal(deed: Callable[[], object]) -> str:
    try:
        deed()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "worked"


def test_the_kernel_refuses_what_needs_more_than_the_process_has(apart: Callable[..., str]) -> None:
    deeds: dict[str, Callable[[], object]] = {
        "read": lambda: os.read(0, 1),
        "open": lambda: os.open("/", os.O_RDONLY),
        "stat": lambda: os.stat("/"),
        "chmod": lambda: os.chmod("/", 0o755),
        "unlink": lambda: os.unlink("/nothing"),
        "socket": socket.socket,
        "pipe": os.pipe,
        "dup": lambda: os.dup(1),
        "memfd": lambda: os.memfd_create("x"),
        "kill": lambda: os.kill(os.getpid(), 0),
        "fork": os.fork,
        "session": os.setsid,
        "wait": lambda: os.waitpid(-1, os.WNOHANG),
        "sigaction": lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
        "executable": lambda: mmap.mmap(-1, 4096, prot=7, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS),
        "shared": lambda: mmap.mmap(-1, 4096),
        "clock": lambda: time.clock_gettime((~os.getppid() << 3) | 2),
        "dumpable": lambda: calls.prctl(calls.PR_SET_DUMPABLE, 1),
    }

    def deed() -> str:
        _confine()
        return " ".join(f"{name}={_refusal(deed)}" for name, deed in deeds.items())

    assert apart(deed) == " ".join(f"{name}=EPERM" for name in deeds)


def test_a_confined_process_computes_on(apart: Callable[..., str]) -> None:
    def deed() -> str:
        _confine()
        calls.prctl(calls.PR_SET_PDEATHSIG, signal.SIGKILL)
        blocks = [bytearray(1 << 20) for _ in range(40)]
        time.sleep(0)
        return f"{sum(map(len, blocks))} {os.getppid() > 0} {len(os.urandom(8))} {time.process_time() > 0}"

    assert apart(deed) == f"{40 << 20} True 8 True"


@pytest.mark.parametrize(
    "deed",
    [
        lambda: os.execv("/nothing", ["nothing"]),
        lambda: calls.syscall("unshare", 0),
        lambda: calls.syscall("mount", 0, 0, 0, 0, 0),
        lambda: calls.syscall("ptrace", 0),
        lambda: calls.syscall("bpf", 0, 0, 0),
        lambda: threading.Thread(target=int).start(),
        lambda: calls.syscall("clone", signal.SIGCHLD),
    ],
    ids=["execve", "unshare", "mount", "ptrace", "bpf", "thread", "other clone"],
)
def test_the_kernel_ends_a_process_that_attacks(deed: Callable[[], object], apart: Callable[..., str]) -> None:
    def parent() -> str:
        program = seccomp.build_filter("plain")
        calls.prctl(calls.PR_SET_DUMPABLE, 0)
        calls.prctl(calls.PR_SET_NO_NEW_PRIVS, 1)
        pid = os.fork()
        if pid == 0:
            try:
                seccomp.install(program, listener=False)
                deed()
            finally:
                os._exit(0)
        status = os.waitpid(pid, 0)[1]
        return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "lived"

    assert apart(parent) == "SIGSYS"


def test_a_plain_fork_goes_on_and_stays_confined(apart: Callable[..., str]) -> None:
    def deed() -> str:
        readable, writable = os.pipe()
        if os.fork() == 0:
            try:
                _confine("plain")
                if os.fork() == 0:
                    os.write(writable, _refusal(socket.socket).encode())
            finally:
                os._exit(0)
        os.close(writable)
        return os.read(readable, 100).decode()

    assert apart(deed) == "EPERM"


def test_without_a_supervisor_a_fork_is_no_call_at_all(apart: Callable[..., str]) -> None:
    def deed() -> str:
        assert _confine("notify") is None
        return _refusal(os.fork)

    assert apart(deed) == "ENOSYS"


def test_the_kernel_takes_no_filter_of_a_user_who_could_gain_rights() -> None:
    def deed() -> str:
        if os.geteuid() == 0:
            os.setresuid(65534, 65534, 65534)
        try:
            seccomp.install(seccomp.build_filter("deny"), listener=False)
        except OSError as error:
            return str(error.strerror)
        return "installed"

    assert trial.in_child(deed) == "seccomp: Permission denied"


def test_a_broken_filter_is_an_error_of_the_call() -> None:
    def deed() -> str:
        calls.prctl(calls.PR_SET_NO_NEW_PRIVS, 1)
        return _refusal(lambda: seccomp.install(seccomp.build_filter("deny")[:-8], listener=False))

    assert trial.in_child(deed) == "EINVAL"


def test_an_unknown_processor_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    calls.architecture.cache_clear()
    name = type(os.uname())(("Linux", "host", "6.1", "1", "riscv64"))
    monkeypatch.setattr(os, "uname", lambda: name)
    with pytest.raises(OSError, match="'riscv64' are not known; expected a 64-bit x86_64 or aarch64") as raised:
        seccomp.build_filter("deny")
    assert raised.value.errno == errno.ENOSYS
    calls.architecture.cache_clear()
