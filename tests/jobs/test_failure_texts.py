"""What a designer is told of a failed program: its kind, what was allowed, its own line, what to do, no host path."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import prismem_core
from prismem_core.errors import CandidateError, RoleError, SandboxError, WorkerLost
from prismem_core.evolution.attempts import Measurement
from prismem_core.evolution.task_laboratory import TaskLaboratory
from prismem_core.jobs.isolation import Confinement, isolation_of
from prismem_core.jobs.settings import build_job_settings
from prismem_core.jobs.workbench import Workbench
from prismem_core.program import library
from prismem_core.program.sandbox import Limits, Sandbox
from prismem_core.program.sandbox.worker_process import WorkerProcess
from prismem_core.tasks.datasets import load

SEED = library.source("seed")
RETRIEVE = '        return "\\n".join(self.memories)[:OUT_CHAR_BUDGET]\n'
INDEX = "        self.memories.extend(unit.memory_text for unit in units)\n"
LIMITS = Limits(
    index_cpu_seconds=0.5,
    index_wall_seconds=2.0,
    retrieve_cpu_seconds=0.5,
    retrieve_wall_seconds=2.0,
    memory_bytes=1 << 30,
    index_ask_calls=1,
    retrieve_ask_calls=1,
)
# Rows that are not about waiting get so much of it that a busy machine never ends them first.
PATIENT = replace(LIMITS, index_wall_seconds=300.0, retrieve_wall_seconds=300.0)
HOST = tuple({sys.prefix, sys.base_prefix, str(Path(prismem_core.__file__).parent), str(Path(np.__file__).parent)})


@dataclass(frozen=True)
class Row:
    """A program that fails in `index` or `retrieve`, what it is blamed for, and what the text must hold."""

    kind: str
    stage: str
    body: str
    words: tuple[str, ...]
    line: bool = True


REFUSED = "programs may not use files, sockets, processes, threads or signals"
ROWS = {
    "error in index": Row("error", "index", "1 / 0", ("ZeroDivisionError", "in index: 1 / 0", "mend the program")),
    "error in retrieve": Row("error", "retrieve", "{}['x']", ("KeyError: 'x'", "in retrieve: {}['x']")),
    "recursion": Row("error", "retrieve", "return self.retrieve(query)", ("RecursionError", "in retrieve:")),
    "exit": Row("error", "index", "raise SystemExit(0)", ("SystemExit",)),
    "file": Row("error", "index", "open('/etc/passwd')", ("PermissionError", REFUSED)),
    "socket": Row("error", "retrieve", "import socket; socket.socket()", ("PermissionError", REFUSED)),
    "process": Row("error", "index", "import os; os.fork()", ("PermissionError", REFUSED)),
    "value of index": Row("invalid", "index", "return 3", ("index() returned", "int", "None"), line=False),
    "kind of text": Row("invalid", "retrieve", "return 3", ("type int", "must return a str"), line=False),
    "length": Row("invalid", "retrieve", "return 'x' * 17_000", ("17000", "16000"), line=False),
    "processor time": Row(
        "limit:cpu", "index", "while True: pass", ("index() used more than 0.5 s processor time", "do less"), line=False
    ),
    "processor time of a query": Row(
        "limit:cpu", "retrieve", "while True: pass", ("retrieve() used more than 0.5 s processor time",), line=False
    ),
    "wall time": Row(
        "limit:wall",
        "index",
        "import time; time.sleep(60)",
        ("index() took longer than 2 s", "wait for nothing"),
        line=False,
    ),
    "memory": Row("limit:memory", "index", "self.x = [0] * (1 << 30)", ("1024 MiB are allowed", "float32")),
    "calls": Row(
        "limit:calls",
        "index",
        "[self.backend.ask(str(n)) for n in range(9)]",
        ("index() made more than 1 calls of backend.ask", "rarely"),
        line=False,
    ),
    "own end": Row("died", "index", "import os; os._exit(3)", ("exit status 3", "leave the interpreter"), line=False),
    "own end in a query": Row("died", "retrieve", "import os; os._exit(3)", ("ended by itself",), line=False),
    "refused call": Row(
        "died", "index", "import os; os.execv('/bin/sh', ['sh'])", ("system call", REFUSED), line=False
    ),
    "forged frame": Row(
        "protocol",
        "index",
        "import os\n        [os.write(n, b'x' * 64) for n in range(3, 9) if self.is_open(n)]",
        ("through the methods of backend alone",),
        line=False,
    ),
}
IS_OPEN = """
    def is_open(self, number):
        import os

        try:
            return os.write(number, b"") == 0
        except OSError:
            return False

