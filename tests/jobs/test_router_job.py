"""Strategy `router` to its end: routes in the journal, every test question at its program, resumed and paid once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.scripted_server.fixture import ScriptedServer, scripted_server, server_process

from prismem_core.clients.offline.chat import OfflineChat
from prismem_core.errors import RoleError
from prismem_core.evolution.archive import Archive
from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.jobs.evolution_job import EvolutionJob, resume_run, start_run
from prismem_core.jobs.reports import load_report
from prismem_core.roles.protocols import ChatReply, ChatRequest
from prismem_core.runs.report.markdown import markdown
from prismem_core.runs.report.terminal import make_console, render
from prismem_core.runs.run import read_run
from prismem_core.tasks.capability import CAPABILITIES
from prismem_core.tasks.datasets import load

__all__ = ["scripted_server", "server_process"]

Make = Callable[..., EvolutionJob]


def journal(run: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (run / "journal.jsonl").read_bytes().splitlines()]
    return [{key: value for key, value in event.items() if key != "time"} for event in events]


def paid(run: Path) -> list[str]:
    lines = [json.loads(line) for line in (run / "calls.jsonl").read_bytes().splitlines()]
    return [line["key"] for line in lines if line["role"] != "time"]


def routed(run: Path) -> dict[str, Any]:
    [event] = [e for e in journal(run) if e["event"] == "evaluated" and e["program"] == "router"]
    return event


def job_of(make_job: Make, router: str = "question", **job: object) -> EvolutionJob:
    return make_job(dict(job), {"strategy": "router", "router": router})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, make_job: Make) -> Path:
    return start_run(tmp_path_factory.mktemp("router") / "whole", job_of(make_job), SilentObserver())


@pytest.mark.parametrize("router", ["question", "oracle"])
def test_every_test_question_is_answered_by_the_program_of_its_capability(
    tmp_path: Path, make_job: Make, router: str
) -> None:
    job = job_of(make_job, router)
    run = start_run(tmp_path / "run", job, SilentObserver())
    events = journal(run)
    [finished] = [e for e in events if e["event"] == "run_finished"]
    assert finished["routes"] == dict(load_report(run).data["specialists"])
    assert finished["final"] == finished["base"]
    measured = [e["program"] for e in events if e["event"] == "evaluated" and e["purpose"] == "test"]
    assert measured == [*dict.fromkeys(("n00", finished["final"])), "router"]
    assert not any(e["event"] == "integration_planned" for e in events)
    routing = routed(run)["details"]["routing"]
    dataset = load(job.data)
    tasks = {i: dataset.task(i) for i in dataset.split(job.parts).test}
    assert set(routing["predicted"]) == set(tasks)
    if router == "oracle":
        assert routing["predicted"] == {i: str(task.primary) for i, task in tasks.items()}
        assert routing["agreeing"] == len(tasks)
    else:
        assert 0 < routing["agreeing"] < len(tasks), "the rules of the embedded model are right at times"
    expected = {p: [i for i, c in routing["predicted"].items() if finished["routes"][c] == p] for p in routing["sent"]}
    assert {part["program"]: part["tasks"] for part in routing["parts"] if part["tasks"]} == expected
    assert len(paid(run)) == len(set(paid(run)))
    stages = {json.loads(line).get("stage") for line in (run / "calls.jsonl").read_bytes().splitlines()}
    assert ("route" in stages) == (router == "question")


def test_the_report_shows_the_router_in_all_three_faces(whole: Path) -> None:
    report = load_report(whole)
    routing = report.data["routing"]
    assert report.data["scores"]["test"]["router"]["score"] is not None
    share = f"{routing['agreeing']} of {routing['questions']} agree with the native type"
    text = markdown(report)
    test = {name: entry["score"] for name, entry in report.data["scores"]["test"].items()}
    gains = report.data["carry_over"]["router"]
    assert gains["over_start"]["mean"] == pytest.approx(test["router"] - test["n00"])
    assert gains["over_best"]["mean"] == pytest.approx(test["router"] - test[report.best])
    assert gains["over_best"]["low"] <= gains["over_best"]["mean"] <= gains["over_best"]["high"]
    assert f"Question by question it scores {gains['over_start']['mean']:+.3f} [" in text
    assert "## The router on the test questions" in text and share in text
    console = make_console()
    with console.capture() as shown:
        console.print(render(report, 140, short=True))
    assert "Where the router sent the test questions" in shown.get() and share in shown.get().replace("\n", " ")
    assert report.data["calls"]["stages"]["route"]["made"]["calls"] == len(set(routing["predicted"]))
    assert json.loads(json.dumps(report.data))["routing"] == routing


def test_other_strategies_have_no_router(tmp_path: Path, make_job: Make) -> None:
    run = start_run(tmp_path / "run", make_job(evolution={"T1": 0, "T2": 0, "T3": 0}), SilentObserver())
    report = load_report(run)
    assert report.data["routing"] is None and "route" not in report.data["calls"]["stages"]
    assert "The router on the test questions" not in markdown(report)
    assert "router" not in report.data["scores"]["test"] and "router" not in report.data["carry_over"]


def test_a_run_without_test_questions_ends_without_measuring(tmp_path: Path, make_job: Make) -> None:
    job = job_of(make_job)
    parts = {part: ids for part, ids in (job.parts or {}).items() if part != "test"}
    run = start_run(
        tmp_path / "run",
        EvolutionJob(job.data, parts, job.job, job.evolution, job.start),
        SilentObserver(),
    )
    assert not any(e["event"] == "evaluated" and e["purpose"] == "test" for e in journal(run))
    assert resume_run(run, SilentObserver()) == run


class Stops(SilentObserver):
    """Raises at the beginning of a step of that name."""

    def __init__(self, step: str) -> None:
        self.step = step

    def on_step(self, iteration: int, iterations: int, step: str) -> None:
        if step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize("step", ["diagnose", "test n00", "test router"])
def test_an_interrupted_run_goes_on_to_the_same_end(whole: Path, tmp_path: Path, make_job: Make, step: str) -> None:
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        start_run(run, job_of(make_job), Stops(step))
    resume_run(run, SilentObserver())
    assert journal(run) == journal(whole)
    assert sorted(paid(run)) == sorted(paid(whole))
    before = (run / "journal.jsonl").read_bytes()
    resume_run(run, SilentObserver())
    assert (run / "journal.jsonl").read_bytes() == before


@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_a_model_that_fails_while_it_classifies_is_not_paid_twice(
    whole: Path, tmp_path: Path, make_job: Make, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    real = OfflineChat.complete
    seen = {"routing": False, "calls": 0}

    def fail(self: OfflineChat, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        seen["routing"] = seen["routing"] or any(request.purpose == "route" for request in requests)
        if seen["routing"]:
            seen["calls"] += 1
            if seen["calls"] == fails_at + 1:
                raise RoleError("the server is away")
        return real(self, requests)

    run = tmp_path / "run"
    monkeypatch.setattr(OfflineChat, "batch", 3)
    monkeypatch.setattr(OfflineChat, "complete", fail)
    with pytest.raises(RoleError, match="away"):
        start_run(run, job_of(make_job, workers=1), SilentObserver())
    monkeypatch.setattr(OfflineChat, "complete", real)
    resume_run(run, SilentObserver())
    assert journal(run) == journal(whole)
    assert sorted(paid(run)) == sorted(paid(whole))


def test_invalid_predictions_are_asked_again_counted_and_go_to_the_best_program(
    scripted_server: ScriptedServer, make_job: Make, tmp_path: Path
) -> None:
    routing = "Several memories hold the same conversations"
    scripted_server.play({"contains": routing, "do": {"text": '{"capability": "whatever"}'}})
    model = {"models": {"task": {"model": scripted_server.model(), "retries": 1}}}
    evolution = {"strategy": "router", "T1": 1, "T2": 1, "T3": 0}
    run = start_run(tmp_path / "run", make_job(model, evolution), SilentObserver())
    found = routed(run)["details"]["routing"]
    final = load_report(run).final
    assert set(found["predicted"].values()) == {None}
    assert found["sent"] == {final: found["questions"]}
    [row] = [row for row in found["by_capability"] if row["questions"]]
    assert row["capability"] is None
    asked = [e for e in scripted_server.requests() if routing in json.dumps(e["body"])]
    assert len(asked) == 3 * found["questions"]
    report = load_report(run)
    counted = report.data["models"]["roles"]["chat"]
    assert counted["input_tokens"] == scripted_server.totals["prompt_tokens"]
    assert counted["output_tokens"] == scripted_server.totals["completion_tokens"]
    assert counted["stages"]["route"]["calls"] == len(asked)
    assert "no valid prediction" in markdown(report)
    same = [e for e in journal(run) if e["event"] == "evaluated" and e["program"] == final and e["purpose"] == "test"]
    assert routed(run)["scores"] == same[0]["scores"]


def test_a_finished_run_is_read_again_with_its_router(whole: Path) -> None:
    archive = Archive(read_run(whole).events)
    assert archive.finished is not None and set(archive.finished.routes) == {str(c) for c in CAPABILITIES}
    assert "router" not in archive.programs
