"""One order to a program that is there, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from ..contest import AT_MOST, OURS, Competitor, Contest, Finding, Goal, Job, Run, Work
from .child import Child
from .confined import ClockedSandbox
from .programs import ECHO, Vectors, executed

OURS_NAME = "prismem order"
IN_PROCESS = "in process, unconfined"
BARE = "bare socketpair"
PIPE = "multiprocessing connection"
_QUESTION = "who repaired the bicycle?"

_BARE_ECHO = """
import socket
with socket.socket(fileno=descriptor) as end:
    while data := end.recv(65536):
        end.sendall(data)
"""
_PIPE_ECHO = """
from multiprocessing.connection import Connection
end = Connection(descriptor)
try:
    while True:
        end.send(end.recv())
except (EOFError, ConnectionError):
    pass
"""


class _Ends:
    """What the competitors talk to, closed at the end."""

    def __init__(self) -> None:
        self.sandbox = ClockedSandbox()
        self._children: list[Child] = []

    def child(self, script: str) -> Child:
        child = Child(script)
        self.sandbox.clocks.watch(child.pid)
        self._children.append(child)
        return child

    def ours(self) -> Run:
        worker = self.sandbox.open(ECHO, Vectors(1))
        return lambda: worker.retrieve({"query_text": _QUESTION}, in_place=True)[0]

    def bare(self) -> Run:
        end, data = self.child(_BARE_ECHO).socket, _QUESTION.encode()

        def run() -> str:
            end.sendall(data)
            return end.recv(65536).decode()

        return run

    def pipe(self) -> Run:
        end = Connection(self.child(_PIPE_ECHO).socket.detach())

        def run() -> str:
            end.send({"query_text": _QUESTION})
            return str(end.recv()["query_text"])

        return run

    def close(self) -> None:
        for child in self._children:
            self.sandbox.clocks.unwatch(child.pid)
            child.close()
        self.sandbox.close()


def _in_process() -> Run:
    memory, _, query = executed(ECHO, Vectors(1))
    return partial(_retrieved, memory, query)


def _retrieved(memory: Any, query: Callable[..., Any]) -> str:
    return str(memory.retrieve(query(_QUESTION)))


def _prepare(quick: bool) -> Contest:
    ends = _Ends()

    def check(_: Competitor, text: Any) -> Finding:
        return Finding("" if text == _QUESTION else f"the answer is {text!r:.100}")

    return Contest(
        "a program that returns its question",
        {"orders": 1},
        [
            Competitor(OURS_NAME, OURS, ends.ours),
            Competitor(BARE, "python", ends.bare),
            Competitor(PIPE, "python", ends.pipe),
            Competitor(IN_PROCESS, "python", _in_process),
        ],
        check,
        Work(),
        ends.close,
        ends.sandbox.clocks.seconds,
    )


JOBS: Sequence[Job] = (
    Job(
        "sandbox/round-trip",
        "an order to a confined program and its answer; processor time of both sides",
        _prepare,
        (Goal(OURS_NAME, AT_MOST, 150e-6),),
    ),
    Job(
        "sandbox/round-trip-wall",
        "an order to a confined program and its answer by the wall clock, two cores",
        _prepare,
        (Goal(OURS_NAME, AT_MOST, 150e-6),),
        threads=2,
    ),
)
