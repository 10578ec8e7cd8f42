"""Nothing outlives its owner: not a copy its query, not a worker its sandbox, not the zygote the engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import children, descendants, running, wait_until

from prismem_core.errors import CandidateError, SandboxError, WorkerLost
from prismem_core.program.sandbox import Limits, MemoryWorker, Sandbox
from prismem_core.program.sandbox.engine_channel import Meter
from prismem_core.program.sandbox.recovery import again_if_lost

Build = Callable[..., str]

FOREVER = "import time\nwhile True:\n    time.sleep(1)"


def zygote_of(sandbox: Sandbox) -> int:
    pid = sandbox.zygote_pid
    assert pid is not None
    return pid


def test_nothing_starts_before_it_is_needed_and_close_ends_all(program: Build, backend: Any) -> None:
    before = children(os.getpid())
    sandbox = Sandbox()
    assert children(os.getpid()) == before
    assert sandbox.zygote_pid is None
    workers = [sandbox.open(program(), backend) for _ in range(3)]
    started = children(os.getpid()) - before
    assert started == {zygote_of(sandbox)}
    everything = started | descendants(zygote_of(sandbox))
    assert {worker.pid for worker in workers} <= everything
    # The zygote has two halves where the kernel gives it namespaces.
    assert len(everything) - len(workers) in (1, 2)
    sandbox.close()
    assert not running(everything)
    assert children(os.getpid()) == before
    with pytest.raises((CandidateError, SandboxError)):
        workers[0].retrieve({"query_text": ""})
    with pytest.raises(SandboxError, match="closed"):
        sandbox.open(program(), backend)
    sandbox.close()


def test_two_hundred_workers_leave_no_descriptor_and_no_process(program: Build, backend: Any) -> None:
    source = program(retrieve="return self.texts[0]")
    with Sandbox() as sandbox:
        with sandbox.open(source, backend):
            pass
        descriptors = len(os.listdir("/proc/self/fd"))
        for number in range(200):
            with sandbox.open(source, backend) as worker:
                worker.index([{"memory_text": str(number)}], "")
                assert worker.retrieve({"query_text": ""})[0] == str(number)
                if number % 3 == 0:
                    with pytest.raises(CandidateError):
                        worker.index([{"no_field": 1}], "")
        assert len(os.listdir("/proc/self/fd")) == descriptors
        assert len(descendants(zygote_of(sandbox))) <= 1


def test_copies_leave_no_zombie_behind(sandbox: Sandbox, program: Build, backend: Any) -> None:
    with sandbox.open(program(), backend) as worker:
        for _ in range(20):
            worker.retrieve({"query_text": ""})
        assert wait_until(lambda: children(worker.pid) == set())


def test_an_orphan_is_ended_with_its_worker(program: Build, backend: Any) -> None:
    escape = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)"
    unconfined = Sandbox(restrict_names=False, unsafe=True, without=("seccomp", "namespaces"))
    with unconfined as sandbox, sandbox.open(program(index=escape), backend) as worker:
        worker.index([], "")
        escaped = children(worker.pid)
        assert len(escaped) == 1
        worker.close()
        assert wait_until(lambda: not running(escaped))


@pytest.mark.parametrize("without", [(), ("namespaces",)])
@pytest.mark.parametrize("half", ["outer", "inner"])
def test_a_copy_ends_with_the_zygote_also_if_the_engine_keeps_still(
    program: Build, backend: Any, without: tuple[str, ...], half: str
) -> None:
    with Sandbox(restrict_names=False, without=without) as sandbox, sandbox.open(program(), backend) as worker:
        copy = worker._process.copy("a copy", Meter("a copy", Limits().retrieve))
        outer = zygote_of(sandbox)
        family = descendants(outer)
        assert {worker.pid, copy.pid} <= family
        halves = any(layer.name == "namespaces" and layer.state == "witnessed" for layer in sandbox.layers())
        os.kill(children(outer).pop() if half == "inner" and halves else outer, signal.SIGKILL)
        assert wait_until(lambda: not running(family | {outer}))
        with pytest.raises(WorkerLost):
            worker.retrieve({"query_text": ""})


@pytest.mark.parametrize("what", ["worker", "copy"])
def test_a_sigkill_from_elsewhere_is_told_from_a_death_of_the_programs_own(
    program: Build, backend: Any, what: str
) -> None:
    source = program(index="self.backend.ask('')", retrieve="self.backend.ask('')\nreturn 'here'")

    class Killer:
        """Kills the process that asks."""

        victim: Callable[[], int]

        def ask(self, prompt: str, system_prompt: str | None, json_object: bool) -> str:
            os.kill(self.victim(), signal.SIGKILL)
            return ""

        def embed(self, texts: list[str]) -> Any:
            raise AssertionError("not asked for")

    killer = Killer()
    with Sandbox() as sandbox, sandbox.open(source, killer) as worker:
        if what == "worker":
            killer.victim = lambda: worker.pid
            with pytest.raises(WorkerLost, match="killed from outside") as caught:
                worker.index([], "")
            assert caught.value.killed
        else:
            killer.victim = lambda: children(worker.pid).pop()
            # Kernels before 6.15 do not tell how a copy ended.
            with pytest.raises((WorkerLost, CandidateError), match=r"killed from outside|ended by itself"):
                worker.retrieve({"query_text": ""})
            assert worker.retrieve({"query_text": ""}, backend)[0] == "here"


def test_a_killed_zygote_is_replaced_and_nobody_else_is_blamed(program: Build, backend: Any) -> None:
    with Sandbox() as sandbox:
        worker = sandbox.open(program(), backend)
        old = zygote_of(sandbox)
        family = {old} | descendants(old)
        os.kill(old, signal.SIGKILL)
        assert wait_until(lambda: not running(family))
        with pytest.raises(SandboxError, match="the sandbox ended"):
            worker.retrieve({"query_text": ""})
        worker.close()
        with sandbox.open(program(retrieve="return 'new'"), backend) as fresh:
            assert fresh.retrieve({"query_text": ""})[0] == "new"
        assert zygote_of(sandbox) != old


@pytest.mark.parametrize("in_place", [False, True])
def test_a_zygote_killed_during_a_call_is_no_fault_of_the_program(
    bare_sandbox: Sandbox, program: Build, backend: Any, in_place: bool
) -> None:
    with Sandbox(restrict_names=False) as sandbox, sandbox.open(program(retrieve=FOREVER), backend) as worker:
        old = zygote_of(sandbox)
        killer = threading.Timer(0.5, os.kill, (old, signal.SIGKILL))
        killer.start()
        with pytest.raises(SandboxError, match="the sandbox ended"):
            worker.retrieve({"query_text": ""}, in_place=in_place)
        killer.join()


def test_a_killed_engine_leaves_nothing_running(program: Build, tmp_path: Path) -> None:
    engine = tmp_path / "engine.py"
    engine.write_text(
        "import sys, threading, time\n"
        "from prismem_core.program.sandbox import Sandbox\n"
        "class Backend:\n"
        "    def ask(self, *_): return ''\n"
        "    def embed(self, texts): raise AssertionError\n"
        "sandbox = Sandbox(restrict_names=False)\n"
        "source = sys.stdin.read()\n"
        "workers = [sandbox.open(source, Backend()) for _ in range(2)]\n"
        "threading.Thread(target=workers[0].index, args=([], ''), daemon=True).start()\n"
        "threading.Thread(target=workers[1].retrieve, args=({'query_text': ''},), daemon=True).start()\n"
        "print(workers[1].pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    busy = "while True:\n    pass"
    process = subprocess.Popen(
        [sys.executable, str(engine)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(program(index=busy, retrieve=busy).encode())
        process.stdin.close()
        retrieving = int(process.stdout.readline())
        assert wait_until(lambda: len(children(retrieving)) == 1)
        family = descendants(process.pid)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert wait_until(lambda: not running(family)), f"still running: {running(family)}"


def test_a_forked_engine_is_told_to_make_its_own(sandbox: Sandbox, program: Build, backend: Any) -> None:
    with sandbox.open(program(), backend) as worker:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            told = []
            for use in (lambda: sandbox.open(program(), backend), lambda: worker.retrieve({"query_text": ""})):
                try:
                    use()
                except SandboxError as error:
                    told.append(str(error))
            os.write(write, "|".join(told).encode())
            os._exit(0)
        os.close(write)
        told = os.read(read, 4096).decode()
        os.close(read)
        os.waitpid(child, 0)
        assert told.count("in a forked process") == 2
        assert worker.retrieve({"query_text": ""})[0] == ""


def test_closing_a_worker_while_it_retrieves_ends_the_call(program: Build, backend: Any) -> None:
    with Sandbox(restrict_names=False) as sandbox:
        worker = sandbox.open(program(retrieve=FOREVER), backend)
        closer = threading.Timer(0.3, worker.close)
        closer.start()
        with pytest.raises(CandidateError, match="ended by itself"):
            worker.retrieve({"query_text": ""})
        closer.join()


def test_work_in_a_lost_worker_is_done_again_and_a_program_that_is_killed_every_time_is_to_blame() -> None:
    lost = [WorkerLost("the sandbox ended", killed=False), WorkerLost("killed from outside", killed=True)]

    def twice_lost() -> str:
        if lost:
            raise lost.pop()
        return "done"

    assert again_if_lost(twice_lost) == "done"

    def always(killed: bool) -> Callable[[], str]:
        def work() -> str:
            raise WorkerLost("told", killed=killed)

        return work

    with pytest.raises(WorkerLost, match="told"):
        again_if_lost(always(False))
    with pytest.raises(CandidateError, match=r"told \(3 times\)") as caught:
        again_if_lost(always(True))
    assert caught.value.kind == "died"


def test_a_zygote_killed_during_a_description_is_replaced(program: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox() as sandbox:
        sandbox.layers()
        ended, original = [], MemoryWorker.call

        def call(self: MemoryWorker, *given: Any, **named: Any) -> Any:
            if not ended:
                ended.append(zygote_of(sandbox))
                os.kill(ended[0], signal.SIGKILL)
                assert wait_until(lambda: not running(set(ended)))
            return original(self, *given, **named)

        monkeypatch.setattr(MemoryWorker, "call", call)
        assert [field.name for field in sandbox.describe(program()).unit] == ["memory_text"]
        assert zygote_of(sandbox) not in ended


def test_workers_that_nobody_closed_leave_nothing(program: Build, backend: Any) -> None:
    with Sandbox() as sandbox:
        with sandbox.open(program(), backend):
            descriptors = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            sandbox.open(program(), backend).index([], "")
        with sandbox.open(program(), backend) as last:
            assert len(os.listdir("/proc/self/fd")) == descriptors
            assert len(descendants(zygote_of(sandbox)) - {last.pid}) <= 1
        kept = sandbox.open(program(), backend)
    assert len(os.listdir("/proc/self/fd")) < descriptors
    with pytest.raises(CandidateError, match="the sandbox was closed"):
        kept.retrieve({"query_text": ""})


def test_an_engine_that_stood_still_blames_nobody(program: Build, tmp_path: Path) -> None:
    engine = tmp_path / "engine.py"
    engine.write_text(
        "import sys, dataclasses\n"
        "from prismem_core.program.sandbox import Limits, Sandbox\n"
        "class Backend:\n"
        "    def ask(self, *_): raise AssertionError\n"
        "    def embed(self, texts): raise AssertionError\n"
        "with Sandbox(restrict_names=False) as sandbox:\n"
        "    limits = Limits(retrieve_wall_seconds=5.0)\n"
        "    with sandbox.open(sys.stdin.read(), Backend(), limits) as worker:\n"
        "        print('running', flush=True)\n"
        "        print(worker.retrieve({'query_text': ''})[0])\n"
    )
    # Two seconds, in which the engine is stopped for longer than the limit.
    source = program(imports="import time", retrieve="time.sleep(2)\nreturn 'done'")
    process = subprocess.Popen(
        [sys.executable, str(engine)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(source.encode())
        process.stdin.close()
        assert process.stdout.readline() == b"running\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGSTOP)
        time.sleep(7)
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline() == b"done\n"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
