"""A supervisor lets forks go on or refuses them."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Callable

import pytest

from prismem_core.program.sandbox.kernel import calls, notification, seccomp


@pytest.fixture
def forking(apart: Callable[..., str]) -> Callable[[Callable[[int, int], None]], str]:
    """Runs a process that forks once below the filter, with a supervisor that gets the listener and its pid."""

    def run(supervise: Callable[[int, int], None]) -> str:
        def deed() -> str:
            ours, theirs = socket.socketpair()
            readable, writable = os.pipe()
            program = seccomp.build_filter("notify")
            pid = os.fork()
            if pid == 0:
                calls.prctl(calls.PR_SET_NO_NEW_PRIVS, 1)
                channel, told = (fcntl.fcntl(end, fcntl.F_DUPFD, 100) for end in (theirs.fileno(), writable))
                os.dup2(channel, seccomp.CHANNEL)
                supervisor = socket.socket(fileno=seccomp.CHANNEL)
                # The filter lets the listener be closed where a worker finds it.
                os.closerange(seccomp.BROUGHT, 100)
                listener = seccomp.install(program, listener=True)
                assert listener == seccomp.BROUGHT
                socket.send_fds(supervisor, [b"l"], [listener])
                os.close(listener)
                _fork_and_tell(told)
            os.close(writable)
            listener = socket.recv_fds(ours, 1, 1)[1][0]
            supervise(listener, pid)
            return os.read(readable, 100).decode()

        return apart(deed)

    return run


def _fork_and_tell(writable: int) -> None:
    try:
        if os.fork() == 0:
            os.write(writable, b"the copy runs")
    except OSError as error:
        os.write(writable, errno.errorcode[error.errno or 0].encode())
    finally:
        os._exit(0)


def test_a_fork_goes_on_where_the_supervisor_lets_it(forking: Callable[..., str]) -> None:
    def supervise(listener: int, pid: int) -> None:
        call = notification.receive(listener)
        assert call is not None and call.pid == pid
        notification.let(listener, call)

    assert forking(supervise) == "the copy runs"


def test_a_fork_fails_where_the_supervisor_refuses_it(forking: Callable[..., str]) -> None:
    def supervise(listener: int, pid: int) -> None:
        call = notification.receive(listener)
        assert call is not None and call.pid == pid
        notification.refuse(listener, call)

    assert forking(supervise) == "EPERM"


def test_a_fork_fails_where_the_supervisor_is_gone(forking: Callable[..., str]) -> None:
    def supervise(listener: int, pid: int) -> None:
        assert notification.receive(listener) is not None
        os.close(listener)

    assert forking(supervise) == "ENOSYS"


def test_a_caller_that_ended_takes_no_answer(forking: Callable[..., str]) -> None:
    def supervise(listener: int, pid: int) -> None:
        call = notification.receive(listener)
        assert call is not None
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        for answer in (notification.let, notification.refuse):
            with pytest.raises(OSError) as raised:
                answer(listener, call)
            assert raised.value.errno == errno.ENOENT

    assert forking(supervise) == ""


def test_what_is_no_listener_is_an_error() -> None:
    readable, writable = os.pipe()
    try:
        with pytest.raises(OSError):
            notification.receive(readable)
    finally:
        os.close(readable)
        os.close(writable)
