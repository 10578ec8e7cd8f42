"""The gate lets through exactly the forks that were ordered, of the process that they were ordered of."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Iterator

import pytest

from prismem_core.program.sandbox.fork_gate import ForkGate
from prismem_core.program.sandbox.kernel import calls, notification, seccomp


class Forker:
    """A confined process that forks once for each byte it is sent, and answers with a letter."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        program = seccomp.build_filter("notify")
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._serve(theirs, program)
            finally:
                os._exit(0)
        theirs.close()
        self.socket = ours
        self.listener = socket.recv_fds(ours, 1, 1)[1][0]

    def _serve(self, theirs: socket.socket, program: bytes) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os.dup2(theirs.fileno(), seccomp.CHANNEL)
        channel = socket.socket(fileno=seccomp.CHANNEL)
        # The filter lets the listener be closed where a worker finds it.
        os.closerange(seccomp.BROUGHT, 256)
        calls.prctl(calls.PR_SET_NO_NEW_PRIVS, 1)
        listener = seccomp.install(program, listener=True)
        socket.send_fds(channel, [b"l"], [listener or 0])
        os.close(listener or 0)
        while channel.recv(1):
            try:
                if os.fork() == 0:
                    os._exit(0)
                channel.send(b"f")
            except PermissionError:
                channel.send(b"r")

    def ask(self) -> None:
        self.socket.send(b"?")
        _until_readable(self.listener)

    def answer(self) -> str:
        return self.socket.recv(1).decode()

    def end(self) -> None:
        self.socket.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _until_readable(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(60_000)


@pytest.fixture
def forker() -> Iterator[Forker]:
    made = Forker()
    yield made
    made.end()


@pytest.fixture
def gate(forker: Forker) -> Iterator[ForkGate]:
    made = ForkGate(forker.listener)
    yield made
    made.close()


def test_a_fork_goes_on_once_for_each_permission(forker: Forker, gate: ForkGate) -> None:
    gate.allow(forker.pid)
    gate.allow(forker.pid)
    found = ""
    for _ in range(3):
        forker.ask()
        gate.answer()
        found += forker.answer()
    assert found == "ffr"
    assert [gate.claim(forker.pid) for _ in range(3)] == [True, True, False]


def test_a_permission_is_of_one_process(forker: Forker, gate: ForkGate) -> None:
    gate.allow(os.getpid())
    forker.ask()
    gate.answer()
    assert forker.answer() == "r"
    assert gate.revoke(os.getpid())
    assert not gate.claim(forker.pid)


def test_what_is_taken_back_is_refused(forker: Forker, gate: ForkGate) -> None:
    gate.allow(forker.pid)
    assert gate.revoke(forker.pid)
    assert not gate.revoke(forker.pid)
    forker.ask()
    gate.answer()
    assert forker.answer() == "r"


def test_without_a_waiting_fork_there_is_nothing_to_answer(forker: Forker, gate: ForkGate) -> None:
    gate.allow(forker.pid)
    gate.answer()
    assert gate.revoke(forker.pid)


def test_stopping_and_going_on_does_not_use_up_the_permission(
    forker: Forker, gate: ForkGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    let, interrupted = notification.let, []

    def after_a_stop(listener: int, call: notification.Waiting) -> None:
        if not interrupted:
            interrupted.append(call.pid)
            os.kill(call.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, call.pid, os.WSTOPPED)
            os.kill(call.pid, signal.SIGCONT)
            # The process makes the call again; the answer to the first one comes too late.
            _until_readable(listener)
        let(listener, call)

    monkeypatch.setattr(notification, "let", after_a_stop)
    gate.allow(forker.pid)
    forker.ask()
    gate.answer()
    assert forker.answer() == "f"
    assert interrupted == [forker.pid]
    assert gate.claim(forker.pid) and not gate.claim(forker.pid)


def test_a_process_that_ends_while_it_waits_leaves_the_gate_usable(forker: Forker, gate: ForkGate) -> None:
    gate.allow(forker.pid)
    forker.ask()
    os.kill(forker.pid, signal.SIGKILL)
    os.waitid(os.P_PID, forker.pid, os.WEXITED | os.WNOWAIT)
    gate.answer()
    assert not gate.claim(forker.pid)


def test_a_closed_gate_refuses(forker: Forker, gate: ForkGate) -> None:
    gate.allow(forker.pid)
    gate.close()
    assert gate.fileno() == -1
    gate.answer()
    with pytest.raises(OSError):
        os.fstat(forker.listener)
