"""Evolution runs whose models fail: they pause, blame nobody wrongly, and go on as if nothing had been."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from prismem_core.errors import JudgeError, RoleError
from prismem_core.evolution.recipes import RECIPES
from prismem_core.jobs.evaluation_job import evaluation_tables
from tests.faults.conftest import Evaluate, Evolution, one_clear_line
from tests.scripted_server.fixture import ScriptedServer


def paid(server: ScriptedServer) -> Counter[str]:
    """How often each request of the pipeline was answered."""
    answered = [e for e in server.log if e["delivered"] and e["purpose"] in ("extract", "plan", "answer", "judge")]
    return Counter(json.dumps(entry["body"], sort_keys=True) for entry in answered)


ROLES = ("task", "reflection", "coding")

PROVIDER_FAILURES: list[dict[str, Any]] = [
    {"status": 503},
    {"status": 401},
    {"html": True},
    {"close": "body"},
    {"status": 400, "error": "no"},
]


@pytest.mark.parametrize("failure", PROVIDER_FAILURES, ids=str)
def test_a_run_whose_models_all_fail_uses_up_no_iteration(
    evolution: Evolution, scripted_server: ScriptedServer, failure: dict[str, Any]
) -> None:
    scripted_server.play(default=failure)
    with pytest.raises(RoleError) as caught:
        evolution.start(models={"task": {"retries": 0}})
    one_clear_line(str(caught.value))
    assert not {"evaluated", "attempted", "iteration_finished", "run_finished"} & set(evolution.kinds())
    assert scripted_server.totals["delivered_prompt_tokens"] == 0


@pytest.mark.parametrize("after", [1, 9, 17])
def test_a_run_that_paused_goes_on_as_if_it_had_not(
    evolution: Evolution, scripted_server: ScriptedServer, after: int
) -> None:
    evolution.start()
    journal, answered = evolution.journal(), scripted_server.totals["replies"]
    paused = evolution.another()
    scripted_server.reset()
    scripted_server.play({"skip": after, "do": {"status": 400, "error": "out of order"}})
    with pytest.raises(RoleError):
        paused.start(models={"task": {"concurrency": 2}})
    scripted_server.play()
    paused.resume()
    assert paused.journal() == journal
    assert max(paid(scripted_server).values()) == 1
    # A client of a later session tries out the server anew; nothing else is asked twice.
    assert scripted_server.totals["replies"] - answered <= 2


def test_a_judge_that_cannot_be_read_pauses_the_run(evolution: Evolution, scripted_server: ScriptedServer) -> None:
    judge = {"models": {"judge": {"model": scripted_server.model("judge")}}}
    evolution.start(**judge)
    journal = evolution.journal()
    paused = evolution.another()
    scripted_server.reset()
    scripted_server.play({"purpose": "judge", "do": {"shape": "prose"}})
    with pytest.raises(JudgeError) as caught:
        paused.start(**judge)
    one_clear_line(str(caught.value))
    assert "evaluated" not in paused.kinds()
    scripted_server.play()
    paused.resume()
    assert paused.journal() == journal


def test_a_verdict_that_cannot_be_read_is_no_zero(evaluate: Evaluate, scripted_server: ScriptedServer) -> None:
    judge = {"judge": scripted_server.model("judge")}
    good = evaluate(**judge)["programs"]["seed"]
    scripted_server.play({"purpose": "judge", "contains": "What did Ines sign", "do": {"shape": "prose"}})
    summary = evaluate(**judge)["programs"]["seed"]
    assert (good["scored"], summary["scored"], summary["questions"]) == (4, 3, 4)
    scripted_server.reset()
    scripted_server.play({"purpose": "judge", "do": {"shape": "only_reasoning"}})
    none = evaluate(**judge)["programs"]["seed"]
    assert none["scored"] == 0 and none["score"] is None


def test_a_judge_is_asked_again(evaluate: Evaluate, scripted_server: ScriptedServer) -> None:
    scripted_server.play({"purpose": "judge", "times": 3, "do": {"shape": "prose"}})
    summary = evaluate(judge=scripted_server.model("judge"))["programs"]["seed"]
    assert summary["scored"] == 4
    assert len(scripted_server.requests("chat", "judge")) == 4 + 3


def test_the_judge_sees_no_retrieved_text(evaluate: Evaluate, scripted_server: ScriptedServer) -> None:
    evaluate(judge=scripted_server.model("judge"), program="naive_rag")
    asked = [e["body"]["messages"][-1]["content"] for e in scripted_server.requests("chat", "judge")]
    assert len(asked) == 4
    assert not any("Tromso" in text for text in asked)


def test_failed_segments_and_dropped_units_are_counted(evaluate: Evaluate, scripted_server: ScriptedServer) -> None:
    scripted_server.play(
        {"purpose": "extract", "contains": "on day 2", "do": {"shape": "prose"}},
        {"purpose": "extract", "contains": "on day 3", "do": {"shape": "extra_field"}},
    )
    result = evaluate()
    summary = result["programs"]["seed"]
    assert summary["unread_segments"] == 2
    assert summary["dropped_units"] == 8
    faults = summary["extraction_faults"]
    assert len(faults) == 10
    assert "spring, segment 3: unit 2: extra_field confidence" in faults
    assert any(fault.startswith("autumn, segment 2: it is not valid JSON") for fault in faults)
    (shown,) = [table for table in evaluation_tables(result) if table.title == "Replies that could not be used"]
    assert shown.rows == (("seed", "2", "8", "0", "0", "0"),)
    assert faults[0] in (shown.note or "")
    assert summary["scored"] == 4


def test_a_designer_whose_server_fails_uses_up_no_iteration(
    evolution: Evolution, scripted_server: ScriptedServer
) -> None:
    scripted_server.play({"model": "designer", "do": {"status": 400, "error": "no"}})
    with pytest.raises(RoleError) as caught:
        evolution.start(designer=scripted_server.model("designer"))
    one_clear_line(str(caught.value))
    finished = [event["iteration"] for event in evolution.journal() if event["event"] == "iteration_finished"]
    # The start was measured, which is iteration 0; the designer has nothing to do with that.
    assert finished == [0]


STRATEGIES = list(RECIPES)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_outage_pauses_every_strategy_and_uses_up_no_iteration(
    evolution: Evolution, scripted_server: ScriptedServer, strategy: str
) -> None:
    given = {"evolution": {"strategy": strategy, "T1": 1, "T2": 1, "T3": 1}}
    evolution.start(**given, designer=scripted_server.model("designer"))
    journal = evolution.journal()
    for model, finished in (("scripted", []), ("designer", [0])):
        paused = evolution.another()
        scripted_server.reset()
        scripted_server.play({"model": model, "do": {"status": 503}})
        with pytest.raises(RoleError) as caught:
            paused.start(
                **given, designer=scripted_server.model("designer"), models={role: {"retries": 0} for role in ROLES}
            )
        one_clear_line(str(caught.value))
        ends = [event["iteration"] for event in paused.journal() if event["event"] == "iteration_finished"]
        assert ends == finished and "run_finished" not in paused.kinds()
        scripted_server.play()
        paused.resume()
        assert paused.journal() == journal
