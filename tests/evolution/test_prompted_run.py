"""The whole of Algorithm 1 with a designer that asks a model: every kind of reply, and a run that stops anywhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from scripted_laboratory import ScriptedLaboratory, source_of, task
from scripted_model import Reply, ScriptedModel, literally, plans, says, turns_into

from prismem_core.cache import ExecutionCache
from prismem_core.clients.offline.embedders import HashingEmbedder
from prismem_core.errors import RoleError
from prismem_core.evolution.engine import EvolutionResult, evolve
from prismem_core.evolution.prompted_designer import PromptedDesigner
from prismem_core.evolution.settings import build_settings
from prismem_core.roles.cached import CachedChat
from prismem_core.roles.ledger import Ledger
from prismem_core.runs.run import Manifest, Run
from prismem_core.tasks.capability import CAPABILITIES

SETTINGS = build_settings({"T1": 1, "T2": 2, "T3": 1, "repair_attempts": 2, "K": 2})
MANIFEST = Manifest("0.1.0", SETTINGS.model_dump(), {"digest": "d" * 64}, {"chat": "scripted"})
TRAIN = [task(f"t{i}", CAPABILITIES[i % 5]) for i in range(10)]
VALID = [task(f"v{i}", CAPABILITIES[i % 5]) for i in range(5)]
# Level by capability: two specialists that are worse as a whole than `good`, and a union that is better.
LEVELS: Mapping[str, Sequence[float]] = {
    "seed": (0.1, 0.2, 0.2, 0.2, 0.2),
    "good": (0.3, 0.35, 0.4, 0.4, 0.4),
    "facts": (0.9, 0.2, 0.2, 0.2, 0.2),
    "times": (0.2, 0.9, 0.2, 0.2, 0.2),
    "union": (0.9, 0.9, 0.4, 0.4, 0.4),
}
STAYS = "@@\n NAME = 'good'\n"
SCRIPT: Mapping[str, Sequence[Reply]] = {
    "reflect": [
        literally("I think that the temporal capability is the weakest."),
        says(diagnosis="temporal: dates are lost in extraction."),
        literally(""),
        says(diagnosis="factual_retrieval: names are lost."),
        literally('{"diagnosis": "temporal: an order is', "length"),
        says(diagnosis="temporal: the order is lost."),
        plans("Bring both in."),
    ],
    "code": [
        # Iteration 1: a diff that does not apply, one that is empty, one that is good.
        says(summary="first", code="@@\n-NAME = 'other'\n+NAME = 'good'\n"),
        says(summary="second", code=""),
        turns_into(source_of("good"), "third"),
        # Iteration 2: no JSON twice, which makes the attempt, then one that changes nothing, then one that is good.
        literally("Here is the diff:\n```diff\n@@\n-x\n+y\n```"),
        literally('{"summary": "s"}'),
        says(summary="nothing", code=STAYS),
        turns_into(source_of("facts"), "names"),
        # Iteration 3, with prose around the object; iteration 4.
        lambda prompt: "Here it is: " + str(turns_into(source_of("times"), "the\norder")(prompt)) + " Done.",
        turns_into(source_of("union"), "both"),
    ],
}


def laboratory() -> ScriptedLaboratory:
    scores = {
        source_of(name): {t.id: levels[int(t.id[1:]) % 5] for t in [*TRAIN, *VALID]} for name, levels in LEVELS.items()
    }
    return ScriptedLaboratory(TRAIN, VALID, scores)


def go(model: ScriptedModel, cache: ExecutionCache, ledger: Ledger, run: Run | None) -> EvolutionResult:
    chat = CachedChat(model, cache, ledger)
    designer = PromptedDesigner(chat, chat, HashingEmbedder(), retries=1)
    return evolve(laboratory(), designer, source_of("seed"), SETTINGS, run)


def journal(path: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (path / "journal.jsonl").read_bytes().splitlines()]
    return [{key: value for key, value in event.items() if key != "time"} for event in events]


@pytest.fixture
def whole(tmp_path: Path) -> tuple[Path, ScriptedModel]:
    """An uninterrupted run."""
    model = ScriptedModel(SCRIPT)
    with Run.create(tmp_path / "whole", MANIFEST) as run:
        result = go(model, ExecutionCache(), Ledger(), run)
    assert result.source == source_of("union")
    return tmp_path / "whole", model


def test_every_kind_of_reply_ends_as_it_should(whole: tuple[Path, ScriptedModel]) -> None:
    path, model = whole
    events = journal(path)
    assert model.left == 0
    ends = [
        (e["iteration"], e["event"], e.get("reason", ""))
        for e in events
        if e["event"] in ("rejected", "accepted") and e["iteration"]
    ]
    assert ends == [
        (1, "rejected", "patch:context_not_found"),
        (1, "rejected", "patch:empty_diff"),
        (1, "accepted", ""),
        (2, "rejected", "reply:unusable"),
        (2, "rejected", "patch:noop"),
        (2, "accepted", ""),
        (3, "accepted", ""),
        (4, "accepted", ""),
    ]
    [unusable] = [e for e in events if e.get("reason") == "reply:unusable"]
    assert unusable["message"] == "the reply has no field 'code'"
    diagnosed = [(e["text"], e["capability"]) for e in events if e["event"] == "diagnosed"]
    assert diagnosed == [
        ("temporal: dates are lost in extraction.", "temporal"),
        ("factual_retrieval: names are lost.", "factual_retrieval"),
        ("temporal: the order is lost.", "temporal"),
    ]
    assert [e["text"] for e in events if e["event"] == "integration_planned"] == ["Bring both in."]
    assert [e["summary"] for e in events if e["event"] == "revised" and e["iteration"] == 3] == ["the order"]
    assert events[-1]["event"] == "run_finished" and events[-1]["base"] == "n01" and events[-1]["final"] == "n04"


def test_a_problem_goes_back_to_the_model_and_a_failed_attempt_to_the_next_prompt(
    whole: tuple[Path, ScriptedModel],
) -> None:
    _, model = whole
    reflect, code = model.asked("reflect"), model.asked("code")
    assert "could not be used: the reply is not one JSON object" in reflect[1]
    assert "could not be used: the reply is empty" in reflect[3]
    assert "could not be used: the reply was cut by the output limit" in reflect[5]
    assert "could not be used" not in reflect[0]
    assert "Your previous attempts" not in code[0]
    assert "patch:context_not_found" in code[1] and "-NAME = 'other'" in code[1]
    assert "patch:context_not_found" in code[2] and "patch:empty_diff" in code[2]
    assert "Your previous attempts" not in code[3], "attempts of another iteration are not this one's"
    assert "reply:unusable" in code[5] and "the reply has no field 'code'" in code[5]
    assert "specialist_factual_retrieval" in code[8] and "Bring both in." in code[8]
    assert len({request.digest for request in model.requests}) == len(model.requests)


@pytest.mark.parametrize("stop", range(sum(map(len, SCRIPT.values()))))
def test_a_run_that_stops_at_any_call_goes_on_and_asks_for_nothing_twice(
    whole: tuple[Path, ScriptedModel], tmp_path: Path, stop: int
) -> None:
    path, uninterrupted = whole
    cache, ledger = ExecutionCache(), Ledger()
    model = ScriptedModel(SCRIPT, fails_at=stop)
    with Run.create(tmp_path / "stopped", MANIFEST) as run, pytest.raises(RoleError, match="away"):
        go(model, cache, ledger, run)
    with Run.open(tmp_path / "stopped", version="0.1.0", data_digest="d" * 64, roles={"chat": "scripted"}) as run:
        if stop in (12, 13):  # after the reply that was cut, which is not kept and is made again
            model.insert("reflect", SCRIPT["reflect"][4])
        go(model, cache, ledger, run)
    assert journal(tmp_path / "stopped") == journal(path)
    assert {r.digest for r in model.requests} == {r.digest for r in uninterrupted.requests}
