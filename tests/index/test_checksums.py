"""CRC-32C without the C++ core gives what the core gives."""

from __future__ import annotations

import numpy as np
import pytest

from prismem_core import _native
from prismem_core.index.checksums import crc32c, portable


def test_the_standard_values() -> None:
    assert portable(b"123456789") == 0xE3069283
    assert portable(bytes(32)) == 0x8A9136AA
    assert portable(b"") == 0


@pytest.mark.parametrize("size", [1, 7, 255, 256, 257, 4096, 70_001, 1 << 20, (1 << 20) + 5, 3 * (1 << 20) + 800])
def test_any_length_and_any_beginning(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    for previous in (0, 1, 0xFFFFFFFF, 0x12345678):
        expected = _native.crc32c(data.tobytes(), previous)
        assert portable(data, previous) == crc32c(memoryview(data), previous) == expected
    half = size // 2
    assert portable(data[half:], portable(data[:half])) == _native.crc32c(data.tobytes())
