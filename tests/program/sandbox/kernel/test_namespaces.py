"""New namespaces and the empty root, where the system allows them, and words where it does not."""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Callable

import pytest
from tests.program.sandbox.outer_sandbox import refusing

from prismem_core.program.sandbox.kernel import bpf, calls, namespaces, seccomp

_KINDS = ("net", "ipc", "uts", "mnt", "user", "cgroup")
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000


def _identity() -> dict[str, str]:
    return {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in _KINDS}


def _inside(deed: Callable[[], str]) -> str:
    """What a deed returns that runs as process 1 of new namespaces; skips where the system refuses those."""
    try:
        namespaces.enter()
    except OSError as error:
        return f"SKIP {error.strerror}"
    readable, writable = os.pipe()
    if os.fork() == 0:
        try:
            told = deed()
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(writable, told.encode() or b" ")
        os._exit(0)
    os.close(writable)
    return os.read(readable, 4096).decode()


@pytest.fixture
def inside(apart: Callable[..., str]) -> Callable[[Callable[[], str]], str]:
    def run(deed: Callable[[], str]) -> str:
        told = apart(lambda: _inside(deed))
        if told.startswith("SKIP"):
            pytest.skip(f"this system allows no namespaces: {told[5:]}")
        return told

    return run


def test_every_namespace_is_new_and_the_user_stays(apart: Callable[..., str]) -> None:
    def deed() -> str:
        before, user = _identity(), os.getresuid()
        try:
            words = namespaces.enter()
        except OSError as error:
            return f"SKIP {error.strerror}"
        assert os.getresuid() == user
        new = [kind for kind, identity in _identity().items() if identity != before[kind]]
        return f"{words}: {' '.join(new)}"

    told = apart(deed)
    if told.startswith("SKIP"):
        pytest.skip(f"this system allows no namespaces: {told[5:]}")
    words, kinds = told.split(": ")
    assert words.endswith("; a port that could be reached before is out of reach")
    words = words.split(";")[0]
    assert set(kinds.split()) >= {"net", "ipc", "uts", "mnt"}
    assert ("user" in words) == ("user" in kinds.split())
    assert words.startswith("network, process, IPC, host name, mount")


def test_process_one_is_alone_and_reaches_nobody(inside: Callable[..., str]) -> None:
    def deed() -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("127.0.0.1", 9))
                reached = "reached"
            except OSError as error:
                reached = errno.errorcode[error.errno or 0]
        return f"{os.getpid()} {os.getppid()} {reached} {[name for _, name in socket.if_nameindex()]}"

    assert inside(deed) == "1 0 ENETUNREACH ['lo']"


def test_the_root_is_empty_and_read_only(inside: Callable[..., str]) -> None:
    def deed() -> str:
        held = os.open("/proc/self/stat", os.O_RDONLY)
        namespaces.empty_root()
        try:
            os.mkdir("/made")
            made = "made"
        except OSError as error:
            made = errno.errorcode[error.errno or 0]
        return f"{os.listdir('/')} {os.listdir('..')} {os.getcwd()} {made} {bool(os.read(held, 10))}"

    assert inside(deed) == "[] [] / EROFS True"


def test_the_first_file_system_of_a_machine_is_moved_away(inside: Callable[..., str]) -> None:
    """It cannot be pivoted away: the kernel says EINVAL."""

    def deed() -> str:
        real = calls.syscall

        def no_pivot(name: str, *arguments: int) -> int:
            if name == "pivot_root":
                raise OSError(errno.EINVAL, "pivot_root: Invalid argument")
            return real(name, *arguments)

        calls.syscall = no_pivot  # in this throw-away process alone
        namespaces.empty_root()
        return f"{os.listdir('/')} {os.getcwd()}"

    assert inside(deed) == "[] /"


@pytest.mark.parametrize(("refused", "told"), [("pivot_root", "pivot_root"), ("mount", "mount on /tmp")])
def test_a_root_that_cannot_be_replaced_stays(refused: str, told: str, inside: Callable[..., str]) -> None:
    def deed() -> str:
        real, mounts = calls.syscall, [0]

        def refuse(name: str, *arguments: int) -> int:
            mounts[0] += name == "mount"
            if name == refused and (name != "mount" or mounts[0] == 2):
                raise OSError(errno.EPERM, f"{name}: Operation not permitted")
            return real(name, *arguments)

        calls.syscall = refuse  # in this throw-away process alone
        before = os.listdir("/"), os.listdir("/tmp")
        try:
            namespaces.empty_root()
        except OSError as error:
            return f"{error.strerror}; {'as before' if (os.listdir('/'), os.listdir('/tmp')) == before else 'changed'}"
        return "replaced"

    assert inside(deed) == f"{told}: Operation not permitted; as before"


