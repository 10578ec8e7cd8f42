"""The script for a machine with a GPU goes through all its steps here, on the CPU and in small."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

for needed in ("torch", "triton"):
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed: pip install -e '.[kernels]'", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "bench" / "device_check.py"


def run(output: Path, *words: str, **variables: str) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PRISMEM_"))}
    command = [sys.executable, str(SCRIPT), "--output", str(output), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment | variables, cwd=output.parent)
    lines = output.read_text(encoding="utf-8").splitlines() if output.is_file() else []
    return done, [json.loads(line) for line in lines]


def test_a_dry_run_does_every_step(tmp_path: Path) -> None:
    done, records = run(tmp_path / "records.jsonl", "--dry-run", "--seconds", "600")
    assert done.returncode == 0, done.stdout + done.stderr
    parts = Counter((record["part"], record["status"]) for record in records)
    assert not [record for record in records if record["status"] in ("failed", "skipped")]
    checked = {record["name"].split(",")[0] for record in records if record["part"] == "conformance"}
    assert checked == {
        "similarity",
        "top_k",
        "segment_max_similarity",
        "segment_mean",
        "mmr_select",
        "codes of 8 bits",
        "codes of 4 bits",
    }
    assert parts["bad inputs", "ok"] >= 7
    assert parts["bad inputs", "missing"] == 9
    assert parts["precision", "ok"] == 2
    assert all(record["dry_run"] for record in records)


@pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++")
def test_cuda_kernels_take_part_where_their_library_is(tmp_path: Path) -> None:
    from tests.kernels.cuda import emulated

    library = str(emulated.build(name="libprismem_cuda_emulator.so"))
    words = ("--dry-run", "--parts", "conformance", "--seconds", "600")
    done, records = run(tmp_path / "records.jsonl", *words, PRISMEM_CUDA_LIBRARY=library)
    assert done.returncode == 0, done.stdout + done.stderr
    ways = {tuple(record["name"].split(":")[0].split(", ")) for record in records if record["part"] == "conformance"}
    for op in ("similarity", "top_k", "segment_max_similarity", "segment_mean", "mmr_select"):
        assert {(op, "triton", "torch"), (op, "cuda", "torch"), (op, "cuda", "numpy")} <= ways


def test_timed_cases_hold_times_floors_and_who_is_absent(tmp_path: Path) -> None:
    done, records = run(tmp_path / "records.jsonl", "--dry-run", "--parts", "timing", "--seconds", "600")
    assert done.returncode == 0, done.stdout + done.stderr
    cases = {record["name"]: record for record in records if "times" in record}
    assert len(cases) >= 9
    for name, record in cases.items():
        assert "triton" in record["times"], name
        assert any("torch" in rival or "codes" in rival for rival in record["times"]), name
        assert all(times["median"] > 0 for times in record["times"].values())
        assert record["reached_floor"] > 0
        assert record["work"]["bytes"] > 0
        assert name in done.stdout
    assert "cuVS brute force" in cases["top_k, 1 query, d=1024, k=10"]["absent"]
    assert not any(record.get("goals") for record in records), "a dry run judges no goal"


def test_after_the_deadline_steps_are_skipped_by_name(tmp_path: Path) -> None:
    done, records = run(tmp_path / "records.jsonl", "--dry-run", "--seconds", "0")
    assert done.returncode == 0, done.stderr
    skipped = [record for record in records if record["status"] == "skipped"]
    assert len(skipped) > 20
    assert all("s left of the time" in record["reason"] for record in skipped)
    assert all(record["name"] in done.stdout for record in skipped)


def test_what_cannot_run_is_said_in_a_line(tmp_path: Path) -> None:
    import torch

    done, records = run(tmp_path / "records.jsonl", "--dry-run", "--parts", "speed")
    assert (done.returncode, records) == (2, [])
    assert "expected some of conformance, sanitizer" in done.stderr
    if not torch.cuda.is_available():
        done, records = run(tmp_path / "records.jsonl")
        assert (done.returncode, records) == (2, [])
        assert done.stderr == "device_check: torch sees no CUDA device; --dry-run goes through all steps on the CPU\n"
