"""However the process that has an engine ends, none of the engine's processes is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.vllm.conftest import ROOT
from tests.vllm.processes import PATIENCE_SECONDS, Process, below, left_of, wait_until

Owner = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def owner(tiny_chat: Path) -> Iterator[Owner]:
    """Begins an owner, in a process group of its own as a terminal does."""
    begun: list[subprocess.Popen[str]] = []

    def begin(end: str) -> subprocess.Popen[str]:
        begun.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.vllm.owner", str(tiny_chat), end],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        )
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def asking(process: subprocess.Popen[str]) -> list[Process]:
    """The processes below an owner that has got its first reply."""
    assert process.stdout is not None and process.stdout.readline() == "asked\n"
    found = below(process.pid)
    assert any("EngineCore" in one.line for one in found)
    return found


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_to_the_owner_ends_its_engine(owner: Owner, sign: signal.Signals) -> None:
    process = owner("asks")
    found = asking(process)
    process.send_signal(sign)
    assert process.wait(PATIENCE_SECONDS) == -sign
    assert left_of(found) == []


def starting(process: subprocess.Popen[str]) -> list[Process]:
    """The processes below an owner whose engine is starting."""

    def still_there() -> None:
        assert process.poll() is None

    wait_until(lambda: any("spawn_main" in one.line for one in below(process.pid)), still_there)
    found = below(process.pid)
    assert any("spawn_main" in one.line for one in found)
    return found


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])
def test_an_owner_that_ends_while_the_engine_starts_leaves_none(owner: Owner, sign: signal.Signals) -> None:
    process = owner("asks")
    found = starting(process)
    process.send_signal(sign)
    assert process.wait(PATIENCE_SECONDS) == -sign
    assert left_of(found) == []


def test_an_owner_that_aborts_leaves_none(owner: Owner) -> None:
    process = owner("aborts")
    found = asking(process)
    go_on(process)
    assert process.wait(PATIENCE_SECONDS) == -signal.SIGABRT
    assert left_of(found) == []


def test_an_owner_that_ends_without_closing_leaves_none(owner: Owner) -> None:
    process = owner("ends")
    found = asking(process)
    go_on(process)
    assert process.wait(PATIENCE_SECONDS) == 0
    assert left_of(found) == []


@pytest.mark.parametrize("to_all", [True, False], ids=["of the terminal", "of the owner alone"])
def test_an_interrupt_ends_a_command_and_its_engine(owner: Owner, to_all: bool) -> None:
    process = owner("asks")
    found = asking(process)
    if to_all:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_SECONDS) != 0
    assert left_of(found) == []
