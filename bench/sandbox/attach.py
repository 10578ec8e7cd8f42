"""A revision that changes retrieval alone meets the memory that its parent built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prismem_core.program.grafting import Graft, plan_graft

from ..contest import OURS, Competitor, Contest, Finding, Goal, Job, Run, Work
from .confined import ClockedSandbox
from .programs import ECHO, Vectors, executed

ATTACHED = "prismem, attached"
AGAIN = "prismem, indexed again"
IN_PROCESS = "in process, indexed again"
_BATCH = 200
_QUESTION = "who repaired the bicycle?"
_REVISION = ECHO.replace("return query.query_text", "return query.query_text.upper()")


class _Revisions:
    def __init__(self, units: int, dimension: int) -> None:
        self.sandbox = ClockedSandbox()
        self._backend = Vectors(dimension)
        texts = [f"unit {number}" for number in range(units)]
        self._batches = [
            [{"memory_text": text} for text in texts[begin : begin + _BATCH]] for begin in range(0, units, _BATCH)
        ]

    def attached(self) -> Run:
        graft = plan_graft(ECHO, _REVISION)
        if not isinstance(graft, Graft):
            raise RuntimeError(f"the revision cannot be attached: {graft.reason}")
        parent = self.sandbox.open(ECHO, self._backend)
        for units in self._batches:
            parent.index(units, "")

        def run() -> str:
            worker = parent.attach(graft)
            self.sandbox.clocks.watch(worker.pid, from_birth=True)
            text = worker.retrieve({"query_text": _QUESTION}, in_place=True)[0]
            self.sandbox.clocks.unwatch(worker.pid)
            worker.close()
            return text

        return run

    def indexed_again(self) -> Run:
        self.sandbox.started()
        return self._in_worker

    def _in_worker(self) -> str:
        with self.sandbox.worker(_REVISION, self._backend) as worker:
            for units in self._batches:
                worker.index(units, "")
            return worker.retrieve({"query_text": _QUESTION}, in_place=True)[0]

    def in_process(self) -> str:
        memory, unit, query = executed(_REVISION, self._backend)
        for units in self._batches:
            memory.index([unit(**fields) for fields in units], "")
        return str(memory.retrieve(query(_QUESTION)))

    def other_seconds(self) -> float:
        return self.sandbox.clocks.seconds() - self._backend.seconds


def _prepare(quick: bool) -> Contest:
    units, dimension = (1000, 64) if quick else (20_000, 1024)
    revisions = _Revisions(units, dimension)

    def check(_: Competitor, text: Any) -> Finding:
        return Finding("" if text == _QUESTION.upper() else f"the answer is {text!r:.100}")

    return Contest(
        "a program that holds the rows; the revision answers in capitals; the embedder's time is left out everywhere",
        {"units": units, "dimension": dimension},
        [
            Competitor(ATTACHED, OURS, revisions.attached),
            Competitor(AGAIN, OURS, revisions.indexed_again),
            Competitor(IN_PROCESS, "python", lambda: revisions.in_process),
        ],
        check,
        Work(),
        revisions.sandbox.close,
        revisions.other_seconds,
    )


JOBS: Sequence[Job] = (
    Job(
        "sandbox/attach",
        "a retrieval-only revision and one query: attached to the built memory, or indexed again; processor time",
        _prepare,
        (Goal(ATTACHED, AGAIN, 5.0),),
    ),
)
