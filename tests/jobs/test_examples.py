"""The examples are settings that this version reads, and the recorded one runs without a model."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prismem_core.errors import SettingsError
from prismem_core.jobs.evaluation_job import evaluate_programs
from prismem_core.jobs.model_tables import ROLES, spec_of
from prismem_core.jobs.settings import load_job_settings
from prismem_core.tasks.datasets import load

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RECORDED = EXAMPLES / "recorded"
SETTINGS = sorted(path.name for path in EXAMPLES.glob("*.toml"))
PAPER = ["evolve_vllm_a100.toml", "evolve_vllm_a100_in_process.toml"]
CHATS = [role for role in ROLES if role != "embedding"]


def test_all_are_told_of() -> None:
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert ["evolve_api_budget.toml", *PAPER] == SETTINGS
    assert all(f"`{name}`" in readme for name in SETTINGS)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_key_is_one_of_this_version(name: str) -> None:
    job, evolution = load_job_settings(EXAMPLES / name, {}, {})
    document = tomllib.loads((EXAMPLES / name).read_text(encoding="utf-8"))
    assert set(document) <= {"job", "evolution", "models", "budget"}
    for key, value in document["evolution"].items():
        assert getattr(evolution, key) == value
    for role, table in document["models"].items():
        for key, value in table.items():
            assert getattr(job.model(role), key) == value, (role, key)
    for key, value in document["budget"].items():
        assert getattr(job.budget, key) == value


@pytest.mark.parametrize("name", SETTINGS)
def test_a_key_that_does_not_exist_would_be_refused(name: str, tmp_path: Path) -> None:
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    path = tmp_path / name
    path.write_text(text.replace("max_tokens =", "max_token =", 1), encoding="utf-8")
    with pytest.raises(SettingsError, match="max_token"):
        load_job_settings(path, {}, {})


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_setting_is_the_papers(name: str) -> None:
    job, evolution = load_job_settings(EXAMPLES / name, {}, {})
    assert (evolution.T1, evolution.T2, evolution.T3) == (5, 12, 3)
    assert (evolution.delta, evolution.K, evolution.theta) == (0.8, 5, 0.1)
    assert (evolution.repair_attempts, evolution.measured_retries) == (2, 0)
    specs = {role: spec_of(role, job.model(role)) for role in ROLES}
    assert {specs[role].model for role in CHATS} == {"Qwen/Qwen3.8-27B"}
    assert specs["embedding"].model == "Qwen/Qwen3-Embedding-8B"
    assert {spec.kind for spec in specs.values()} == {"vllm" if "in_process" in name else "openai"}
    assert [job.model(role).max_tokens for role in CHATS] == [8192, 8192, 65_536, 65_536, 8192]
    assert job.model("judge").temperature == 0
    engines = [job.model(role).engine for role in CHATS]
    assert all(engine == engines[0] for engine in engines), "one model, one engine"
    fractions = [engines[0], job.model("embedding").engine]
    assert sum(engine.get("gpu_memory_utilization", 0.4) for engine in fractions) < 0.95
    # What a prompt may have and what a reply may have fit one context, at three characters a token.
    assert job.prompt_chars / 3 + 65_536 <= 131_072


def test_the_capped_example_has_a_cap_on_everything_that_costs() -> None:
    job, _ = load_job_settings(EXAMPLES / "evolve_api_budget.toml", {}, {})
    assert job.budget.money and job.budget.tokens and job.budget.calls
    paid = [role for role in ROLES if spec_of(role, job.model(role)).kind != "offline"]
    assert paid == CHATS
    assert all(job.model(role).price.input_per_million and job.model(role).price.output_per_million for role in paid)


def test_no_example_holds_a_key_or_a_place_of_a_machine() -> None:
    for path in EXAMPLES.rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"\bsk-\w|Bearer|/home/|/root/|/tmp/", text), path


def test_the_recorded_example_runs_without_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Callable[..., Any]:
        raise AssertionError("a replayed evaluation contacts nobody")

    monkeypatch.setattr("prismem_core.jobs.models.make_chat", refuse)
    data = RECORDED / "conversations.jsonl"
    job, _ = load_job_settings(None, {"replay": str(RECORDED / "evaluate.jsonl"), "embedder": "hashing"}, {})
    result = evaluate_programs(["seed", "bm25_rag"], str(data), None, "all", job)
    assert result["failed"] == {} and set(result["programs"]) == {"seed", "bm25_rag"}
    questions = len(load(str(data)).tasks)
    assert [summary["questions"] for summary in result["programs"].values()] == [questions, questions]
