"""The witnesses see each layer that holds, and none that does not."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.program.sandbox.outer_sandbox import refusing

from prismem_core.program.sandbox.kernel import (
    calls,
    credentials,
    landlock,
    namespaces,
    notification,
    resource_limits,
    seccomp,
    trial,
    witness,
)
from prismem_core.program.sandbox.layers import LAYERS, read_layers

NOT_ENTERED = ("missing", "not entered")

Examine = Callable[..., dict[str, tuple[str, str]]]


def _by_name(told: str) -> dict[str, tuple[str, str]]:
    return {layer.name: (layer.state, layer.witness) for layer in read_layers(json.loads(told))}


@pytest.fixture
def examine(apart: Callable[..., str]) -> Examine:
    """What the witnesses see in a process that is in no namespaces of its own."""

    def run(without: tuple[str, ...] = ()) -> dict[str, tuple[str, str]]:
        return _by_name(apart(lambda: json.dumps(witness.examine(frozenset(without), NOT_ENTERED, NOT_ENTERED))))

    return run


def test_every_layer_is_told_once_in_its_order() -> None:
    told = trial.in_child(lambda: json.dumps(witness.examine(frozenset(LAYERS), ("off", ""), ("off", ""))))
    assert [entry[0] for entry in json.loads(told)] == list(LAYERS)
    assert {entry[1] for entry in json.loads(told)} == {"off"}


def test_what_holds_is_seen(examine: Examine) -> None:
    found = examine()
    assert found["seccomp"] == (
        "witnessed",
        "refused: open a folder, look at a file, make a socket, fork, send a signal, "
        "read the clock of another process, map executable memory, map shared memory; "
        "ended for it: execute a file, start a thread",
    )
    assert found["limits"] == ("witnessed", "refused: take more memory, open more descriptors, write to a file")
    assert found["copies"] == ("witnessed", "a fork that was ordered went on, another was refused")
    if landlock.abi() > 0:
        assert found["landlock"][0] == "witnessed"
        assert found["landlock"][1].startswith("refused: open a folder")


def test_a_user_of_its_own_is_for_engines_that_are_root(examine: Examine, request: pytest.FixtureRequest) -> None:
    state, text = examine()["own_user"]
    if os.geteuid() == 0 and "the user of the tests" in request.node.name:
        assert (state, text) == ("witnessed", "refused: signal a process of root, be root again")
    else:
        assert (state, text) == ("missing", "the engine is not root, so workers have its user")


def test_layers_of_the_whole_process_are_seen_from_inside(apart: Callable[..., str]) -> None:
    def deed() -> str:
        try:
            words = namespaces.enter()
        except OSError as error:
            return f"SKIP {error.strerror}"
        readable, writable = os.pipe()
        if os.fork() == 0:
            root = ("witnessed", namespaces.empty_root())
            os.write(writable, json.dumps(witness.examine(frozenset(), ("witnessed", words), root)).encode())
            os._exit(0)
        os.close(writable)
        return os.read(readable, 4096).decode()

    told = apart(deed)
    if told.startswith("SKIP"):
        pytest.skip(f"this system allows no namespaces: {told[5:]}")
    found = _by_name(told)
    assert found["namespaces"][0] == "witnessed"
    assert found["namespaces"][1].endswith("is process 1, sees no process outside, has no way to other machines")
    assert found["empty_root"][0] == "witnessed"
    assert found["empty_root"][1].endswith("/ lists nothing, no file can be made")
    # The witnesses of the other layers have to work where there are no files and no network.
    assert {found[name][0] for name in ("seccomp", "limits", "copies")} == {"witnessed"}


def test_layers_that_are_claimed_and_not_worn_are_missing() -> None:
    claimed = ("witnessed", "claimed")
    found = _by_name(trial.in_child(lambda: json.dumps(witness.examine(frozenset(), claimed, claimed))))
    assert found["namespaces"][0] == found["empty_root"][0] == "missing"
    assert "the process is number" in found["namespaces"][1]
    assert "/ still holds" in found["empty_root"][1]


@pytest.mark.parametrize("name", ["seccomp", "landlock", "own_user", "limits", "copies"])
def test_a_layer_that_is_left_off_is_off(name: str, examine: Examine) -> None:
    assert examine((name,))[name] == ("off", "left off")


def test_copies_need_the_filter(examine: Examine) -> None:
    assert examine(("seccomp",))["copies"] == ("off", "needs seccomp")


def _nothing(*_: object, **__: object) -> Any:
    return True


def _fails(number: int, text: str) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise OSError(number, text)

    return fail


def _never(*_: object) -> None:
    """Leave the caller waiting, and have no more patience with it."""
    trial.PATIENCE_SECONDS = 0.0  # in the throw-away process that is the supervisor


@pytest.mark.parametrize(
    ("module", "function", "stand_in", "layer", "text"),
    [
        (seccomp, "install", _nothing, "seccomp", "a process that tried to execute a file was not ended"),
        (
            seccomp,
            "install",
            _fails(38, "seccomp: Function not implemented"),
            "seccomp",
            "cannot be put on: Function not",
        ),
        (landlock, "deny_all", _nothing, "landlock", "still possible: open a folder"),
        (landlock, "deny_all", _fails(38, "Landlock is not in this kernel"), "landlock", "is not in this kernel"),
        (resource_limits, "impose", _nothing, "limits", "still possible: take more memory, open more"),
        (notification, "refuse", notification.let, "copies", "a fork that was not ordered went on"),
        (notification, "let", _fails(22, "Invalid argument"), "copies", "Invalid argument"),
        (notification, "let", _never, "copies", "still at it after 0 s"),
    ],
)
def test_a_layer_that_does_nothing_is_missing(
    module: Any,
    function: str,
    stand_in: Callable[..., Any],
    layer: str,
    text: str,
    examine: Examine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, function, stand_in)
    found = examine()
    assert found[layer][0] == "missing"
    assert text in found[layer][1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(
    ("stand_in", "text"),
    [(lambda uid: True, "still possible: signal a process of root"), (lambda uid: False, "root may not change")],
)
def test_root_that_stays_root_is_seen(
    stand_in: Callable[[int], bool], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "become", stand_in)
    monkeypatch.setattr(credentials, "drop_capabilities", lambda: None)
    told = trial.in_child(lambda: json.dumps(witness.examine(frozenset(), NOT_ENTERED, NOT_ENTERED)))
    state, found = _by_name(told)["own_user"]
    assert state == "missing" and text in found


def test_a_filter_that_refuses_too_much_is_no_witness(examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    write = 2
    monkeypatch.setattr(seccomp, "_PROT_EXEC", seccomp._PROT_EXEC | write)
    assert examine()["seccomp"] == ("missing", "possible no more, though it should be: map private memory")


def test_a_sandbox_around_takes_layers_away_without_a_crash(apart: Callable[..., str]) -> None:
    def deed() -> str:
        calls.prctl(calls.PR_SET_NO_NEW_PRIVS, 1)
        refused = {"landlock_create_ruleset": errno.ENOSYS, "unshare": errno.EPERM, "seccomp": errno.EPERM}
        seccomp.install(refusing(**refused), listener=False)
        return json.dumps(witness.examine(frozenset(), NOT_ENTERED, NOT_ENTERED))

    found = _by_name(apart(deed))
    assert found["seccomp"][0] == "missing"
    assert found["copies"] == ("missing", "needs seccomp")
    assert found["landlock"][0] == "missing" and "Linux 5.13" in found["landlock"][1]
    assert found["limits"][0] == "witnessed"


def test_nothing_is_left(apart: Callable[..., str]) -> None:
    def deed() -> str:
        calls.prctl(calls.PR_SET_CHILD_SUBREAPER, 1)
        before = len(os.listdir("/proc/self/fd"))
        witness.examine(frozenset(), NOT_ENTERED, NOT_ENTERED)
        try:
            os.waitpid(-1, os.WNOHANG)
            return "a child is left"
        except ChildProcessError:
            return f"{len(os.listdir('/proc/self/fd')) - before} descriptors"

    assert apart(deed) == "0 descriptors"
