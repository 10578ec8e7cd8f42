"""Every op test runs on the definition and on each instruction set of the native core."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from prismem_core import ops

BACKENDS = ("reference", "cpu/portable", "cpu/avx2", "cpu/avx512")


def skip_unless_runnable(backend: str) -> None:
    variant = backend.partition("/")[2]
    if variant and variant not in ops.instruction_sets():
        pytest.skip(f"this CPU or this build has no {variant}")


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Forces one implementation after the other."""
    skip_unless_runnable(request.param)
    with ops.use(request.param):
        yield request.param


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh outputs hold garbage, so that a cell nobody writes shows itself."""
    plain_empty = np.empty

    def empty(*args: Any, **kwargs: Any) -> Any:
        array = plain_empty(*args, **kwargs)
        array.fill(np.nan if array.dtype.kind == "f" else -7777 if array.dtype.kind == "i" else 0)
        return array

    monkeypatch.setattr(np, "empty", empty)


def numbers(values: Any) -> Any:
    """Golden values with the words for non-finite numbers replaced."""
    if isinstance(values, list):
        return [numbers(value) for value in values]
    return float(values) if isinstance(values, str) else values
