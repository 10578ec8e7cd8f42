"""The emulator finds what it is there to find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.cuda import emulated

EXPECTED = {
    "no_fault": "nothing",
    "read_after_write": "a read ",
    "write_after_read": "race: a ",
    "two_writes": "race: two writes",
    "plain_and_atomic": "",
    "read_of_nothing": "a read of what nobody has written",
    "outside": "an access outside of shared memory",
    "some_wait": "deadlock: 32 threads wait",
    "two_barriers": "divergence: threads meet at barriers",
    "lanes_apart": "divergence: lanes of a warp meet at different operations",
    "read_before_the_wait": "an asynchronous copy is writing",
    "no_wait": "a thread ends before its asynchronous copies",
    "wait_for_too_few": "an asynchronous copy is writing",
    "crooked_copy": "other than sixteen aligned bytes",
    "no_barrier_after_the_wait": "",
}
"""What is said of each kernel of faults.cpp, as far as it does not depend on the order of threads."""


@pytest.fixture(scope="module")
def findings() -> dict[str, str]:
    """What the emulator says of each kernel."""
    program = emulated.build(link=(), extra=(Path(__file__).parent / "faults.cpp",), name="faults")
    lines = emulated.run([str(program)]).splitlines()
    return {name: text for name, _, text in (line.partition(": ") for line in lines)}


def test_every_faulty_kernel_is_listed(findings: dict[str, str]) -> None:
    assert set(findings) == set(EXPECTED)


@pytest.mark.parametrize("kernel", EXPECTED)
def test_a_fault_is_found(kernel: str, findings: dict[str, str]) -> None:
    assert EXPECTED[kernel] in findings[kernel]
    assert (findings[kernel] == "nothing") == (kernel == "no_fault")
