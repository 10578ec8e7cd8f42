"""The data of a job: named splits, split files and the user's lists, in evaluations and in runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.tasks.test_longmemeval import INSTANCE

from prismem_core.errors import DataError, RunError
from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.evolution.settings import build_settings
from prismem_core.jobs.data_source import open_data
from prismem_core.jobs.evaluation_job import evaluate_programs
from prismem_core.jobs.evolution_job import EvolutionJob, resume_run, start_run, start_source
from prismem_core.jobs.settings import JobSettings, build_job_settings

FIRST = "ines-marek/q000"


def settings(**values: Any) -> JobSettings:
    return build_job_settings({"embedder": "hashing", "reranker": False, **values})


def listed(path: Path, *ids: str) -> str:
    path.write_text(json.dumps(list(ids)), encoding="utf-8")
    return str(path)


@pytest.fixture
def longmemeval(tmp_path: Path) -> str:
    path = tmp_path / "longmemeval_s.json"
    instances = [{**INSTANCE, "question_id": f"q{n:03d}", "answer": "hall 7"} for n in range(130)]
    path.write_text(json.dumps(instances), encoding="utf-8")
    return str(path)


def test_without_any_of_it_the_data_decides() -> None:
    dataset, parts = open_data("sample", None, settings())
    assert (len(dataset.histories), parts) == (6, None)


def test_a_sampled_split_is_drawn_before_anything_is_left_out(longmemeval: str, tmp_path: Path) -> None:
    named = {"split": "longmemeval-s/paper", "split_seed": 5}
    _, parts = open_data(longmemeval, None, settings(**named))
    assert parts is not None
    gone = parts["train"][0]
    _, left = open_data(longmemeval, None, settings(**named, exclude=listed(tmp_path / "x.json", gone)))
    assert left is not None
    assert left == {**parts, "train": parts["train"][1:]}


def test_parts_of_a_file_lose_what_is_left_out(tmp_path: Path) -> None:
    given = {"train": ["ines-marek", "yuki-leon"], "valid": ["noor-beatriz"]}
    exclude = listed(tmp_path / "x.json", "yuki-leon")
    dataset, parts = open_data("sample", given, settings(exclude=exclude))
    assert parts == {"train": ("ines-marek",), "valid": ("noor-beatriz",)}
    assert {task.history_id for task in dataset.tasks} >= {"ines-marek", "noor-beatriz"}
    with pytest.raises(DataError, match="names history 'nobody'"):
        open_data("sample", {"train": ["nobody"]}, settings(exclude=exclude))[0].split({"train": ["nobody"]})


def test_an_evaluation_shows_its_lists_and_takes_a_split_by_name(longmemeval: str, tmp_path: Path) -> None:
    lines: list[str] = []
    fixes = tmp_path / "fix.json"
    fixes.write_text(json.dumps([{"id": "q000", "answer": "hall 8", "reason": "seen"}]), encoding="utf-8")
    job = settings(split="longmemeval-s/paper", exclude=listed(tmp_path / "x.json", "q001"), corrections=str(fixes))
    result = evaluate_programs(["full_context"], longmemeval, None, "valid", job, announce=lines.append, unsafe=True)
    assert result["questions"] in (59, 60)
    notes = result["data"]["notes"]
    assert notes["excluded"]["entries"] == [{"id": "q001"}]
    assert notes["corrected"]["entries"] == [{"id": "q000", "reason": "seen", "fields": ["answer"]}]
    assert "note: excluded by x.json" in lines[0]


def test_a_run_keeps_its_lists(tmp_path: Path) -> None:
    exclude = listed(tmp_path / "x.json", FIRST)
    evolution = build_settings({"T1": 0, "T2": 0, "T3": 0})
    job = EvolutionJob("sample", None, settings(exclude=exclude), evolution, start_source("seed"))
    directory = start_run(tmp_path / "run", job, SilentObserver(), unsafe=True)
    manifest = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    assert manifest["data"]["notes"]["excluded"]["entries"] == [{"id": FIRST}]
    assert resume_run(directory, SilentObserver(), unsafe=True) == directory
    listed(tmp_path / "x.json", FIRST, "ines-marek/q001")
    with pytest.raises(RunError, match="data"):
        resume_run(directory, SilentObserver(), unsafe=True)