def test_without_a_mount_namespace_of_its_own_nothing_is_mounted(apart: Callable[..., str]) -> None:
    def deed() -> str:
        if os.geteuid() == 0:
            os.setresuid(65534, 65534, 65534)
        try:
            namespaces.empty_root()
        except OSError as error:
            return str(error.strerror)
        return "mounted"

    assert apart(deed) == "mount on /: Operation not permitted"


def test_a_sandbox_around_that_denies_unshare_is_told_in_words(
    apart: Callable[..., str],
) -> None:
    def deed() -> str:
        calls.prctl(calls.PR_SET_NO_NEW_PRIVS, 1)
        seccomp.install(refusing(unshare=errno.EPERM), listener=False)
        return _unchanged_by_refusal()

    told = apart(deed)
    assert told in (
        "unshare: Operation not permitted; as before",
        "as root unshare: Operation not permitted; in a user namespace unshare: Operation not permitted; as before",
    )


def test_a_sandbox_around_that_ends_whoever_unshares_is_survived(apart: Callable[..., str]) -> None:
    def deed() -> str:
        program = bpf.Assembler()
        program.load(bpf.NUMBER)
        program.test(bpf.EQUAL, calls.number("unshare", calls.architecture()) or 0, then="kill")
        program.give(seccomp.ALLOW)
        program.place("kill")
        program.give(seccomp.KILL_PROCESS)
        calls.prctl(calls.PR_SET_DUMPABLE, 0)
        calls.prctl(calls.PR_SET_NO_NEW_PRIVS, 1)
        seccomp.install(program.assemble(), listener=False)
        try:
            namespaces.enter()
        except OSError as error:
            return str(error.strerror)
        return "entered"

    assert f"unshare: ended the process (wait status {int(signal.SIGSYS)})" in apart(deed)


def test_a_limit_of_no_user_namespaces_is_told_in_words(apart: Callable[..., str]) -> None:
    def deed() -> str:
        uid = os.geteuid()
        try:
            # In a user namespace of its own this process may set the limit for those below it.
            calls.syscall("unshare", _NEW_USER)
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{uid} {uid} 1")
            _write("/proc/sys/user/max_user_namespaces", "0")
        except OSError as error:
            return f"SKIP {error.strerror}"
        calls.syscall("capset", *_no_capabilities())
        return _unchanged_by_refusal()

    told = apart(deed)
    if told.startswith("SKIP"):
        pytest.skip(f"this system allows no user namespaces: {told[5:]}")
    assert told.endswith("unshare: No space left on device; as before")


def test_root_without_rights_gets_a_user_namespace(apart: Callable[..., str]) -> None:
    def deed() -> str:
        if os.geteuid() != 0:
            return "SKIP not root"
        # As in a container: root keeps the right to map itself, and loses that to unshare.
        calls.syscall("capset", *_only(1 << _SET_FILE_CAPABILITIES))
        try:
            return namespaces.enter()
        except OSError as error:
            return f"SKIP {error.strerror}"

    told = apart(deed)
    if told.startswith("SKIP"):
        pytest.skip(told[5:])
    assert told.startswith("network, process, IPC, host name, mount") and "user" in told.split(";")[0]


def _unchanged_by_refusal() -> str:
    before = _identity(), os.getresuid()
    try:
        namespaces.enter()
    except OSError as error:
        return f"{error.strerror}; {'as before' if (_identity(), os.getresuid()) == before else 'changed'}"
    return "entered"


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    os.write(descriptor, text.encode())
    os.close(descriptor)


_SET_FILE_CAPABILITIES = 31
_kept: list[bytes] = []


def _only(mask: int) -> tuple[int, int]:
    """Arguments of capset that keep these capabilities, below number 32, permitted and effective."""
    words = b"".join(word.to_bytes(4, "little") for word in (mask, mask, 0, 0, 0, 0))
    _kept[:] = [(0x20080522).to_bytes(4, "little") + bytes(4), words]
    return calls.address(_kept[0]), calls.address(_kept[1])


def _no_capabilities() -> tuple[int, int]:
    return _only(0)


def test_a_network_that_stays_the_same_is_found_out(apart: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = calls.syscall

    def but_the_network(name: str, *arguments: int) -> int:
        if name == "unshare":
            return real(name, arguments[0] & ~_NEW_NETWORK)
        return real(name, *arguments)

    monkeypatch.setattr(calls, "syscall", but_the_network)

    def deed() -> str:
        try:
            return namespaces.enter()
        except OSError as error:
            return str(error.strerror)

    told = apart(deed)
    if "Operation not permitted" in told or "No space" in told:
        pytest.skip(f"this system allows no namespaces: {told}")
    assert "unshare: a port of the old network namespace can still be reached" in told
