"""Throw-away children, as the tests' own user and as an ordinary one, and a machine that executes filters."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

import pytest

from prismem_core.program.sandbox.kernel import bpf, calls, credentials, trial

_SOMEBODY = credentials.SPARE_USERS[-1]

Deed = Callable[[], str]


@pytest.fixture(params=["the user of the tests", "an ordinary user"])
def apart(request: pytest.FixtureRequest) -> Callable[[Deed], str]:
    """Runs a deed in a child of its own; what it returned, `trial.Missing` with what it raised."""
    ordinary = request.param == "an ordinary user"
    if ordinary and os.geteuid() != 0:
        pytest.skip("only root can become somebody else")

    def run(deed: Deed) -> str:
        def as_user() -> str:
            if ordinary:
                assert credentials.become(_SOMEBODY)
                # A process that changed its user may not write to its own /proc, unlike one that was started by it.
                calls.prctl(calls.PR_SET_DUMPABLE, 1)
            return deed()

        return trial.in_child(as_user)

    return run


def execute(program: bytes, number: int, *arguments: int, audit: int) -> int:
    """The action that a filter gives a call: the few instructions it may use, on a little-endian description."""
    data = struct.pack("=iIQ6Q", number - (1 << 32) * (number >> 31), audit, 0, *arguments, *[0] * (6 - len(arguments)))
    at, word = 0, 0
    while True:
        code, then, otherwise, value = struct.unpack_from("=HBBI", program, at * 8)
        at += 1
        if code == bpf.RETURN:
            return int(value)
        if code == bpf.LOAD:
            (word,) = struct.unpack_from("=I", data, value)
            continue
        holds = {bpf.EQUAL: word == value, bpf.AT_LEAST: word >= value, bpf.ANY_BIT: bool(word & value)}[code]
        at += then if holds else otherwise


@pytest.fixture(scope="session")
def action() -> Callable[..., int]:
    return execute
