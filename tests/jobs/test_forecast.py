"""Forecasts: what real runs then used lies within the bounds, a budget is told in time, and nothing is called."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.test_model_jobs import data, settings
from tests.scripted_server.fixture import ScriptedServer, own_server, scripted_server, server_process
from typer.testing import CliRunner

from prismem_core.cli.main import app
from prismem_core.errors import SettingsError
from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.evolution.settings import build_settings
from prismem_core.jobs.evolution_job import EvolutionJob, forecast_run, start_run, start_source
from prismem_core.jobs.forecast.amounts import Range
from prismem_core.jobs.forecast.budgets import Reach, check_start, reaches, sentence, warning
from prismem_core.jobs.forecast.forecast import Forecast
from prismem_core.jobs.forecast.words import forecast_json, short
from prismem_core.jobs.reports import load_report
from prismem_core.jobs.settings import build_job_settings

__all__ = ["data", "own_server", "scripted_server", "server_process"]

PARTS = {"train": ["ada"], "valid": ["bea"], "test": ["cleo"]}


def job_of(data: Path, job: Any, start: str | None = None, **evolution: Any) -> EvolutionJob:
    given = {"T1": 1, "T2": 2, "T3": 1, **evolution}
    return EvolutionJob(str(data), PARTS, job, build_settings(given), start_source(start))


def within(bounds: Range, value: float, what: str) -> None:
    assert bounds.low <= value <= bounds.high, f"{what}: {value} is not within {bounds}"
    assert bounds.low <= bounds.expected <= bounds.high, f"{what}: {bounds}"


def check(forecast: Forecast, models: Mapping[str, Any]) -> None:
    """What the report of a run says was used lies within the bounds, by role and stage and in all."""
    seen = {(role, stage): usage for role, entry in models["roles"].items() for stage, usage in entry["stages"].items()}
    assert set(seen) <= set(forecast.rows) | {(role, "unusable") for role, _ in seen}
    for role, stage in forecast.rows:
        amount = forecast.of(role=role, stage=stage)
        used = seen.get((role, stage), {"calls": 0, "input_tokens": 0, "output_tokens": 0})
        within(amount.calls, used["calls"], f"{role} {stage} calls")
        within(amount.input_tokens, used["input_tokens"], f"{role} {stage} read")
        within(amount.output_tokens, used["output_tokens"], f"{role} {stage} written")
    whole = models["total"]
    within(forecast.of().calls, whole["calls"], "calls")
    within(forecast.of().tokens, whole["input_tokens"] + whole["output_tokens"], "tokens")


@pytest.mark.parametrize(
    ("strategy", "start", "designer"),
    [
        ("prismem", None, True),
        ("holistic", "naive-rag", False),
        ("random-case", "bm25-rag", True),
        ("prismem", "naive-rag", False),
        ("router", "naive-rag", False),
    ],
)
def test_a_run_uses_what_was_foreseen(
    scripted_server: ScriptedServer, data: Path, tmp_path: Path, strategy: str, start: str | None, designer: bool
) -> None:
    more = {"designer": scripted_server.model("designer")} if designer else {}
    if strategy == "router":
        more["annotator"] = scripted_server.model("annotator")
    job = job_of(data, settings(scripted_server, **more), start, strategy=strategy)
    foreseen, _ = forecast_run(job)
    assert scripted_server.totals["requests"] == 0
    start_run(tmp_path / "run", job, SilentObserver())
    models = load_report(tmp_path / "run").data["models"]
    assert models["total"]["calls"] > 20
    check(foreseen, models)


def test_replies_that_are_asked_for_again_are_within_the_bounds(
    scripted_server: ScriptedServer, data: Path, tmp_path: Path
) -> None:
    scripted_server.play(
        {"purpose": "extract", "every": 2, "do": {"shape": "prose"}},
        {"purpose": "judge", "every": 3, "times": 4, "do": {"shape": "prose"}},
    )
    job = job_of(data, settings(scripted_server), "naive-rag")
    foreseen, _ = forecast_run(job)
    start_run(tmp_path / "run", job, SilentObserver())
    check(foreseen, load_report(tmp_path / "run").data["models"])


@pytest.mark.parametrize("reuse", ["content", "off"])
def test_the_embedded_roles_are_foreseen_too(make_job: Callable[..., EvolutionJob], tmp_path: Path, reuse: str) -> None:
    job = make_job({"reuse": reuse}, {"T1": 1, "T2": 1, "T3": 1})
    foreseen, found = forecast_run(job)
    assert found == []
    start_run(tmp_path / "run", job, SilentObserver())
    check(foreseen, load_report(tmp_path / "run").data["models"])


def test_a_forecast_opens_no_connection_and_writes_nothing(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError("a connection")

    models = {name: f"openai:{name}@http://127.0.0.1:9/v1" for name in ("chat", "judge", "designer", "embedder")}
    job = job_of(data, build_job_settings(models))
    before = sorted(data.parent.iterdir())
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    first, _ = forecast_run(job)
    again, _ = forecast_run(job)
    assert first == again
    assert {role for role, _ in first.rows} == {"chat", "judge", "reflection", "coding", "embedder"}
    assert sorted(data.parent.iterdir()) == before


def test_lower_bounds_are_what_any_run_needs(data: Path) -> None:
    foreseen, _ = forecast_run(job_of(data, build_job_settings({"embedder": "hashing", "reranker": False})))
    # Two conversations of three sessions and of two questions each; their evidence is planned as questions, too.
    assert foreseen.of(part="start", stage="extract").calls.low == 6
    assert foreseen.of(part="start", stage="answer").calls.low == 4
    assert foreseen.of(part="start", stage="plan").calls.low == 4
    assert foreseen.of(part="cold start", stage="plan").calls.low == 2
    assert foreseen.of(part="test", stage="extract").calls.low == 3
    assert foreseen.iterations == {"cold start": 1, "refinement": 2, "integration": 1}
    assert foreseen.of(part="refinement").calls.low == 0
    assert foreseen.of(stage="judge").calls.high == 0


def test_more_iterations_and_repairs_ask_for_more(data: Path) -> None:
    job = build_job_settings({"embedder": "hashing", "reranker": False})
    few, more, repaired = (
        forecast_run(job_of(data, job, **evolution))[0].of()
        for evolution in ({"T2": 2}, {"T2": 9}, {"T2": 2, "repair_attempts": 5})
    )
    assert few.calls.expected < more.calls.expected and few.calls.high < more.calls.high
    assert few.calls.expected == repaired.calls.expected and few.calls.high < repaired.calls.high
    assert few.calls.low == more.calls.low == repaired.calls.low


def test_strategies_without_integration_spend_its_rounds_on_refinement(data: Path) -> None:
    job = build_job_settings({"embedder": "hashing", "reranker": False})
    foreseen, _ = forecast_run(job_of(data, job, strategy="no-integration"))
    assert foreseen.iterations == {"cold start": 1, "refinement": 3, "integration": 0}
    assert "integration" not in foreseen.parts


def test_a_cache_that_is_there_may_hold_everything(data: Path, tmp_path: Path) -> None:
    job = job_of(data, build_job_settings({"embedder": "hashing", "reranker": False}))
    foreseen, _ = forecast_run(replace(job, cache=str(tmp_path)))
    assert foreseen.cached and foreseen.of().calls.low == 0 and foreseen.of().calls.expected > 0
    missing, _ = forecast_run(replace(job, cache=str(tmp_path / "none")))
    assert missing.of().calls.low > 0


def test_prices_make_money_of_tokens(data: Path) -> None:
    models = {"task": {"model": "openai:m@http://127.0.0.1:9/v1", "price_input": 2.0, "price_output": 10.0}}
    foreseen, _ = forecast_run(job_of(data, build_job_settings({"models": models, "embedder": "hashing"})))
    chat = foreseen.of(role="chat")
    expected = (chat.input_tokens.expected * 2 + chat.output_tokens.expected * 10) / 1e6
    assert foreseen.money().expected == pytest.approx(expected)
    assert foreseen.money(role="embedder") == Range()
    assert sum(foreseen.money(part=part).expected for part in foreseen.parts) == pytest.approx(expected)


def reach_of(data: Path, **job: Any) -> list[Reach]:
    return forecast_run(job_of(data, build_job_settings({"embedder": "hashing", "reranker": False, **job})))[1]


def test_a_budget_that_does_not_cover_the_start_is_refused_before_anything_is_begun(data: Path, tmp_path: Path) -> None:
    needed = forecast_run(job_of(data, build_job_settings({"embedder": "hashing", "reranker": False})))[0]
    calls = int(needed.of(part="start").calls.low)
    check_start(reach_of(data, budget={"calls": calls}))
    with pytest.raises(SettingsError, match=f"needs at least {calls}"):
        check_start(reach_of(data, budget={"calls": calls - 1}))
    small = job_of(data, build_job_settings({"embedder": "hashing", "reranker": False, "budget": {"calls": 3}}))
    with pytest.raises(SettingsError, match="the budget of calls for all models, 3, does not cover"):
        start_run(tmp_path / "run", small, SilentObserver(), on_forecast=lambda forecast, found: None)
    assert not (tmp_path / "run").exists()


def test_fewer_than_three_proposals_are_warned_of(data: Path) -> None:
    foreseen, _ = forecast_run(job_of(data, build_job_settings({"embedder": "hashing", "reranker": False})))
    costs = {part: foreseen.of(part=part).calls.expected for part in foreseen.parts}
    fixed = costs["start"] + costs["test"]
    cases = [(fixed - 1, 0), (fixed + costs["cold start"], 1), (fixed + costs["cold start"] + costs["refinement"], 3)]
    for cap, proposals in cases:
        found = reach_of(data, budget={"calls": int(cap) + 1})
        (reach,) = found
        assert reach.proposals.expected == proposals and reach.wanted == 4
        assert reach.proposals.low <= reach.proposals.expected <= reach.proposals.high
        assert bool(warning(found)) == (proposals < 3)
        assert f"{proposals} of 4 proposals" in sentence(found)
    assert warning(reach_of(data)) == sentence(reach_of(data)) == ""


def test_three_are_not_asked_for_where_a_run_has_fewer(data: Path) -> None:
    job = build_job_settings({"embedder": "hashing", "reranker": False, "budget": {"calls": 10**9}})
    (reach,) = forecast_run(job_of(data, job, T1=1, T2=0, T3=0))[1]
    assert reach.proposals == Range.exactly(1) and warning([reach]) == ""


def test_caps_of_a_role_are_looked_at_for_that_role(data: Path) -> None:
    models = {"judge": {"model": "openai:m@http://127.0.0.1:9/v1", "budget_calls": 1}}
    job = build_job_settings({"models": models, "embedder": "hashing", "reranker": False})
    foreseen, found = forecast_run(job_of(data, job))
    (reach,) = found
    assert reach.whose == "the judge model"
    assert reach.start == foreseen.of(part="start", role="judge").calls
    assert "the judge model" in warning(found)
    assert reaches(foreseen, job) == found


def test_both_commands_print_it(data: Path, tmp_path: Path) -> None:
    split = tmp_path / "split.json"
    split.write_text(json.dumps(PARTS))
    words = ["--data", str(data), "--split", str(split), "--embedder", "hashing", "--set", "reranker=false"]
    words += ["--set", "T1=1", "--set", "T2=0", "--set", "T3=0", "--budget", "calls=1e6"]
    foreseen = CliRunner().invoke(app, ["forecast", *words])
    assert foreseen.exit_code == 0, foreseen.output
    for text in ("Forecast by model", "chat: extract", "Forecast by part of the run", "1 of 1 proposals"):
        assert text in foreseen.output
    as_json = CliRunner().invoke(app, ["forecast", *words, "--json"])
    value = json.loads(as_json.output[as_json.output.index("{") :])
    assert value["tokens"]["chat"] == "counted" and value["total"]["calls"]["low"] > 0
    assert value["budget"][0]["proposals"] == {"low": 1.0, "expected": 1.0, "high": 1.0}
    run = CliRunner().invoke(app, ["evolve", *words, "--run", str(tmp_path / "run")])
    assert run.exit_code == 0, run.output
    assert foreseen.output.split("Forecast by model")[1].split("The budget")[0] in run.output
    small = CliRunner().invoke(app, ["evolve", *words, "--run", str(tmp_path / "small"), "--budget", "calls=2"])
    assert isinstance(small.exception, SettingsError) and not (tmp_path / "small").exists()


def test_a_forecast_is_plain_json(data: Path) -> None:
    foreseen, found = forecast_run(job_of(data, build_job_settings({"budget": {"tokens": 10}})))
    value = json.loads(json.dumps(forecast_json(foreseen, found), allow_nan=False))
    assert value["warning"] and value["budget"][0]["cap"] == "tokens"
    assert sum(part["calls"]["expected"] for part in value["parts"]) == pytest.approx(
        value["total"]["calls"]["expected"]
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (812.4, "812"), (9120, "9,120"), (12_345, "12.3k"), (999_900, "1,000k"), (4.56e6, "4.56M")],
)  # fmt: skip
def test_large_numbers_are_short(value: float, text: str) -> None:
    assert short(value) == text
