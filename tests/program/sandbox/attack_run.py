"""Runs attack programs in a row in one configuration of the sandbox: `python attack_run.py FOLDER < job.json`.

The job names the programs (`programs`: name to source), whether names are restricted (`restrict_names`), further
arguments of `Sandbox` (`options`), and whether to leave out the questions at the same time and the look at another
program after each attack (`brief`). This process is the engine that the programs attack: it holds the canaries of
attacks/README.md. For each program one JSON line tells how every call ended and what was touched; a last line without
a name tells what the whole run left behind. FOLDER is empty, and whoever runs this may write into it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from canaries import Canaries
from numpy.typing import NDArray
from processes import descendants, open_descriptors, sealed_rows, wait_until

from prismem_core.errors import CandidateError, PrismemError
from prismem_core.program import library
from prismem_core.program.interface import OUT_CHAR_BUDGET
from prismem_core.program.sandbox import Limits, MemoryWorker, Sandbox
from prismem_core.program.sandbox.frames import plain_text

LIMITS = Limits(
    index_cpu_seconds=0.5,
    index_wall_seconds=4.0,
    retrieve_cpu_seconds=0.5,
    retrieve_wall_seconds=4.0,
    memory_bytes=512 << 20,
    index_embed_texts=4_000,
    retrieve_embed_texts=2_000,
)
QUERIES = ("first question", "second question", "first question")
BESIDE = ("first question", "third question", "first question", "fourth question")
GONE_SECONDS = 20.0
TOLD_CHARS = 4_000
UNITS = [{"memory_text": f"unit {number} other"} for number in range(10)]


class CountingBackend:
    """Answers without a model; hands out the same array for the same texts again, as a cache does."""

    def __init__(self) -> None:
        self.asked = 0
        self.embedded = 0
        self._arrays: dict[int, NDArray[np.float32]] = {}

    def ask(self, prompt: str, system_prompt: str | None, json_object: bool) -> str:
        self.asked += 1
        return "answer"

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        self.embedded += len(texts)
        return self._arrays.setdefault(len(texts), _vectors(len(texts)))

    def changed(self) -> bool:
        return any(not np.array_equal(array, _vectors(rows)) for rows, array in self._arrays.items())


def _vectors(rows: int) -> NDArray[np.float32]:
    return np.arange(rows * 256, dtype=np.float32).reshape(rows, 256) % 97 + 1


class Bystander:
    """A harmless program in a worker of its own, which no attack may disturb."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._open()

    def _open(self) -> None:
        self._worker = self._sandbox.open(library.source("seed"), CountingBackend())
        self._worker.index(UNITS, "")
        self._expected = self._worker.retrieve({"query_text": "unit"})[0]

    def trace(self) -> Iterator[str]:
        try:
            if self._worker.retrieve({"query_text": "unit"})[0] != self._expected:
                yield "another program's result changed"
        except PrismemError as error:
            yield f"another program ended: {error}"
            self._worker.close()
            self._open()

    def close(self) -> None:
        self._worker.close()


