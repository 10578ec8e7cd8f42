"""Jobs on a model server: costs to the token, budgets, recordings, a server that moved, and where the time went."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.scripted_server.fixture import ScriptedServer, own_server, scripted_server, server_process

from prismem_core.cli.main import app
from prismem_core.errors import BudgetError, RoleError, SettingsError
from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.evolution.settings import build_settings
from prismem_core.jobs.evaluation_job import evaluate_programs
from prismem_core.jobs.evolution_job import EvolutionJob, resume_run, start_run, start_source
from prismem_core.jobs.reports import load_report
from prismem_core.jobs.settings import JobSettings, build_job_settings
from prismem_core.program import library
from prismem_core.runs.report.markdown import markdown
from prismem_core.runs.run import JOURNAL

__all__ = ["own_server", "scripted_server", "server_process"]

SLOTS = 8


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three conversations of three sessions, two questions each."""
    lines: list[Mapping[str, Any]] = []
    for name in ("ada", "bea", "cleo"):
        sessions = [
            {
                "id": f"s{n}",
                "time": f"2024-03-0{n} 10:00",
                "turns": [
                    {"id": f"{name}-{n}", "speaker": name, "text": f"{name} paints lake number {n} in the rain"},
                    {"id": f"{name}-{n}b", "speaker": "max", "text": f"Max keeps {n} bees, said to {name}"},
                ],
            }
            for n in (1, 2, 3)
        ]
        lines.append({"type": "conversation", "id": name, "sessions": sessions})
        for n in (1, 2):
            lines.append(
                {
                    "type": "question",
                    "id": f"{name}/{n}",
                    "conversation": name,
                    "question": f"Which lake did {name} paint in session {n}?",
                    "answer": f"lake number {n}",
                    "evidence": [f"{name}-{n}"],
                    "capability": "factual_retrieval",
                }
            )
    path = tmp_path / "talks.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def settings(server: ScriptedServer, **more: Any) -> JobSettings:
    model = {"concurrency": SLOTS, "retries": 1}
    roles = {"chat": server.model("talker"), "judge": server.model("judge"), "embedder": server.model("rows")}
    models = dict.fromkeys(("task", "judge", "embedding"), model)
    return build_job_settings({**roles, "models": models, "workers": 2, **more})


def evaluate(data: Path, job: JobSettings, program: str = "naive-rag", cache: Path | None = None) -> dict[str, Any]:
    return evaluate_programs([program], str(data), None, "all", job, cache)


def test_a_report_holds_what_the_server_counted(scripted_server: ScriptedServer, data: Path, tmp_path: Path) -> None:
    job = settings(scripted_server)
    result = evaluate(data, job, cache=tmp_path / "cache")
    total, counted = result["models"]["total"], scripted_server.totals
    assert total["input_tokens"] == counted["prompt_tokens"] > 0
    assert total["output_tokens"] == counted["completion_tokens"] > 0
    assert set(result["models"]["roles"]) == {"chat", "embedder", "judge"}
    assert sum(role["input_tokens"] for role in result["models"]["roles"].values()) == total["input_tokens"]
    assert result["timing"]["total"]["calls"] == counted["requests"]
    assert result["programs"]["naive-rag"]["scored"] == 6
    # Once more, and only the probe of how schemas are asked for may be paid again.
    scripted_server.clear()
    again = evaluate(data, job, cache=tmp_path / "cache")
    assert again["programs"] == result["programs"]
    assert scripted_server.totals["requests"] == 0
    assert again["models"]["total"]["calls"] == 0


def test_costs_follow_the_prices(scripted_server: ScriptedServer, data: Path) -> None:
    job = settings(scripted_server)
    priced = job.models["task"].model_copy(update={"price_input": 2.0, "price_output": 10.0})
    result = evaluate(data, job.model_copy(update={"models": {**job.models, "task": priced}}))
    chat = result["models"]["roles"]["chat"]
    assert chat["cost"] == pytest.approx((chat["input_tokens"] * 2 + chat["output_tokens"] * 10) / 1e6)
    assert result["models"]["total"]["cost"] == pytest.approx(chat["cost"])


