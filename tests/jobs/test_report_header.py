"""The header of a report carries what a published number must."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

import prismem_core
from prismem_core.evaluation.judge_request import PROMPT_VERSION
from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.jobs.evaluation_job import evaluate_programs
from prismem_core.jobs.evolution_job import LEDGER, EvolutionJob, start_run
from prismem_core.jobs.provenance import provenance
from prismem_core.jobs.reports import load_report
from prismem_core.jobs.settings import JobSettings
from prismem_core.runs.provenance import code_digest
from prismem_core.runs.report.facts import NEVER_CHANGE_A_RESULT, facts
from prismem_core.runs.report.markdown import markdown
from prismem_core.runs.report.terminal import render
from prismem_core.runs.run import JOURNAL
from prismem_core.tasks.datasets import load
from prismem_core.tasks.native_types import category_map_digest

Make = Callable[..., EvolutionJob]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, make_job: Make) -> Path:
    job = make_job({"segment_chars": 9000}, {"T1": 0, "T2": 0, "T3": 0, "K": 4, "seed": 7})
    return start_run(tmp_path_factory.mktemp("runs") / "whole", job, SilentObserver())


def test_every_face_carries_what_a_number_must(run: Path, make_job: Make) -> None:
    report = load_report(run)
    console = Console(file=io.StringIO(), width=400)
    console.print(render(report, 400))
    assert isinstance(console.file, io.StringIO)
    wanted = [
        load(make_job().data).digest,
        f"category map: {category_map_digest()}",
        f"prismem-core: {prismem_core.__version__}",
        f"code {code_digest()}",
        "selection score: offline score",
        "judge: lexical-1",
        "chat: offline",
        "K 4",
        "segment_chars 9000",
        "seed 7",
        "spread: one run",
    ]
    for text in (console.file.getvalue(), markdown(report)):
        assert [piece for piece in wanted if piece not in text] == []
        assert str(run.parent) not in text
    assert report.data["calls"]["note"] is None and report.data["calls"]["total"]["made"]["calls"] > 0
    made = report.data["job"]["provenance"]
    assert made == provenance(dict(report.data["roles"])) and made["judge_prompts"] is None


def test_calls_whose_file_is_gone_are_unknown_and_not_none(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (copy / LEDGER).unlink()
    report, whole = load_report(copy), load_report(run)
    assert json.loads(json.dumps(report.data["models"])) is None
    calls, known = report.data["calls"], whole.data["calls"]
    assert calls["total"]["without_reuse"] == known["total"]["without_reuse"]
    for entry in (*calls["stages"].values(), calls["total"]):
        assert entry["made"] is None and entry["saved"] is None
    assert calls["diagnostics"] is None
    assert "the run's calls.jsonl is missing" in calls["note"]
    console = Console(file=io.StringIO(), width=400)
    console.print(render(report, 400, short=True))
    assert isinstance(console.file, io.StringIO)
    for text in (console.file.getvalue(), markdown(report)):
        assert "The calls that were made are not known" in text
        assert "100.0%" not in text
    assert "The calls that were made are not known" not in markdown(whole)
    (copy / JOURNAL).write_bytes((copy / JOURNAL).read_bytes().splitlines(keepends=True)[0])
    assert load_report(copy).data["calls"]["total"]["made"]["calls"] == 0, "nothing was measured yet"


def test_a_judge_that_is_a_model_names_the_version_of_its_prompts() -> None:
    assert provenance({"judge": f"model judge {PROMPT_VERSION}: openai:m"})["judge_prompts"] == PROMPT_VERSION


def test_an_evaluation_carries_the_same(small_data: Path) -> None:
    settings = JobSettings(embedder="hashing", reranker=False, segment_chars=9000)
    result = evaluate_programs(["seed"], str(small_data), None, "all", settings)
    assert result["provenance"] == provenance(result["roles"])
    assert result["settings"]["segment_chars"] == 9000 and result["data"]["digest"] == load(str(small_data)).digest


def test_a_run_of_an_earlier_version_says_what_it_did_not_record(run: Path) -> None:
    report = load_report(run)
    report.data["job"].pop("provenance")
    told = dict(facts(report))
    assert told["category map"] == "not recorded" and told["prismem-core"] == prismem_core.__version__


def test_the_settings_that_change_nothing_are_settings() -> None:
    assert set(JobSettings.model_fields) >= NEVER_CHANGE_A_RESULT
