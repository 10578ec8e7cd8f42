"""Which layers hold on this system, by doing in throw-away children what each of them forbids.

A version number proves nothing: containers, kernels built otherwise and other sandboxes around this one take layers
away without a word. So each layer is put on by itself, and counts only if what worked before is refused after.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable

from prismem_core.program.sandbox.kernel import (
    calls,
    credentials,
    landlock,
    notification,
    resource_limits,
    seccomp,
    trial,
)
from prismem_core.program.sandbox.kernel.trial import Attempt, Missing

# State ("witnessed", "missing" or "off") and text.
Finding = tuple[str, str]

_PAGE = 4096
_PROT_NONE, _PROT_WRITE, _PROT_EXEC = 0, 2, 4
_SHARED, _PRIVATE, _ANONYMOUS = 1, 2, 0x20
_MEMORY_BYTES = 2 << 30


def examine(without: frozenset[str], namespaces: Finding, empty_root: Finding) -> list[list[str]]:
    """[name, state, text] of each layer; `namespaces` and `empty_root` tell how putting those on this process went.

    To be called in the confined zygote while it has no child. Takes part in nothing that a worker does later.
    """
    seccomp_found = _found("seccomp", without, lambda: trial.in_child(_seccomp))
    copies = (seccomp_found[0], "needs seccomp") if seccomp_found[0] != "witnessed" else None
    found = {
        "seccomp": seccomp_found,
        "landlock": _found("landlock", without, lambda: trial.in_child(_landlock)),
        "namespaces": _confirmed(namespaces, _namespaces),
        "empty_root": _confirmed(empty_root, _empty_root),
        "own_user": _found("own_user", without, _own_user),
        "limits": _found("limits", without, lambda: trial.in_child(_limits)),
        "copies": copies or _found("copies", without, _copies),
    }
    return [[name, *finding] for name, finding in found.items()]


def _found(name: str, without: frozenset[str], look: Callable[[], str]) -> Finding:
    return ("off", "left off") if name in without else _seen(look)


def _seen(look: Callable[[], str]) -> Finding:
    try:
        return "witnessed", look()
    except Missing as missing:
        return "missing", str(missing)
    except OSError as error:
        return "missing", error.strerror or str(error)


def _confirmed(told: Finding, look: Callable[[], str]) -> Finding:
    """A layer that this process wears already, looked at from inside."""
    if told[0] != "witnessed":
        return told
    state, text = _seen(look)
    return state, f"{told[1]}; {text}"


def _open_root() -> None:
    os.close(os.open("/", os.O_RDONLY | os.O_CLOEXEC))


def _make_socket() -> None:
    socket.socket().close()


def _fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _map(protection: int, flags: int, size: int = _PAGE) -> None:
    calls.syscall("mmap", 0, size, protection, flags | _ANONYMOUS, -1, 0)


def _signal_parent() -> None:
    os.kill(os.getppid(), 0)


def _no_new_privileges() -> None:
    calls.prctl(calls.PR_SET_NO_NEW_PRIVS, 1)


def _seccomp() -> str:
    program = seccomp.build_filter("deny")

    def put_on() -> None:
        _no_new_privileges()
        seccomp.install(program, listener=False)

    # A process that the filter ends must leave no core dump.
    calls.prctl(calls.PR_SET_DUMPABLE, 0)
    for words, deed in _KILLED:
        if not _ends(put_on, deed):
            raise Missing(f"a process that tried to {words} was not ended")
    attempts = [
        Attempt("open a folder", _open_root),
        Attempt("look at a file", lambda: os.stat("/")),
        Attempt("make a socket", _make_socket),
        Attempt("fork", _fork),
        Attempt("send a signal", lambda: os.kill(os.getpid(), 0)),
        Attempt("read the clock of another process", lambda: time.clock_gettime((~os.getppid() << 3) | 2)),
        Attempt("map executable memory", lambda: _map(_PROT_EXEC, _PRIVATE)),
        Attempt("map shared memory", lambda: _map(_PROT_WRITE, _SHARED)),
    ]
    kept = (
        Attempt("map private memory", lambda: _map(_PROT_WRITE, _PRIVATE)),
        Attempt("die with the parent", lambda: calls.prctl(calls.PR_SET_PDEATHSIG, signal.SIGKILL)),
    )
    return f"{trial.compare(attempts, put_on, kept)}; ended for it: {', '.join(words for words, _ in _KILLED)}"


def _execute() -> None:
    with contextlib.suppress(FileNotFoundError):
        os.execv("/nothing-of-this-name", ["nothing"])


def _start_thread() -> None:
    _thread.start_new_thread(int, ())


_KILLED: tuple[tuple[str, Callable[[], None]], ...] = (("execute a file", _execute), ("start a thread", _start_thread))


def _ends(put_on: Callable[[], None], deed: Callable[[], None]) -> bool:
    """Whether the filter ends a process that does this, which works without it."""
    deed()
    pid = os.fork()
    if pid == 0:
        reason = 0
        try:
            put_on()
            deed()
        except OSError as error:
            reason = error.errno or 0
        finally:
            os._exit(reason)
    status = os.waitpid(pid, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise Missing(f"the filter cannot be put on: {os.strerror(os.WEXITSTATUS(status))}")
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSYS


def _landlock() -> str:
    version = landlock.abi()
    attempts = [Attempt("open a folder", _open_root)]
    if version >= landlock.TCP_SINCE:
        attempts.append(Attempt("bind a TCP port", _bind))
    if version >= landlock.SCOPES_SINCE:
        attempts.append(Attempt("signal another process", _signal_parent))
    _no_new_privileges()
    return f"{trial.compare(attempts, landlock.deny_all)} (ABI {version})"


def _bind() -> None:
    with socket.socket() as bound:
        bound.bind(("0.0.0.0", 0))


def _namespaces() -> str:
    if os.getpid() != 1 or os.getppid() != 0:
        raise Missing(f"the process is number {os.getpid()} and sees its parent {os.getppid()}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # An address for documentation; connecting a datagram socket finds a route and sends nothing.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "is process 1, sees no process outside, has no way to other machines"
    raise Missing("there is still a way to other machines")


def _empty_root() -> str:
    names = os.listdir("/")
    if names:
        raise Missing(f"/ still holds {len(names)} names")
    with contextlib.suppress(OSError):
        os.close(os.open("/written", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        os.unlink("/written")
        raise Missing("a file could be made")
    return "/ lists nothing, no file can be made"


def _own_user() -> str:
    if os.geteuid() != 0:
        raise Missing("the engine is not root, so workers have its user")
    return trial.in_child(_change_user)


def _change_user() -> str:
    def change() -> None:
        if not credentials.become(credentials.SPARE_USERS[0]):
            raise Missing("root may not change to a user of its own choice here")
        credentials.drop_capabilities()

    attempts = [Attempt("signal a process of root", _signal_parent), Attempt("be root again", lambda: os.setuid(0))]
    return trial.compare(attempts, change)


def _limits() -> str:
    file = os.memfd_create("limited")

    def open_more() -> None:
        opened: list[int] = []
        try:
            while len(opened) < resource_limits.OPEN_FILES:
                opened.append(os.dup(file))
        finally:
            for descriptor in opened:
                os.close(descriptor)

    attempts = [
        Attempt("take more memory", lambda: _map(_PROT_NONE, _PRIVATE, _MEMORY_BYTES)),
        Attempt("open more descriptors", open_more),
        Attempt("write to a file", lambda: os.write(file, b"x")),
    ]
    return trial.compare(attempts, lambda: resource_limits.impose(_MEMORY_BYTES, own_user=False))


def _copies() -> str:
    """This process is the supervisor of a child that forks twice: the first time it may, the second it may not."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = trial.Child(lambda: _fork_twice(theirs))
        try:
            if child.told in child.wait_for(ours.fileno(), child.told):
                return child.result()
            listener = socket.recv_fds(ours, 1, 1)[1][0]
            try:
                _answer(child, listener)
            finally:
                os.close(listener)
            return child.result()
        finally:
            child.end()


def _answer(child: trial.Child, listener: int) -> None:
    for answer in (notification.let, notification.refuse):
        if listener not in child.wait_for(listener, child.told):
            return
        call = notification.receive(listener)
        if call is not None and call.pid == child.pid:
            answer(listener, call)


def _fork_twice(supervisor: socket.socket) -> str:
    readable, writable = os.pipe()
    program = seccomp.build_filter("notify")
    _no_new_privileges()
    listener = seccomp.install(program, listener=True)
    if listener is None:
        raise Missing("the filter came without a listener")
    socket.send_fds(supervisor, [b"l"], [listener])
    if os.fork() == 0:
        os.write(writable, b"c")
        os._exit(0)
    waiting = select.poll()
    waiting.register(readable, select.POLLIN)
    waiting.poll()
    try:
        if os.fork() == 0:
            os._exit(0)
    except PermissionError:
        return "a fork that was ordered went on, another was refused"
    raise Missing("a fork that was not ordered went on")