def test_a_budget_stops_an_evaluation_within_the_calls_under_way(
    scripted_server: ScriptedServer, data: Path, tmp_path: Path
) -> None:
    whole = evaluate(data, settings(scripted_server))["models"]["total"]
    largest = max(entry["prompt_tokens"] + entry["completion_tokens"] for entry in counted(scripted_server))
    allowed = (whole["input_tokens"] + whole["output_tokens"]) // 2
    scripted_server.clear()
    job = settings(scripted_server, budget={"tokens": allowed})
    with pytest.raises(BudgetError, match=f"of {allowed:,}"):
        evaluate(data, job, cache=tmp_path / "cache")
    spent = scripted_server.totals["prompt_tokens"] + scripted_server.totals["completion_tokens"]
    # Chat and judge have slots of their own.
    assert allowed <= spent <= allowed + 2 * SLOTS * largest
    before = spent
    rest = evaluate(data, settings(scripted_server), cache=tmp_path / "cache")
    spent = scripted_server.totals["prompt_tokens"] + scripted_server.totals["completion_tokens"]
    probes = sum(usage["stages"].get("probe", {"input_tokens": 0})["input_tokens"] for usage in roles_of(rest))
    assert spent - before <= whole["input_tokens"] + whole["output_tokens"] - before + 2 * probes


