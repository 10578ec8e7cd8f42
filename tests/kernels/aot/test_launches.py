"""What launchers launch for calls of real sizes compiles for both architectures and breaks no rule.

Variants are what modules say of themselves; this holds the launches against the rules as triton specialises them.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

for needed in ("torch", "triton"):
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed: pip install -e '.[kernels]'", allow_module_level=True)

aot = importlib.import_module("prismem_core.kernels.triton.aot")

ROOT = Path(__file__).resolve().parents[3]


def printed(*words: str) -> list[dict[str, Any]]:
    """What the script prints, as the compiler sees kernels whatever the mode of this process."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.kernels.aot.launches", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("sm", aot.ARCHITECTURES)
def test_launched_kernels_break_no_rule(sm: int) -> None:
    results = [aot.from_json(record) for record in printed(str(sm))]
    assert {result.op for result in results} == {
        "top_k", "similarity", "segment_max_similarity", "mmr_select", "segment_mean"
    }  # fmt: skip
    assert {result.name: result.complaints for result in results if result.complaints} == {}
    small = {
        result.name: result.code.instructions for result in results if result.name.endswith("small") and result.code
    }
    assert {name: size for name, size in small.items() if size > 700} == {}, "name it in variants() of its module"
    batched = [result for result in results if result.batched and result.code is not None]
    assert len(batched) > 10
    assert all(result.code.mma + result.code.wgmma for result in batched if result.code)


@pytest.mark.parametrize("sm", aot.ARCHITECTURES)
def test_a_search_takes_little_memory_beside_its_rows(sm: int) -> None:
    """Less than a hundredth of the float32 matrix of scores that is never written."""
    shares = {(record["m"], record["k"]): record["share"] for record in printed("--memory", str(sm))}
    assert shares == {key: share for key, share in shares.items() if 0 < share < 0.01}
