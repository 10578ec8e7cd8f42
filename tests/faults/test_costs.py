"""What a run says it used is what the servers counted, and a budget holds but for the calls under way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prismem_core.errors import BudgetError, RoleError
from tests.faults.conftest import Evaluate, Evolution, evaluate_talks
from tests.scripted_server.fixture import ScriptedServer


def used(models: dict[str, Any]) -> tuple[int, int]:
    """The tokens of a cost report."""
    total = models["total"]
    return total["input_tokens"], total["output_tokens"]


def counted(server: ScriptedServer) -> tuple[int, int]:
    """The tokens that the server counted."""
    totals = server.totals
    return totals["prompt_tokens"], totals["completion_tokens"]


FAULTS: dict[str, list[dict[str, Any]]] = {
    "good": [],
    "retried": [{"skip": 1, "every": 3, "times": 4, "do": {"status": 503}}],
    "reasks": [{"purpose": "extract", "times": 2, "do": {"shape": "prose"}}, {"times": 1, "do": {"shape": "half"}}],
    "adapted": [{"times": 1, "do": {"refuse": ["max_tokens"]}}],
    "other dialect": [{"do": {"forms": {"json_schema": "ignore"}}}],
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("faults", FAULTS.values(), ids=list(FAULTS))
def test_the_cost_report_is_the_servers_count(
    evaluate: Evaluate, scripted_server: ScriptedServer, faults: list[dict[str, Any]], stream: bool
) -> None:
    scripted_server.play(*faults)
    result = evaluate(
        "naive_rag",
        embedder=scripted_server.model("embedding"),
        judge=scripted_server.model("judge"),
        task={"stream": stream},
    )
    assert used(result["models"]) == counted(scripted_server)
    assert {"chat", "judge", "embedder"} <= set(result["models"]["roles"])
    metrics = scripted_server.metrics()
    assert used(result["models"]) == (
        metrics["vllm:prompt_tokens_total"],
        metrics["vllm:generation_tokens_total"],
    )


def test_each_role_is_counted_apart(evaluate: Evaluate, scripted_server: ScriptedServer) -> None:
    result = evaluate("naive_rag", embedder=scripted_server.model("embedding"), judge=scripted_server.model("judge"))
    counters = scripted_server.state["counters"]
    for role, key in (("chat", "chat scripted"), ("judge", "chat judge"), ("embedder", "embeddings embedding")):
        entry = result["models"]["roles"][role]
        own = counters[key]
        assert (entry["input_tokens"], entry["output_tokens"]) == (own["prompt_tokens"], own["completion_tokens"])


def test_what_the_cache_answers_costs_nothing(
    evaluate: Evaluate, scripted_server: ScriptedServer, tmp_path: Path
) -> None:
    first = evaluate(cache=tmp_path / "cache")
    scripted_server.clear()
    second = evaluate(cache=tmp_path / "cache")
    assert second["programs"] == first["programs"]
    assert counted(scripted_server) == (0, 0) == used(second["models"])


def test_prices_make_money_of_tokens(evaluate: Evaluate, scripted_server: ScriptedServer) -> None:
    result = evaluate(task={"price_input": 2.0, "price_output": 8.0})
    read, written = counted(scripted_server)
    assert result["models"]["total"]["cost"] == pytest.approx((2.0 * read + 8.0 * written) / 1e6)


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("cap", [300, 1000])
def test_a_budget_of_tokens_is_passed_by_calls_under_way_alone(
    evaluate: Evaluate, scripted_server: ScriptedServer, cap: int, slots: int
) -> None:
    scripted_server.play(default={"latency": 0.02})
    with pytest.raises(BudgetError, match="tokens") as caught:
        evaluate(task={"concurrency": slots}, budget={"tokens": cap})
    assert "\n" not in str(caught.value)
    requests = scripted_server.requests()
    tokens = [e["prompt_tokens"] + e["completion_tokens"] for e in requests]
    assert sum(tokens) >= cap
    # Without those that were under way when the cap was reached it was not.
    assert sum(tokens) - sum(sorted(tokens)[-slots:]) < cap


@pytest.mark.parametrize("role", ["judge", "embedding"])
def test_a_budget_binds_every_role(evaluate: Evaluate, scripted_server: ScriptedServer, role: str) -> None:
    names = {"judge": "judge", "embedding": "embedder"}
    with pytest.raises(BudgetError, match=names[role]):
        evaluate(
            "naive_rag",
            models={role: {"model": scripted_server.model(role), "budget_tokens": 5, "concurrency": 1, "batch": 1}},
        )


def test_a_budget_of_calls_is_exact(evaluate: Evaluate, scripted_server: ScriptedServer) -> None:
    with pytest.raises(BudgetError, match="calls"):
        evaluate(task={"concurrency": 1}, budget={"calls": 5})
    assert scripted_server.totals["replies"] == 5


def test_an_evaluation_goes_on_with_what_it_paid(
    evaluate: Evaluate, scripted_server: ScriptedServer, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(BudgetError):
        evaluate(cache=cache, task={"concurrency": 1}, budget={"calls": 5})
    evaluate(cache=cache)
    bodies = [json.dumps(e["body"], sort_keys=True) for e in scripted_server.requests() if e["purpose"] != "other"]
    assert len(bodies) == len(set(bodies))


def test_the_report_of_a_run_is_the_servers_count(evolution: Evolution, scripted_server: ScriptedServer) -> None:
    evolution.start(embedder=scripted_server.model("embedding"), judge=scripted_server.model("judge"))
    models = evolution.report()["models"]
    assert used(models) == counted(scripted_server)
    assert set(models["roles"]) == {"chat", "embedder", "judge"}


def test_a_run_at_its_budget_pauses_and_goes_on(evolution: Evolution, scripted_server: ScriptedServer) -> None:
    models = {"embedder": scripted_server.model("embedding")}
    evolution.start(**models)
    tokens, journal, usage = sum(counted(scripted_server)), evolution.journal(), of_requests(evolution)
    for share in (0.2, 0.7):
        paused = evolution.another()
        scripted_server.reset()
        with pytest.raises(BudgetError, match="raise the cap"):
            paused.start(**models, budget={"tokens": int(tokens * share)})
        assert "run_finished" not in paused.kinds()
        paused.resume(budget={"tokens": 10 * tokens})
        assert paused.journal() == journal
        assert used(paused.report()["models"]) == counted(scripted_server)
        # What was under way when the budget was spent was kept, and nothing was paid twice.
        assert of_requests(paused) == usage


def of_requests(evolution: Evolution) -> dict[str, Any]:
    """Usage by role and stage without what clients try out for themselves, which each session does anew."""
    roles = evolution.report()["models"]["roles"]
    own = ("probe", "check")
    return {
        f"{role} {stage}": usage
        for role, entry in roles.items()
        for stage, usage in entry["stages"].items()
        if stage not in own
    }


@pytest.mark.parametrize("role", ["reflection", "coding"])
def test_a_budget_binds_the_designers_models(evolution: Evolution, scripted_server: ScriptedServer, role: str) -> None:
    models = {r: {"model": scripted_server.model(r)} for r in ("reflection", "coding")}
    models[role] |= {"budget_calls": 1}
    with pytest.raises(BudgetError, match=f"the budget of calls for the {role} model is spent: 1 of 1"):
        evolution.start(models=models)
    assert "run_finished" not in evolution.kinds()


@pytest.mark.parametrize("budget", [{"calls": 5}, {"tokens": 300}])
def test_a_budget_binds_the_embedded_roles(talks: Path, budget: dict[str, int]) -> None:
    (name,) = budget
    with pytest.raises(BudgetError, match=f"the budget of {name} for all models is spent"):
        evaluate_talks(talks, "naive_rag", task={"model": "offline"}, budget=budget)
    with pytest.raises(BudgetError, match=f"the budget of {name} for the embedder model is spent"):
        capped = {"embedding": {"model": "hashing", f"budget_{name}": 1}}
        evaluate_talks(talks, "naive_rag", task={"model": "offline"}, embedder=None, models=capped)


def test_wall_seconds_of_earlier_sessions_bind(evolution: Evolution, scripted_server: ScriptedServer) -> None:
    scripted_server.play({"purpose": "answer", "do": {"status": 400, "error": "no"}})
    with pytest.raises(RoleError):
        evolution.start()
    ledger = evolution.directory / "calls.jsonl"
    with ledger.open("a") as file:
        file.write('{"role":"time","seconds":7200.0}\n{"gpu_seconds":30.0,"of":"engine","role":"time"}\n')
    scripted_server.play()
    with pytest.raises(BudgetError, match=r"seconds for all models is spent: 7,20\d of 7,200"):
        evolution.resume(budget={"seconds": 7200.0})
    with pytest.raises(BudgetError, match="GPU seconds for all models is spent: 30 of 30"):
        evolution.resume(budget={"seconds": 1e6, "gpu_seconds": 30.0})
    evolution.resume(budget={"seconds": 1e6, "gpu_seconds": 1e6})
    times = evolution.report()["models"]["time"]
    assert times["seconds"] > 7200 and times["gpu_seconds"] == {"engine": 30.0, "total": 30.0}