def roles_of(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(result["models"]["roles"].values())


def counted(server: ScriptedServer) -> list[dict[str, int]]:
    return [
        {"prompt_tokens": entry.get("prompt_tokens", 0), "completion_tokens": entry.get("completion_tokens", 0)}
        for entry in server.log
    ]


def job_of(data: Path, job: JobSettings) -> EvolutionJob:
    parts = {"train": ["ada"], "valid": ["bea"], "test": ["cleo"]}
    return EvolutionJob(str(data), parts, job, build_settings({"T1": 1, "T2": 1, "T3": 1}), start_source(None))


def test_a_run_ends_at_its_budget_and_goes_on_with_a_larger_one(
    scripted_server: ScriptedServer, data: Path, tmp_path: Path
) -> None:
    start_run(tmp_path / "whole", job_of(data, settings(scripted_server)), SilentObserver())
    whole = load_report(tmp_path / "whole").data["models"]["total"]
    scripted_server.clear()
    capped = settings(scripted_server, budget={"calls": whole["calls"] // 2})
    run = tmp_path / "capped"
    with pytest.raises(BudgetError, match="the budget of calls for all models is spent"):
        start_run(run, job_of(data, capped), SilentObserver())
    with pytest.raises(BudgetError):
        resume_run(run, SilentObserver())
    resume_run(run, SilentObserver(), budget={"calls": 10 * whole["calls"]})
    total = load_report(run).data["models"]["total"]
    server = scripted_server.totals
    assert total["input_tokens"] == server["prompt_tokens"]
    assert total["output_tokens"] == server["completion_tokens"]
    assert journal(run) == journal(tmp_path / "whole")


def journal(run: Path) -> list[dict[str, Any]]:
    """The events of a run without their times."""
    events = [json.loads(line) for line in (run / JOURNAL).read_text().splitlines()]
    return [{key: value for key, value in event.items() if key not in ("time", "at")} for event in events]


def test_a_recorded_run_is_replayed_without_a_server(own_server: ScriptedServer, data: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "calls.jsonl")
    start_run(tmp_path / "paid", job_of(data, settings(own_server, record=file)), SilentObserver())
    own_server.stop()
    start_run(tmp_path / "free", job_of(data, build_job_settings({"replay": file})), SilentObserver())
    assert journal(tmp_path / "free") == journal(tmp_path / "paid")
    paid, free = (load_report(tmp_path / name).data for name in ("paid", "free"))
    assert free["scores"] == paid["scores"]
    assert free["roles"] == paid["roles"]
    for role, usage in paid["models"]["roles"].items():
        stages = {name: counts for name, counts in usage["stages"].items() if name in ("embed", "extract", "judge")}
        assert {name: free["models"]["roles"][role]["stages"][name] for name in stages} == stages
    with pytest.raises(SettingsError, match="as judge model, not openai:other"):
        evaluate(data, build_job_settings({"replay": file, "judge": "openai:other@http://127.0.0.1:9/v1"}))
    with pytest.raises(RoleError, match="has no reply to this call of the chat model"):
        evaluate(data, build_job_settings({"replay": file}), "bm25-rag")


def test_a_server_that_moved_serves_the_rest_of_a_run(
    scripted_server: ScriptedServer, own_server: ScriptedServer, data: Path, tmp_path: Path
) -> None:
    own_server.play({"purpose": "answer", "do": {"status": 400, "error": "out of order"}})
    run = tmp_path / "run"
    with pytest.raises(RoleError, match="answered 400"):
        start_run(run, job_of(data, settings(own_server)), SilentObserver())
    extracted = len(own_server.requests(purpose="extract"))
    assert extracted > 0
    own_server.stop()
    resume_run(run, SilentObserver(), moved=[f"{own_server.url}={scripted_server.url}"])
    assert load_report(run).data["finished"]
    assert len(scripted_server.requests(purpose="extract")) == len(set(texts(scripted_server, "extract")))
    assert not set(texts(scripted_server, "extract")) & {e["text"] for e in own_server_log(own_server, "extract")}


def texts(server: ScriptedServer, purpose: str) -> list[str]:
    return [json.dumps(entry["body"]["messages"], sort_keys=True) for entry in server.requests(purpose=purpose)]


def own_server_log(server: ScriptedServer, purpose: str) -> list[dict[str, str]]:
    return [
        {"text": json.dumps(entry["body"]["messages"], sort_keys=True)}
        for entry in server.logged_on_disk()
        if entry["purpose"] == purpose
    ]


def test_both_commands_take_models(scripted_server: ScriptedServer, data: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    model = scripted_server.model()
    arguments = ["--chat", model, "--judge", model, "--embedder", "hashing", "--budget", "tokens=1e9"]
    split = tmp_path / "split.json"
    split.write_text(json.dumps({"train": ["ada"], "valid": ["bea"], "test": ["cleo"]}))
    shown = CliRunner().invoke(
        app, ["evaluate", "seed", "--data", str(data), "--part", "all", *arguments, "--set", "models.task.seed=3"]
    )
    assert shown.exit_code == 0, shown.output
    assert "chat: extract" in shown.output
    assert "Time by stage" in shown.output
    assert {entry["body"].get("seed") for entry in scripted_server.requests(purpose="extract")} == {3}
    run = ["evolve", "--data", str(data), "--split", str(split), "--run", str(tmp_path / "run"), *arguments]
    shown = CliRunner().invoke(app, [*run, "--set", "T1=1", "--set", "T2=0", "--set", "T3=0"])
    assert shown.exit_code == 0, shown.output
    assert "What the models were asked" in (tmp_path / "run" / "report.md").read_text()
    assert "judge score (model judge" in (tmp_path / "run" / "report.md").read_text()


def test_library_names_are_what_they_were() -> None:
    assert {"naive_rag", "bm25_rag"} <= set(library.names())


def test_a_recording_with_a_damaged_head_is_named_and_nothing_is_left(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    head = {"format": "prismem-recording", "version": 1, "models": {"judge": {"n": 1}}}
    file.write_text(json.dumps(head) + "\n")
    questions = tmp_path / "questions.jsonl"
    with pytest.raises(SettingsError, match=r"calls.jsonl has a damaged head \(\[models.judge\]: unknown setting 'n'"):
        job = build_job_settings({"replay": str(file)})
        evaluate_programs(["seed"], str(data), None, "all", job, questions=questions)
    assert not questions.exists()


def test_what_a_list_left_out_stands_in_the_report(data: Path, tmp_path: Path) -> None:
    exclude = tmp_path / "doubtful.json"
    exclude.write_text(json.dumps(["ada/1"]))
    job = job_of(data, build_job_settings({"embedder": "hashing", "reranker": False}))
    start_run(tmp_path / "run", replace(job, exclude=str(exclude)), SilentObserver())
    report = load_report(tmp_path / "run")
    assert "- data: excluded by doubtful.json (sha256 " in markdown(report)
    assert "(ada/1)" in markdown(report)
    assert report.data["job"]["split"] == {"train": 1, "valid": 2, "test": 2}
    # The list is part of the run: a resume reads it again.
    resume_run(tmp_path / "run", SilentObserver())
