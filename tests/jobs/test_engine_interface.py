"""Jobs with interface "engine": recorded, repeatable, and reported."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prismem_core.errors import ProgramError, SettingsError
from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.jobs.evaluation_job import evaluate_programs
from prismem_core.jobs.evolution_job import EvolutionJob, resume_run, start_run
from prismem_core.jobs.reports import load_report, write_markdown
from prismem_core.jobs.settings import build_job_settings
from prismem_core.program import library
from prismem_core.runs.run import read_manifest

Make = Callable[..., EvolutionJob]
PROGRAM = "collection_rag"


def evaluated(data: Path, parts: Mapping[str, Sequence[str]], programs: Sequence[str], **job: Any) -> dict[str, Any]:
    settings = build_job_settings({"embedder": "hashing", "reranker": False, **job})
    return evaluate_programs(programs, str(data), parts, "train", settings)


def test_an_evaluation_reports_its_launches(small_data: Path, small_parts: dict[str, Sequence[str]]) -> None:
    result = evaluated(small_data, small_parts, [PROGRAM, "naive_rag"], interface="engine")
    assert result["failed"] == {}
    assert result["interface"] == "engine"
    usage = result["programs"][PROGRAM]["usage"]["collections"]
    assert usage["calls"] >= result["programs"][PROGRAM]["questions"]
    assert usage["texts"] > 0
    assert "collections" not in result["programs"]["naive_rag"]["usage"]
    launches = result["launches"]
    assert launches["batches"] <= launches["calls"] <= usage["calls"]
    assert launches["launches"]["top_k"] >= 1
    json.dumps(result)


def test_one_after_the_other_gives_the_same_scores(small_data: Path, small_parts: dict[str, Sequence[str]]) -> None:
    many = evaluated(small_data, small_parts, [PROGRAM], interface="engine", copies=8, workers=3)
    one = evaluated(small_data, small_parts, [PROGRAM], interface="engine", copies=1, workers=1)
    assert one["programs"] == many["programs"]
    assert one["launches"]["merged"] == 0


def test_under_the_paper_interface_the_program_is_refused_before_any_is_run(
    small_data: Path, small_parts: dict[str, Sequence[str]]
) -> None:
    with pytest.raises(ProgramError, match=r'collection_rag: line 31: backend.collection needs interface="engine"'):
        evaluated(small_data, small_parts, ["seed", PROGRAM])
    result = evaluated(small_data, small_parts, ["seed"])
    assert result["interface"] == "paper"
    assert "launches" not in result


def test_an_unknown_interface_is_refused() -> None:
    with pytest.raises(SettingsError, match="interface = 'fast'"):
        build_job_settings({"interface": "fast"})


@pytest.fixture(scope="module")
def make(make_job: Make) -> Callable[..., EvolutionJob]:
    def build(**job: Any) -> EvolutionJob:
        made = make_job({"interface": "engine", **job}, {"T1": 1, "T2": 1, "T3": 0})
        return replace(made, start=library.source(PROGRAM))

    return build


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, make: Make) -> Path:
    return start_run(tmp_path_factory.mktemp("runs") / "engine", make(), SilentObserver())


def history(run: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (run / "journal.jsonl").read_bytes().splitlines()]
    return [{key: value for key, value in event.items() if key != "time"} for event in events]


def test_a_run_keeps_its_interface_and_shows_its_launches(finished: Path) -> None:
    assert read_manifest(finished).extra["job"]["interface"] == "engine"
    report = load_report(finished)
    assert report.data["launches"]["calls"] > 0
    text = write_markdown(finished, report).read_text(encoding="utf-8")
    assert "searches that shared a batch" in text
    assert "- interface: engine" in text
    resume_run(finished, SilentObserver())
    assert load_report(finished).data == report.data


def test_the_journal_does_not_depend_on_what_was_merged(finished: Path, tmp_path: Path, make: Make) -> None:
    other = start_run(tmp_path / "alone", make(copies=1, workers=1), SilentObserver())
    assert history(other) == history(finished)
    assert load_report(other).data["launches"]["merged"] == 0
