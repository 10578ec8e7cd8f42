"""A folder of vectors or attacks that is named must exist; one that lacks a file skips with the reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VECTORS = "tests/evaluation/test_compaction.py"


def run_tests(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("option", ["--golden-dir", "--attacks-dir"])
def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path: Path, option: str) -> None:
    done = run_tests(VECTORS, option, str(tmp_path / "absent"))
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"{option}: there is no folder {tmp_path / 'absent'}; name one that exists" in done.stdout + done.stderr


def test_a_folder_that_lacks_a_file_skips_and_names_it(tmp_path: Path) -> None:
    done = run_tests(VECTORS, "--golden-dir", str(tmp_path), "-rs", "-k", "golden or vector")
    assert done.returncode == 0, done.stdout
    assert f"no golden vectors compression.json in {tmp_path}" in done.stdout
