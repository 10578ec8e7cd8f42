"""Users and capabilities that are given up stay given up."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from prismem_core.program.sandbox.kernel import credentials, trial

_USER = credentials.SPARE_USERS[7]

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


def _status(*names: str) -> dict[str, int]:
    with open("/proc/self/status", "rb") as file:  # an ordinary user may not be able to load a codec
        lines = dict(line.split(b":", 1) for line in file)
    return {name: int(lines[name.encode()], 16) for name in names}


@only_root
def test_root_becomes_another_user_for_good() -> None:
    def deed() -> str:
        worked = credentials.become(_USER)
        try:
            os.setuid(0)
            back = "root again"
        except PermissionError:
            back = "not root again"
        return f"{worked} {os.getresuid()} {os.getresgid()} {os.getgroups()} {back}"

    same = (_USER,) * 3
    assert trial.in_child(deed) == f"True {same} {same} [] not root again"


@only_root
def test_nobody_stands_in_where_the_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.setresgid

    def only_nobody(group: int, *_: int) -> None:
        if group != 65534:
            raise PermissionError(1, "Operation not permitted")
        real(group, group, group)

    monkeypatch.setattr(os, "setresgid", only_nobody)

    def deed() -> str:
        return f"{credentials.become(_USER)} {os.geteuid()} {os.getegid()}"

    assert trial.in_child(deed) == "False 65534 65534"


def test_an_ordinary_user_stays_who_it_is() -> None:
    def deed() -> str:
        if os.geteuid() == 0:
            credentials.become(_USER)
        before = os.getresuid()
        return f"{credentials.become(_USER + 1)} {os.getresuid() == before}"

    assert trial.in_child(deed) == "False True"


def test_no_capability_is_left(apart: Callable[..., str]) -> None:
    def deed() -> str:
        credentials.drop_capabilities()
        return str(_status("CapInh", "CapPrm", "CapEff", "CapAmb"))

    assert apart(deed) == "{'CapInh': 0, 'CapPrm': 0, 'CapEff': 0, 'CapAmb': 0}"


@only_root
def test_root_without_capabilities_cannot_change_its_user() -> None:
    def deed() -> str:
        credentials.drop_capabilities()
        return f"{credentials.become(_USER)} {os.geteuid()}"

    assert trial.in_child(deed) == "False 0"


def test_it_can_be_done_more_than_once() -> None:
    def deed() -> str:
        credentials.drop_capabilities()
        credentials.drop_capabilities()
        return str(_status("CapPrm")["CapPrm"])

    assert trial.in_child(deed) == "0"
