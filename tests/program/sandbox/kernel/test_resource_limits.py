"""The limits are set, hold, and never rise."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable

import pytest

from prismem_core.program.sandbox.kernel import resource_limits, trial

_MEMORY = 1 << 30


def _limits() -> dict[str, tuple[int, int]]:
    return {
        name: resource.getrlimit(getattr(resource, name))
        for name in ("RLIMIT_CORE", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_AS", "RLIMIT_MEMLOCK", "RLIMIT_CPU")
    }


def test_soft_and_hard_limits_are_the_same(apart: Callable[..., str]) -> None:
    def deed() -> str:
        resource_limits.impose(_MEMORY, own_user=False)
        return str(_limits())

    expected = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0, "RLIMIT_NOFILE": 5, "RLIMIT_AS": _MEMORY}
    expected |= {"RLIMIT_MEMLOCK": 0, "RLIMIT_CPU": 3600}
    assert apart(deed) == str({name: (value, value) for name, value in expected.items()})


def test_a_lower_limit_stays(apart: Callable[..., str]) -> None:
    def deed() -> str:
        resource.setrlimit(resource.RLIMIT_CPU, (100, 200))
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 4))
        resource_limits.impose(_MEMORY, own_user=False)
        return f"{resource.getrlimit(resource.RLIMIT_CPU)} {resource.getrlimit(resource.RLIMIT_NOFILE)}"

    assert apart(deed) == "(200, 200) (4, 4)"


def test_processes_are_counted_only_for_a_user_of_its_own(apart: Callable[..., str]) -> None:
    def deed() -> str:
        before = resource.getrlimit(resource.RLIMIT_NPROC)
        resource_limits.impose(_MEMORY, own_user=False)
        without = resource.getrlimit(resource.RLIMIT_NPROC)
        resource_limits.impose(_MEMORY, own_user=True)
        return f"{without == before} {resource.getrlimit(resource.RLIMIT_NPROC)}"

    assert apart(deed) == "True (128, 128)"


def test_memory_files_and_descriptors_end_at_the_limit() -> None:
    def deed() -> str:
        file = os.memfd_create("limited")
        resource_limits.impose(_MEMORY, own_user=False)
        found = []
        try:
            bytearray(_MEMORY)
            found.append("memory")
        except MemoryError:
            found.append("no memory")
        for step in (lambda: os.write(file, b"x"), lambda: [os.dup(file) for _ in range(16)]):
            try:
                step()
                found.append("worked")
            except OSError as error:
                found.append(errno.errorcode[error.errno or 0])
        return " ".join(found)

    assert trial.in_child(deed) == "no memory EFBIG EMFILE"


def _refusing(refused: int) -> Callable[[int, tuple[int, int]], None]:
    def setrlimit(which: int, _: tuple[int, int]) -> None:
        if which == refused:
            raise ValueError("not allowed to raise maximum limit")

    return setrlimit


def test_a_system_without_a_limit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "setrlimit", _refusing(resource.RLIMIT_AS))
    with pytest.raises(OSError, match=rf"setrlimit\({resource.RLIMIT_AS}, {_MEMORY}\): not allowed"):
        resource_limits.impose(_MEMORY, own_user=False)


def test_message_queues_may_stay_unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "setrlimit", _refusing(resource.RLIMIT_MSGQUEUE))
    resource_limits.impose(_MEMORY, own_user=False)
