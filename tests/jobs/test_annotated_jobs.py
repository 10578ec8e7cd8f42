"""Runs whose questions a model labels: once, before the evolution, never the test set, and the same when resumed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.scripted_server.fixture import ScriptedServer, scripted_server, server_process
from typer.testing import CliRunner

from prismem_core.cli.main import app
from prismem_core.errors import BudgetError, ProgramError, RoleError, RunError
from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.jobs.data_annotation import annotate_data
from prismem_core.jobs.evolution_job import EvolutionJob, resume_run, start_run
from prismem_core.jobs.reports import load_report
from prismem_core.runs.report.markdown import markdown
from prismem_core.tasks.datasets import load
from prismem_core.tasks.task import Split, Task

__all__ = ["scripted_server", "server_process"]

Make = Callable[..., EvolutionJob]
ASKS = "Label the question with the one capability"
TEMPORAL = {"text": '{"primary": "temporal", "secondary": ["multi_session_synthesis", "factual_retrieval"]}'}
BAD = {"text": '{"primary": "temporal", "secondary": ["temporal"]}'}
DEEP = {"text": "[" * 2000}


def journal(run: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (run / "journal.jsonl").read_bytes().splitlines()]
    return [{key: value for key, value in event.items() if key != "time"} for event in events]


def ledger(run: Path, role: str = "annotator") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "calls.jsonl").read_bytes().splitlines()]
    return [line for line in lines if line["role"] == role]


def job_of(make_job: Make, server: ScriptedServer, **job: object) -> EvolutionJob:
    given = {"annotator": server.model("labels"), "models": {"annotator": {"retries": 0}}, **job}
    return make_job(given, {"T1": 1, "T2": 1, "T3": 0})


def parts_of(job: EvolutionJob) -> tuple[dict[str, Task], Split]:
    dataset = load(job.data)
    split = dataset.split(job.parts)
    return {task.id: task for task in dataset.tasks}, split


def asked(server: ScriptedServer) -> list[str]:
    return [text for e in server.requests() if ASKS in (text := e["body"]["messages"][-1]["content"])]


def test_training_and_validation_questions_are_labelled_once_and_the_test_set_never(
    scripted_server: ScriptedServer, make_job: Make, tmp_path: Path
) -> None:
    job = job_of(make_job, scripted_server)
    tasks, split = parts_of(job)
    first = tasks[split.train[0]]
    scripted_server.play(
        {"contains": f"\n{first.question}\n", "do": BAD, "times": 1},
        {"contains": ASKS, "do": TEMPORAL},
    )
    run = start_run(tmp_path / "run", job, SilentObserver())
    events = journal(run)
    assert [event["event"] for event in events[:2]] == ["tasks_annotated", "run_started"]
    labelled = [*split.train, *split.valid]
    labels = ["temporal", ["factual_retrieval", "multi_session_synthesis"]]
    assert events[0]["labels"] == [[i, *labels] for i in labelled] == events[1]["train"] + events[1]["valid"]
    assert events[0]["fallen_back"] == {}
    assert events[0]["agreeing"] == sum(str(tasks[i].primary) == "temporal" for i in labelled)
    prompts = asked(scripted_server)
    assert len(prompts) == len(labelled) + 1, "one was asked again"
    for task in (tasks[i] for i in split.test):
        assert not any(f"\n{task.question}\n" in prompt for prompt in prompts)
    lines = ledger(run)
    assert {line["stage"] for line in lines} <= {"annotate", "probe"}
    assert {line.get("purpose") for line in lines if line["stage"] == "annotate"} == {"annotation"}
    report = load_report(run)
    counted = report.data["models"]["roles"]["annotator"]
    assert counted["input_tokens"] == scripted_server.totals["prompt_tokens"]
    assert counted["output_tokens"] == scripted_server.totals["completion_tokens"]
    assert report.data["roles"]["annotator"].startswith("openai:labels@")
    assert report.data["annotation"]["primary"]["temporal"] == len(labelled)
    assert "## Labels of the training and validation questions" in markdown(report)
    assert set(report.data["scores"]["valid"]["n00"]["capabilities"]) == {"temporal"}
    native = {str(tasks[i].primary) for i in split.test}
    assert set(report.data["scores"]["test"]["n00"]["capabilities"]) == native


def test_a_question_without_a_valid_annotation_keeps_its_native_type(
    scripted_server: ScriptedServer, make_job: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = job_of(make_job, scripted_server, annotation_retries=1)
    tasks, split = parts_of(job)
    bad = tasks[split.train[1]]
    same = [i for i in (*split.train, *split.valid) if tasks[i].question == bad.question]
    scripted_server.play(
        {"contains": f"\n{bad.question}\n", "do": BAD},
        {"contains": ASKS, "do": TEMPORAL},
    )
    with caplog.at_level("WARNING", logger="prismem_core"):
        run = start_run(tmp_path / "run", job, SilentObserver())
    event = journal(run)[0]
    assert event["fallen_back"] == dict.fromkeys(same, '"secondary" repeats the primary')
    for task_id, primary, secondary in event["labels"]:
        if task_id in same:
            assert (primary, secondary) == (str(tasks[task_id].primary), [])
        else:
            assert primary == "temporal" and secondary
    assert len([text for text in asked(scripted_server) if f"\n{bad.question}\n" in text]) == 2 * len(same)
    assert sum("no valid annotation of" in record.getMessage() for record in caplog.records) == 1
    assert f"{len(same)} had no valid annotation" in markdown(load_report(run))


def test_a_reply_of_a_thousand_brackets_is_asked_again(
    scripted_server: ScriptedServer, make_job: Make, tmp_path: Path
) -> None:
    job = job_of(make_job, scripted_server, annotation_retries=1)
    tasks, split = parts_of(job)
    first = tasks[split.train[0]]
    scripted_server.play(
        {"contains": f"\n{first.question}\n", "do": DEEP, "times": 1},
        {"contains": ASKS, "do": TEMPORAL},
    )
    run = start_run(tmp_path / "run", job, SilentObserver())
    assert journal(run)[0]["fallen_back"] == {}
    assert len(asked(scripted_server)) == len(split.train) + len(split.valid) + 1


class Stops(SilentObserver):
    """Raises at the beginning of a step of that name."""

    def __init__(self, step: str) -> None:
        self.step = step

    def on_step(self, iteration: int, iterations: int, step: str) -> None:
        if step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize("step", ["annotate", "validate", "diagnose", "test n00"])
def test_a_resumed_run_keeps_its_labels_whatever_the_model_would_say_now(
    scripted_server: ScriptedServer, make_job: Make, tmp_path: Path, step: str
) -> None:
    job = job_of(make_job, scripted_server)
    scripted_server.play({"contains": ASKS, "do": TEMPORAL})
    whole = start_run(tmp_path / "whole", job, SilentObserver())
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        start_run(run, job, Stops(step))
    scripted_server.clear()
    if step != "annotate":
        scripted_server.play({"contains": ASKS, "do": {"text": '{"primary": "adversarial", "secondary": []}'}})
    resume_run(run, SilentObserver())
    assert journal(run) == journal(whole)
    assert bool(asked(scripted_server)) == (step == "annotate")
    assert len(ledger(run)) == len(ledger(whole))


def test_an_outage_or_a_spent_budget_while_labelling_pauses_and_pays_nothing_twice(
    scripted_server: ScriptedServer, make_job: Make, tmp_path: Path
) -> None:
    _, split = parts_of(make_job())
    count = len((*split.train, *split.valid))
    fails = {"contains": ASKS, "skip": 5, "do": {"status": 400, "error": "out of order"}}
    scripted_server.play(fails, {"contains": ASKS, "do": TEMPORAL})
    models = {"annotator": {"retries": 0, "concurrency": 1}}
    run = tmp_path / "run"
    with pytest.raises(RoleError, match="answered 400"):
        start_run(run, job_of(make_job, scripted_server, models=models), SilentObserver())
    assert journal(run) == []
    paid = len([line for line in ledger(run) if line["stage"] == "annotate"])
    assert paid == 5
    scripted_server.play({"contains": ASKS, "do": TEMPORAL})
    scripted_server.clear()
    resume_run(run, SilentObserver())
    assert len(asked(scripted_server)) == count - paid
    assert load_report(run).data["finished"]

    capped = {"annotator": {"retries": 0, "concurrency": 1, "budget_calls": 4}}
    stopped = tmp_path / "capped"
    with pytest.raises(BudgetError, match="calls for the annotator model is spent"):
        start_run(stopped, job_of(make_job, scripted_server, models=capped), SilentObserver())
    with pytest.raises(BudgetError):
        resume_run(stopped, SilentObserver())
    assert journal(stopped) == []


def test_runs_that_share_a_cache_share_the_labels(
    scripted_server: ScriptedServer, make_job: Make, tmp_path: Path
) -> None:
    scripted_server.play({"contains": ASKS, "do": TEMPORAL})
    job = replace(job_of(make_job, scripted_server), cache=str(tmp_path / "cache"))
    rows, about = annotate_data(job.data, job.parts, job.job, tmp_path / "cache")
    _, split = parts_of(job)
    assert [row["task"] for row in rows] == [*split.train, *split.valid]
    assert about["annotator"].startswith("openai:labels@") and about["calls"] >= len(rows)
    scripted_server.clear()
    run = start_run(tmp_path / "run", job, SilentObserver())
    assert asked(scripted_server) == []
    labels = journal(run)[0]["labels"]
    assert labels == [[row["task"], row["primary"], row["secondary"]] for row in rows]


def test_an_invalid_start_is_refused_before_a_question_is_labelled(
    scripted_server: ScriptedServer, make_job: Make, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    job = replace(job_of(make_job, scripted_server), start="no program\n")
    with pytest.raises(ProgramError, match="the seed program is invalid"):
        start_run(run, job, SilentObserver())
    assert asked(scripted_server) == [] and not run.exists()


def test_a_run_is_not_resumed_with_another_annotator(
    scripted_server: ScriptedServer, make_job: Make, tmp_path: Path
) -> None:
    scripted_server.play({"contains": ASKS, "do": TEMPORAL})
    run = start_run(tmp_path / "run", job_of(make_job, scripted_server), SilentObserver())
    manifest = json.loads((run / "run.json").read_text(encoding="utf-8"))
    manifest["extra"]["job"]["annotator"] = scripted_server.model("other")
    (run / "run.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(RunError, match="annotator role"):
        resume_run(run, SilentObserver())


def test_without_an_annotator_rules_label_and_no_model_is_asked(make_job: Make, tmp_path: Path) -> None:
    run = start_run(tmp_path / "run", make_job(evolution={"T1": 0, "T2": 0, "T3": 0}), SilentObserver())
    assert journal(run)[0]["event"] == "run_started"
    report = load_report(run)
    assert report.data["annotation"] is None and "annotator" not in report.data["roles"]
    assert "Labels of the training" not in markdown(report)


def test_the_command_writes_labels_as_json_lines(
    scripted_server: ScriptedServer, small_data: Path, small_parts: dict[str, Any], tmp_path: Path
) -> None:
    scripted_server.play({"contains": ASKS, "do": TEMPORAL})
    split = tmp_path / "split.json"
    split.write_text(json.dumps({part: list(ids) for part, ids in small_parts.items()}), encoding="utf-8")
    out = tmp_path / "labels.jsonl"
    words = ["data", "annotate", "--data", str(small_data), "--split", str(split), "--out", str(out)]
    shown = CliRunner().invoke(app, [*words, "--annotator", scripted_server.model("labels")])
    assert shown.exit_code == 0, shown.output
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert {row["part"] for row in rows} == {"train", "valid"}
    assert {row["primary"] for row in rows} == {"temporal"}
    assert f"{len(rows)} questions labelled by openai:labels@" in shown.output
    ruled = CliRunner().invoke(app, words)
    assert ruled.exit_code == 0, ruled.output
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert all(row["primary"] == row["native"] for row in rows)
    bad = CliRunner().invoke(app, [*words[:-1], str(tmp_path / "no" / "x.jsonl")])
    assert bad.exit_code != 0 and "cannot write" in str(bad.exception or bad.output)
