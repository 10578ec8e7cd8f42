"""Throw-away children tell once, are waited for with patience that ends, and leave nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from prismem_core.program.sandbox.kernel import calls, trial
from prismem_core.program.sandbox.kernel.trial import Attempt, Missing


def test_the_result_comes_back() -> None:
    assert trial.in_child(lambda: "seen: Zürich") == "seen: Zürich"


@pytest.mark.parametrize("error", [Missing("not there"), OSError(1, "not there"), RuntimeError("not there")])
def test_a_failure_is_a_missing_layer(error: Exception) -> None:
    def deed() -> str:
        raise error

    with pytest.raises(Missing, match="not there"):
        trial.in_child(deed)


def test_a_long_text_is_cut() -> None:
    assert trial.in_child(lambda: "x" * 100_000) == "x" * 1999


@pytest.mark.parametrize("way", [lambda: os._exit(0), lambda: os.kill(os.getpid(), signal.SIGKILL)])
def test_a_child_that_dies_is_a_missing_layer(way: Callable[[], None]) -> None:
    def deed() -> str:
        way()
        return "lived"

    with pytest.raises(Missing, match="ended without a word"):
        trial.in_child(deed)


def _wait_for_ever() -> str:
    while True:
        signal.pause()


def test_a_child_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "PATIENCE_SECONDS", 0.05)
    with pytest.raises(Missing, match=r"still at it after 0\.05 s"):
        trial.in_child(_wait_for_ever)


def test_a_descendant_that_keeps_the_pipe_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "PATIENCE_SECONDS", 0.05)

    def deed() -> str:
        if os.fork() == 0:
            _wait_for_ever()
        os._exit(0)

    with pytest.raises(Missing, match="still at it"):
        trial.in_child(deed)


def test_no_process_and_no_descriptor_is_left() -> None:
    def adopting() -> str:
        calls.prctl(calls.PR_SET_CHILD_SUBREAPER, 1)
        before = os.listdir("/proc/self/fd")

        def forks() -> str:
            if os.fork() == 0:
                _wait_for_ever()
            return "told"

        found = trial.in_child(forks)
        try:
            os.waitpid(-1, os.WNOHANG)
            found += ", a child is left"
        except ChildProcessError:
            found += ", none is left"
        return found + f", {len(os.listdir('/proc/self/fd')) - len(before)} descriptors"

    assert trial.in_child(adopting) == "told, none is left, 0 descriptors"


class _Switch:
    """Attempts that work until the layer is put on."""

    def __init__(self) -> None:
        self.on = False

    def put_on(self) -> None:
        self.on = True

    def forbidden(self) -> None:
        if self.on:
            raise PermissionError(1, "Operation not permitted")

    def never(self) -> None:
        raise PermissionError(1, "Operation not permitted")

    def always(self) -> None:
        pass


def test_a_layer_counts_if_what_worked_is_refused() -> None:
    switch = _Switch()
    attempts = [Attempt("open", switch.forbidden), Attempt("send", switch.forbidden)]
    assert trial.compare(attempts, switch.put_on) == "refused: open, send"


def test_what_never_worked_is_told_and_proves_nothing() -> None:
    switch = _Switch()
    attempts = [Attempt("open", switch.forbidden), Attempt("send", switch.never)]
    assert trial.compare(attempts, switch.put_on) == "refused: open (refused before it too: send)"
    with pytest.raises(Missing, match="cannot be tried, because this was refused before it too: send"):
        trial.compare(attempts[1:], switch.put_on)


def test_a_layer_that_lets_something_through_is_missing() -> None:
    switch = _Switch()
    attempts = [Attempt("open", switch.forbidden), Attempt("send", switch.always), Attempt("fork", switch.always)]
    with pytest.raises(Missing, match="still possible: send, fork"):
        trial.compare(attempts, switch.put_on)


def test_a_layer_that_refuses_everything_proves_nothing() -> None:
    switch = _Switch()
    with pytest.raises(Missing, match="possible no more, though it should be: map"):
        trial.compare([Attempt("open", switch.forbidden)], switch.put_on, (Attempt("map", switch.forbidden),))


def test_a_layer_that_cannot_be_put_on_is_missing() -> None:
    def put_on() -> None:
        raise OSError(38, "seccomp: Function not implemented")

    with pytest.raises(Missing, match=r"^seccomp: Function not implemented$"):
        trial.compare([Attempt("open", _Switch().always)], put_on)
