"""What the tests of indexes share: every kind of rows, every instruction set, child processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import prismem_core
from prismem_core import ops
from prismem_core.ops.inputs import bfloat16_bits

DTYPES = ("float32", "float16", "bfloat16")
METRICS = ("inner_product", "cosine")


def kept(values: NDArray[np.float32], dtype: str) -> NDArray[Any]:
    """Float rows as an index of this dtype keeps them; bfloat16 as uint16 bits."""
    return bfloat16_bits(values) if dtype == "bfloat16" else values.astype(dtype)


def as_float32(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Kept rows as float32 numbers."""
    if rows.dtype == np.uint16:
        return (rows.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return rows.astype(np.float32)


@pytest.fixture(params=("cpu/portable", "cpu/avx2", "cpu/avx512"))
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each instruction set of the native core in turn."""
    if request.param.partition("/")[2] not in ops.instruction_sets():
        pytest.skip(f"this CPU or this build has no {request.param}")
    with ops.use(request.param):
        yield request.param


@pytest.fixture
def run_script() -> Callable[..., str]:
    """Runs a Python script in a new process and returns what it printed; fails with its error text when it fails."""
    path = str(Path(prismem_core.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])}

    def run(script: str, *arguments: object) -> str:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
