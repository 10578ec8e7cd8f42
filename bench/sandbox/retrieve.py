"""A query in a copy of its own of a memory that holds many rows."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from typing import Any

from ..contest import AT_MOST, OURS, Competitor, Contest, Finding, Goal, Job, Run, Work
from .confined import ClockedSandbox
from .programs import ECHO, Vectors, executed

OURS_NAME = "prismem, a copy each"
IN_PLACE = "prismem, in place"
DEEP = "in process, deepcopy each"
PICKLED = "in process, pickled each"
_BATCH = 200
_QUESTION = "who repaired the bicycle?"


class _Memories:
    def __init__(self, units: int, dimension: int) -> None:
        self.sandbox = ClockedSandbox()
        self._backend = Vectors(dimension)
        texts = [f"unit {number}" for number in range(units)]
        self._batches = [texts[begin : begin + _BATCH] for begin in range(0, units, _BATCH)]

    def confined(self, in_place: bool) -> Run:
        worker = self.sandbox.open(ECHO, self._backend)
        for texts in self._batches:
            worker.index([{"memory_text": text} for text in texts], "")

        def run() -> str:
            text, report = worker.retrieve({"query_text": _QUESTION}, in_place=in_place)
            if not in_place:
                self.sandbox.count(report)
            return text

        return run

    def unconfined(self, pickled: bool) -> Run:
        memory, unit, query = executed(ECHO, self._backend)
        for texts in self._batches:
            memory.index([unit(text) for text in texts], "")
        memory.backend = None

        def run() -> str:
            own = pickle.loads(pickle.dumps(memory, pickle.HIGHEST_PROTOCOL)) if pickled else copy.deepcopy(memory)
            return str(own.retrieve(query(_QUESTION)))

        return run


def _prepare(quick: bool) -> Contest:
    units, dimension = (1000, 64) if quick else (20_000, 1024)
    memories = _Memories(units, dimension)

    def check(_: Competitor, text: Any) -> Finding:
        return Finding("" if text == _QUESTION else f"the answer is {text!r:.100}")

    return Contest(
        "a program that holds the rows and returns its question",
        {"units": units, "dimension": dimension},
        [
            Competitor(OURS_NAME, OURS, lambda: memories.confined(False)),
            Competitor(IN_PLACE, OURS, lambda: memories.confined(True), "no copy"),
            Competitor(DEEP, "python", lambda: memories.unconfined(False)),
            Competitor(PICKLED, "python", lambda: memories.unconfined(True)),
        ],
        check,
        Work(),
        memories.sandbox.close,
        memories.sandbox.clocks.seconds,
    )


JOBS: Sequence[Job] = (
    Job(
        "sandbox/retrieve-copy",
        "a query in its own copy of the memory, above the program's own time; processor time of all processes",
        _prepare,
        (Goal(OURS_NAME, AT_MOST, 0.010), Goal(OURS_NAME, DEEP, 10.0)),
    ),
)
