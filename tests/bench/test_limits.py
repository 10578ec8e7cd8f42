"""The fixed work at the limits of the machine: how much is done is known, on every instruction set and thread count."""

from __future__ import annotations

import pytest

from prismem_core import _native, ops
from prismem_core.errors import ArgumentError

BLOCK = 4 * 4096


@pytest.mark.parametrize("isa", ops.instruction_sets())
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_work_done_is_the_work_reported(isa: str, threads: int) -> None:
    probe = _native.LimitProbe(6 * BLOCK + 5, isa, threads)
    assert probe.isa == isa
    for streams in (False, True):
        assert probe.read(6 * BLOCK + 5, 2, streams) == 2 * threads * (6 // threads) * BLOCK
        assert probe.read(0, 3, streams) == 0
    assert probe.multiply_floats(10) == 10 * probe.multiply_floats(1) > 0
    assert probe.multiply_floats(1) % threads == 0
    for narrow in (False, True):
        products = probe.multiply_bytes(10, narrow)
        assert products == 10 * probe.multiply_bytes(1, narrow)
        assert (products == 0) == (isa == "portable")


def test_what_is_refused() -> None:
    probe = _native.LimitProbe(100)
    assert probe.isa == _native.chosen_isa()
    with pytest.raises(ArgumentError, match="at most the 100 of the probe, got 101"):
        probe.read(101)
    with pytest.raises(ArgumentError, match="at least 0, got -1"):
        probe.read(-1)
    with pytest.raises(ArgumentError, match="threads"):
        _native.LimitProbe(100, "", 0)
    with pytest.raises(ArgumentError, match="bytes"):
        _native.LimitProbe(-100)
    with pytest.raises(ArgumentError, match="instruction set"):
        _native.LimitProbe(100, "mmx")
