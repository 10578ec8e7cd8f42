"""`prismem kernels`: what it says where triton or a device is missing, and what it prints where triton is there."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

SCRIPT = "import sys; from prismem_core.cli.main import main; sys.argv = ['prismem', *sys.argv[1:]]; main()"
WITHOUT = """
import importlib.util as found
real = found.find_spec
found.find_spec = lambda name, *more: None if name == "triton" else real(name, *more)
"""
HAS_TRITON = importlib.util.find_spec("triton") is not None


def prismem(*words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", before + SCRIPT, *words], capture_output=True, text=True, timeout=600)


def refused(done: subprocess.CompletedProcess[str], *expected: str) -> None:
    assert done.returncode != 0, done.stdout
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("prismem: ")
    for words in expected:
        assert words in line


def test_without_triton_the_report_says_what_to_install() -> None:
    refused(prismem("kernels", "report", before=WITHOUT), "triton is not installed", "pip install triton")


@pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed: pip install triton")
def test_what_is_not_there_is_named() -> None:
    refused(prismem("kernels", "report", "top_q"), "top_k", "'top_q'")
    refused(prismem("kernels", "report", "--sm", "75"), "80, 90", "75")


@pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed: pip install triton")
def test_the_report_lists_the_variants_of_an_op() -> None:
    done = prismem("kernels", "report", "row_scales", "--sm", "80", "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows
    for row in rows:
        assert (row["op"], row["sm"], row["verdict"]) == ("row_scales", 80, "ok")
        assert row["code"]["registers"] > 0
    table = prismem("kernels", "report", "row_scales", "--sm", "80").stdout
    assert all(row["name"] in table for row in rows)
    assert f"{len(rows)} kernels from triton" in table


def test_tune_says_what_is_missing() -> None:
    refused(prismem("kernels", "tune", "table.json", before=WITHOUT), "not installed", "prismem-core[gpu]")
