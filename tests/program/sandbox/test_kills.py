"""kill -9 at moments that nobody chooses: work goes on, nobody is blamed, results stay the same, nothing is left."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import children, descendants, running, wait_until

import prismem_core
from prismem_core.errors import CandidateError
from prismem_core.program.sandbox import Sandbox
from prismem_core.program.sandbox.engine_channel import EngineChannel
from prismem_core.program.sandbox.fork_gate import ForkGate
from prismem_core.program.sandbox.recovery import again_if_lost

Build = Callable[..., str]

LAYERS_OFF = pytest.mark.parametrize("without", [(), ("namespaces", "empty_root")], ids=["all-layers", "no-namespaces"])

QUERIES = [{"query_text": f"question {number}"} for number in range(3)]


class Kills:
    """A thread that kills one process below this one in each piece of work: by role in turn, at a random moment.

    More would be too much for work that is done three times at most.
    """

    ROLES = ("copy", "worker", "zygote", "inner")

    def __init__(self, sandbox: Sandbox, count: int) -> None:
        self._sandbox = sandbox
        self._random = random.Random(0)
        self._left = count
        self._piece = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.made: list[str] = []
        self.seen: set[int] = set()

    def __enter__(self) -> Kills:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._piece.set()
        self._thread.join()

    def go_on(self) -> bool:
        """Allow one in the next piece of work; False once all were made."""
        self._piece.set()
        return self._left > 0

    def _run(self) -> None:
        while self._left:
            self._piece.wait()
            self._piece.clear()
            self._stop.wait(self._random.choice((0.0, 0.02, 0.2)) * self._random.random())
            while not self._kill(self.ROLES[self._left % len(self.ROLES)]):
                if self._stop.wait(0.001):
                    return
            self._left -= 1

    def _kill(self, role: str) -> bool:
        outer = self._sandbox.zygote_pid
        found = [] if outer is None else self._of(role, outer)
        if outer is None or not found:
            return False
        self.seen |= {outer} | descendants(outer)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._random.choice(found), signal.SIGKILL)
            self.made.append(role)
            return True
        return False

    def _of(self, role: str, outer: int) -> list[int]:
        named = {layer.name for layer in self._sandbox.layers() if layer.state == "witnessed"} & {"namespaces"}
        inner = children(outer) if named else {outer}
        workers = {pid for half in inner for pid in children(half)}
        copies = {pid for worker in workers for pid in children(worker)}
        return sorted({"copy": copies, "worker": workers, "zygote": {outer}, "inner": inner}[role])


def answers(sandbox: Sandbox, source: str, backend: Any) -> list[str]:
    """What a program answers; a worker that was lost is made again, a copy that died is asked once more."""

    def once() -> list[str]:
        with sandbox.open(source, backend) as worker:
            worker.index([{"memory_text": f"unit {number}"} for number in range(50)], "")
            return [asked(lambda query=query: worker.retrieve(query)[0]) for query in QUERIES]

    def asked(ask: Callable[[], str]) -> str:
        for _ in range(5):
            with contextlib.suppress(CandidateDied):
                return told_apart(ask)
        return told_apart(ask)

    return again_if_lost(once)


class CandidateDied(Exception):
    """A copy ended without an answer."""


def told_apart(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except CandidateError as error:
        if error.kind == "died" and "ended earlier" not in str(error):
            raise CandidateDied from error
        raise


@LAYERS_OFF
def test_a_kill_at_any_moment_is_nobodys_fault(program: Build, backend: Any, without: tuple[str, ...]) -> None:
    source = program(
        index="for _ in range(20):\n    self.texts = sorted(unit.memory_text for unit in units) * 20",
        retrieve="for _ in range(20):\n    text = query.query_text + ' '.join(self.texts)\nreturn text[:9000]",
    )
    with Sandbox(without=without) as sandbox:
        expected = answers(sandbox, source, backend)
        before = len(os.listdir("/proc/self/fd"))
        with Kills(sandbox, 24) as kills:
            while kills.go_on():
                assert answers(sandbox, source, backend) == expected
        assert set(kills.made) == set(Kills.ROLES)
        assert answers(sandbox, source, backend) == expected
        assert wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before)
    assert wait_until(lambda: not running(kills.seen))


ENGINE = """\
import sys
from prismem_core.program.sandbox import Sandbox

class Backend:
    def ask(self, prompt, system_prompt, json_object):
        print(prompt, flush=True)
        return ""

    def embed(self, texts):
        raise AssertionError

source = sys.stdin.read()
with Sandbox(restrict_names=False, without={without!r}) as sandbox:
    while True:
        with sandbox.open(source, Backend()) as worker:
            worker.index([{{"memory_text": "unit"}}], "")
            for _ in range(5):
                worker.retrieve({{"query_text": "question"}})
"""


@LAYERS_OFF
def test_an_engine_killed_at_any_moment_leaves_nothing_running(
    program: Build, tmp_path: Path, without: tuple[str, ...]
) -> None:
    script = tmp_path / "engine.py"
    script.write_text(ENGINE.format(without=without))
    source = program(index="self.backend.ask('indexing')", retrieve="return 'found'")
    chosen = random.Random(0)
    for _ in range(4):
        family = killed_engine(script, source, "indexing", chosen.uniform(0.0, 0.3))
        assert wait_until(lambda family=family: not running(family)), f"still running: {running(family)}"


@LAYERS_OFF
def test_a_killed_engine_leaves_no_copy_that_hides_from_its_parents_death(
    program: Build, tmp_path: Path, without: tuple[str, ...]
) -> None:
    script = tmp_path / "engine.py"
    script.write_text(ENGINE.format(without=without))
    source = program(
        imports="import sys, time",
        index="sys.modules['prismem_core.program.sandbox.confinement'].die_with_parent = lambda parent: None",
        retrieve="self.backend.ask('retrieving')\nwhile True:\n    time.sleep(1)",
    )
    family = killed_engine(script, source, "retrieving", 0.0)
    assert wait_until(lambda: not running(family)), f"still running: {running(family)}"


def killed_engine(script: Path, source: str, prompt: str, seconds: float) -> set[int]:
    """The processes that an engine had made when it was killed, `seconds` after a program had asked it `prompt`."""
    paths = [str(Path(prismem_core.__file__).parent.parent), *(path for path in sys.path if path)]
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    ) as engine:
        assert engine.stdin is not None and engine.stdout is not None
        try:
            engine.stdin.write(source)
            engine.stdin.close()
            assert engine.stdout.readline() == f"{prompt}\n"
            with contextlib.suppress(subprocess.TimeoutExpired):
                engine.wait(seconds)
            # Stopped, it makes no further process between the look and the kill.
            engine.send_signal(signal.SIGSTOP)
            family = descendants(engine.pid)
            assert family
        finally:
            engine.kill()
    return family


def test_a_worker_that_is_ended_while_a_copy_is_prepared_is_told_as_ended(
    program: Build, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = program(index="self.texts = [unit.memory_text for unit in units]", retrieve="return self.texts[0]")
    with Sandbox() as sandbox, sandbox.open(source, backend) as worker:
        worker.index([{"memory_text": "unit"}], "")
        watch = EngineChannel.watch

        def ended_meanwhile(channel: EngineChannel, gate: ForkGate) -> None:
            worker._process.end("another thread gave it up")
            watch(channel, gate)

        monkeypatch.setattr(EngineChannel, "watch", ended_meanwhile)
        with pytest.raises(CandidateError, match="the worker ended earlier: another thread gave it up"):
            worker.retrieve({"query_text": "q"})