class Attack:
    """One program run as README.md says: loaded, indexed, asked questions in turn, then some at the same time."""

    def __init__(self, sandbox: Sandbox, raw_text: str, beside: tuple[str, ...]) -> None:
        self._sandbox = sandbox
        self._beside = beside
        self._raw_text = raw_text
        self._units = [dict(unit) for unit in UNITS]
        self._backend = CountingBackend()
        self._counted = 0
        self.outcomes: list[list[str]] = []
        self.results: list[str] = []
        self.told: list[str] = []

    def run(self, source: str) -> None:
        found = []
        try:
            with self._sandbox.open(source, self._backend, LIMITS) as worker:
                self._counted += worker.index(self._units, self._raw_text).ask_calls
                for text in QUERIES:
                    found.append(self._ask(worker, text))
                    if any(word.startswith("limit:") for word in found[-1][0]):
                        break
                else:
                    with ThreadPoolExecutor(max(1, len(self._beside))) as pool:
                        found += pool.map(lambda text: self._ask(worker, text), self._beside)
        except PrismemError as error:
            found.append(_failure(error))
        asked = QUERIES + self._beside
        same = {result for text, (_, result, _) in zip(asked, found, strict=False) if text == QUERIES[0]}
        for words, result, told in found:
            if len(found) == len(asked) and len(same) == 1:
                words.append("independent")
            if words not in self.outcomes:
                self.outcomes.append(words)
            if result is not None and result not in self.results:
                self.results.append(result)
            if told is not None and told not in self.told:
                self.told.append(told)

    def _ask(self, worker: MemoryWorker, text: str) -> tuple[list[str], str | None, str | None]:
        try:
            result, report = worker.retrieve({"query_text": text})
        except PrismemError as error:
            return _failure(error)
        self._counted += report.ask_calls
        if result.startswith("LEAK:"):
            return ["leak"], result, None
        return (["contained"] if result.startswith("BLOCKED:") else ["ok", "isolated"]), result, None

    def traces(self) -> Iterator[str]:
        if self._units != UNITS:
            yield "the engine's units changed"
        if self._backend.changed():
            yield "the engine's embeddings changed"
        if not self.told and self._counted != self._backend.asked:
            yield f"{self._backend.asked} calls of ask were served and {self._counted} reported"
        if any(len(text) > OUT_CHAR_BUDGET for text in self.results):
            yield "a result longer than the limit of characters"
        if any(len(text) > TOLD_CHARS for text in self.told):
            yield "a failure told in too many words"
        if any(plain_text(text) != text for text in (*self.results, *self.told)):
            yield "a text that cannot be encoded"


def _failure(error: PrismemError) -> tuple[list[str], None, str]:
    """The words of README.md for a failed call: a word that no header uses where the engine is to blame."""
    if not isinstance(error, CandidateError):
        return [f"failure of the engine: {type(error).__name__}"], None, str(error)
    words = {
        "error": ["error", "contained"],
        # A breach of the protocol ends the process, as a death does.
        "protocol": ["protocol", "died"],
        # The kernel ends a process at a call that no program may make: its attempt has failed.
        "died": ["died", "contained"],
    }
    return words.get(error.kind, [error.kind]), None, str(error)


def main() -> None:
    job = json.load(sys.stdin)
    folder = Path(sys.argv[1])
    sandbox = Sandbox(restrict_names=job["restrict_names"], **job["options"])
    with Canaries(folder) as canaries, sandbox:
        bystander = Bystander(sandbox)
        kept = _settled(descendants(os.getpid()))
        opened, last = open_descriptors(), next(reversed(job["programs"]), None)
        for name, source in job["programs"].items():
            _tell(starting=name)
            attack = Attack(sandbox, canaries.raw_text(), () if job["brief"] else BESIDE)
            attack.run(source)
            traces = [*canaries.traces(), *attack.traces()]
            if not job["brief"] or name == last:
                traces += bystander.trace()
            canaries.restore()
            traces += _left(kept, opened)
            if any(trace.startswith("another program ended") for trace in traces):
                kept = _settled(descendants(os.getpid()))
            opened = open_descriptors()
            _tell(name=name, outcomes=attack.outcomes, results=attack.results, told=attack.told, traces=traces)
        bystander.close()
        layers = [[layer.name, layer.state] for layer in sandbox.layers()]
    left = [] if wait_until(lambda: not descendants(os.getpid()), GONE_SECONDS) else sorted(descendants(os.getpid()))
    _tell(finished=True, layers=layers, left=len(left), sealed=sealed_rows())


def _left(kept: set[int], opened: int) -> Iterator[str]:
    if not wait_until(lambda: descendants(os.getpid()) <= kept, GONE_SECONDS):
        yield f"{len(descendants(os.getpid()) - kept)} processes were left running"
    if not wait_until(lambda: open_descriptors() <= opened, GONE_SECONDS):
        yield f"{open_descriptors() - opened} descriptors were left open in the engine"


def _settled(pids: set[int]) -> set[int]:
    """`pids` once the copies of calls that are over have gone."""
    before: set[int] = set()
    while before != pids:
        before, pids = pids, pids & descendants(os.getpid())
    return pids


def _tell(**line: Any) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