"""


def program(row: Row) -> str:
    old = INDEX if row.stage == "index" else RETRIEVE
    assert SEED.count(old) == 1
    source = SEED.replace(old, f"        {row.body}\n{old}")
    return source.replace("    def index(", f"{IS_OPEN}    def index(", 1)


@pytest.fixture(scope="module")
def bench(small_data: Path) -> Iterator[Workbench]:
    # Programs get all names here, because refused system calls are to be seen.
    sandbox = Sandbox(restrict_names=False)
    settings = build_job_settings({"embedder": "hashing", "reranker": False})
    with Workbench(load(str(small_data)), settings, confinement=Confinement(sandbox, isolation_of(sandbox))) as made:
        pipeline = made.evaluator.pipeline
        pipeline.settings = replace(pipeline.settings, limits=LIMITS)
        yield made


@pytest.fixture(scope="module")
def laboratory(bench: Workbench) -> TaskLaboratory:
    tasks = bench.dataset.tasks
    return TaskLaboratory(
        bench.evaluator, tasks[:1], tasks[1:2], bench.sandbox, bench.ledger, bench.roles.diagnostic_embedder
    )


@pytest.mark.parametrize("name", ROWS)
def test_a_failed_measurement_says_what_to_mend(
    name: str, laboratory: TaskLaboratory, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, source = ROWS[name], program(ROWS[name])
    pipeline = bench.evaluator.pipeline
    if row.kind != "limit:wall":
        monkeypatch.setattr(pipeline, "settings", replace(pipeline.settings, limits=PATIENT))
    result = laboratory.evaluate("n01", source, [laboratory.train[0].id], "target")
    assert result.failure is not None
    told = Measurement.failure(result.failure, None)
    assert told.reason == f"execution:{row.kind}"
    assert f"{row.stage} failed on task {laboratory.train[0].id}: {row.kind}: " in told.message
    for words in (*row.words, "to mend it: "):
        assert words in told.message
    assert not [path for path in HOST if path in told.message]
    if row.line:
        wanted = source.splitlines().index(f"        {row.body}".split("\n")[0]) + 1
        assert result.failure.line == wanted
        assert f"line {wanted}" in told.message
    assert len(told.message) < 2500


CODES = {
    "error": "smoke_error",
    "limit:cpu": "too_slow",
    "limit:calls": "backend_calls",
    "limit:memory": "smoke_error",
    "died": "smoke_error",
}
TRIED = ("error in index", "file", "kind of text", "length", "memory", "own end", "refused call")


@pytest.mark.parametrize("name", TRIED)
def test_a_failed_validation_says_it_too(
    name: str, laboratory: TaskLaboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What such programs say would end at the static check, which is not what is looked at here.
    monkeypatch.setattr("prismem_core.program.validation.static.access_faults", lambda *a: [])
    monkeypatch.setattr("prismem_core.program.validation.static.import_faults", lambda *a: [])
    row, source = ROWS[name], program(ROWS[name])
    verdict = laboratory.validate(source, None)
    expected = CODES.get(row.kind) or {"kind of text": "retrieve_type", "length": "retrieve_length"}[name]
    assert verdict.code == expected
    assert f"{row.kind}: " in verdict.message and "to mend it: " in verdict.message
    for words in row.words:
        assert words.replace("1024 MiB", "2048 MiB") in verdict.message
    assert not [path for path in HOST if path in verdict.message]
    if row.line:
        assert f"line {source.splitlines().index(f'        {row.body}') + 1}" in verdict.message


def test_a_line_that_a_message_lacks_is_put_before_it(laboratory: TaskLaboratory) -> None:
    source = SEED.replace("def retrieve(self, query: Query)", "def retrieve(self, query: Query, k=3)")
    verdict = laboratory.validate(source, None)
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "k=3" in text)
    assert verdict.code == "bad_signature"
    assert verdict.message.startswith(f"line {line}: ")


def test_a_failing_model_is_not_the_programs_fault(laboratory: TaskLaboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> str:
        raise RoleError("the provider is down")

    monkeypatch.setattr("prismem_core.pipeline.backend.EngineBackend.ask", fail)
    source = program(Row("", "index", "self.backend.ask('x')", ()))
    with pytest.raises(RoleError, match="the provider is down"):
        laboratory.evaluate("n01", source, [laboratory.train[0].id], "target")


def test_a_failing_engine_is_not_the_programs_fault(
    laboratory: TaskLaboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*arguments: object) -> WorkerProcess:
        raise WorkerLost("the sandbox ended", killed=False)

    monkeypatch.setattr(WorkerProcess, "start", lost)
    source = SEED.replace("class Memory:", "class Other:\n    pass\n\n\nclass Memory:")
    with pytest.raises(SandboxError) as failure:
        laboratory.evaluate("n01", source, [laboratory.train[0].id], "target")
    assert not isinstance(failure.value, CandidateError)
