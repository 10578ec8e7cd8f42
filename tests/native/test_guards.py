"""The comparison of instruction counts, without counting any."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def guards() -> ModuleType:
    spec = importlib.util.spec_from_file_location("guards", HERE / "guards.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_counts_within_the_tolerance_pass(guards: ModuleType) -> None:
    assert guards.verdicts({"a": 1_080, "b": 920}, {"a": 1_000, "b": 1_000}) == []


def test_counts_that_moved_are_told_with_what_to_do(guards: ModuleType) -> None:
    slower, better, new, gone = guards.verdicts(
        {"a": 1_500_000, "b": 800_000, "c": 5}, {"a": 1_000_000, "b": 1_000_000, "d": 7}
    )
    assert slower == "a: 1,500,000 instructions, 1,000,000 on record (+50.0 %); find out why"
    assert (
        better == "b: 800,000 instructions, 1,000,000 on record (-20.0 %); put the better count on record with --write"
    )
    assert new == "c: no count on record; write one with --write"
    assert gone == "d: on record, but there is no such job; write anew with --write"


def test_without_valgrind_it_says_so_and_passes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, HERE / "guards.py", "no-such-program"],
        capture_output=True,
        text=True,
        env={"PATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("instruction counts: skipped, valgrind and readelf not found")
