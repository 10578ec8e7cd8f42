"""No barrier and no wait of the kernels can be taken away without being missed."""

from __future__ import annotations

import re

import numpy as np
import pytest

from prismem_core.kernels.cuda import KernelError
from tests.kernels.cuda import emulated
from tests.kernels.cuda.cases import Case, cases, cosines

NUMBERED = re.compile(r"\b(?:sync_block|copy_wait)<(\d+)[,>]")


def numbers() -> list[int]:
    """The numbers of all barriers and waits, as they stand in the sources."""
    texts = [path.read_text() for path in sorted(emulated.SOURCES.glob("*.cu*"))]
    return [int(number) for text in texts for number in NUMBERED.findall(text)]


@pytest.fixture(scope="module")
def users() -> dict[int, list[Case]]:
    """For each barrier the cases that meet it, those with the fewest barriers first."""
    met: dict[int, list[tuple[int, int, Case]]] = {}
    before = emulated.sync_counts()
    for position, case in enumerate([*cases(1), *cosines(2)]):
        emulated.call(case.op, case.arguments, **case.how)
        after = emulated.sync_counts()
        used = [number for number in range(len(after)) if after[number] > before[number]]
        for number in used:
            met.setdefault(number, []).append((sum(after) - sum(before), position, case))
        before = after
    return {number: [case for *_, case in sorted(found, key=lambda one: one[:2])] for number, found in met.items()}


def failure(case: Case, seed: int, removed: int) -> str | None:
    """What is wrong with a call without one of the barriers, or None."""
    with emulated.machine(seed, removed):
        try:
            result, call = emulated.call(case.op, case.arguments, **case.how)
        except KernelError as error:
            return str(error)
    return case.op.agrees(result, call)


def test_each_number_stands_for_one_place() -> None:
    found = numbers()
    assert len(found) > 20
    assert sorted(found) == sorted(set(found))


@pytest.mark.parametrize("number", sorted(set(numbers())))
def test_a_barrier_that_is_taken_away_is_missed(number: int, users: dict[int, list[Case]]) -> None:
    assert users.get(number), f"no case meets barrier {number}"
    for case in users[number]:
        assert failure(case, 3, -1) is None
        if failure(case, 3, number) is not None:
            return
    pytest.fail(f"nothing misses barrier {number}: it can go, or a case is missing")


def test_a_schedule_is_decided_by_its_seed() -> None:
    rng = np.random.default_rng(3)
    case = next(iter(cases(int(rng.integers(100)))))
    first, _ = emulated.call(case.op, case.arguments, **case.how)
    for seed in (1, 2, 3):
        with emulated.machine(seed):
            again, _ = emulated.call(case.op, case.arguments, **case.how)
        assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))
