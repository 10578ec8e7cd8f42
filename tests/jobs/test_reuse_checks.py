"""`verify_reuse` as the commands give it: what was compared stands in an evaluation's JSON and in a run's report."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from prismem_core.errors import RunError, SettingsError
from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.jobs.evolution_job import EvolutionJob, resume_run, start_run
from prismem_core.jobs.reports import load_report
from prismem_core.jobs.reuse_checks import REUSE_CHECKS, add_reuse_checks, read_reuse_checks
from prismem_core.jobs.settings import build_job_settings
from prismem_core.pipeline.reuse_check import ReuseCounts
from prismem_core.program import library

SCRIPT = "import sys; from prismem_core.cli.main import main; sys.argv = ['prismem', *sys.argv[1:]]; main()"


def test_an_evaluation_tells_what_was_compared(small_data: Path, tmp_path: Path) -> None:
    source = library.source("naive_rag")
    assert source.count("room < 20") == 1
    for limit in (20, 21):
        (tmp_path / f"{limit}.py").write_text(source.replace("room < 20", f"room < {limit}"), encoding="utf-8")
    words = ["evaluate", str(tmp_path / "20.py"), str(tmp_path / "21.py"), "--data", str(small_data), "--part", "all"]
    words += ["--json", "--set", "embedder=hashing", "--set", "reranker=false"]
    told = {}
    for share in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *words, "--verify-reuse", share], capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr
        told[share] = json.loads(done.stdout)
        assert told[share]["models"].pop("time")["seconds"] > 0
        assert told[share]["settings"].pop("verify_reuse") == float(share)
    checked = told["1"].pop("reuse_check")
    assert checked["memories"] == 3
    assert checked["texts"] > checked["differing"] == 0
    assert told["0"] == told["1"]


def test_a_share_is_a_share() -> None:
    with pytest.raises(SettingsError, match="verify_reuse"):
        build_job_settings({"verify_reuse": 1.5})
    assert build_job_settings({"verify_reuse": 1}).pipeline().verify_reuse == 1.0
    assert build_job_settings({"frozen_mib": 3}).pipeline().frozen_bytes == 3 << 20
    assert build_job_settings({}).pipeline().frozen_bytes is None


def test_sessions_of_a_run_add_up(tmp_path: Path) -> None:
    assert read_reuse_checks(tmp_path) is None
    add_reuse_checks(tmp_path, ReuseCounts())
    assert not (tmp_path / REUSE_CHECKS).exists()
    add_reuse_checks(tmp_path, ReuseCounts(2, 9, 1))
    add_reuse_checks(tmp_path, ReuseCounts(1, 3, 0))
    assert read_reuse_checks(tmp_path) == ReuseCounts(3, 12, 1)
    for text in ("[]", "[" * 2000):
        (tmp_path / REUSE_CHECKS).write_text(text)
        with pytest.raises(RunError, match="delete it"):
            read_reuse_checks(tmp_path)


class Interrupted(SilentObserver):
    """Stops a run at an iteration, as a user might."""

    def on_step(self, iteration: int, iterations: int, step: str) -> None:
        if iteration == 3:
            raise KeyboardInterrupt


def test_a_resumed_run_may_compare_what_the_first_session_did_not(
    tmp_path: Path, make_job: Callable[..., EvolutionJob]
) -> None:
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        start_run(run, make_job({"verify_reuse": 1.0}), Interrupted())
    first = read_reuse_checks(run)
    resume_run(run, SilentObserver(), verify_reuse=0.0)
    assert read_reuse_checks(run) == first
    report = load_report(run).data
    assert report["finished"]
    assert report["reuse_check"] == (None if first is None else first.to_dict())
