"""The kernels under the address and undefined-behaviour sanitizers, each array as large as its contents."""

from __future__ import annotations

from pathlib import Path

from tests.kernels.cuda import emulated

FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1", "-fno-omit-frame-pointer")


def test_no_access_leaves_its_array() -> None:
    runner = emulated.build(*FLAGS, link=(), extra=(Path(__file__).parent / "runner.cpp",), name="runner")
    checks = emulated.run([str(runner), "3"])
    assert int(checks.split()[0]) > 10_000
