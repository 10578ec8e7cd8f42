"""What the modes of reuse pay for, told from one run, against runs in those modes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.jobs.evolution_job import LEDGER, EvolutionJob, start_run
from prismem_core.jobs.reports import load_report, write_markdown
from prismem_core.jobs.reuse_account import reuse_account
from prismem_core.program import library
from prismem_core.roles.ledger import Ledger
from prismem_core.runs.events import Evaluated, Event, ProgramAdded
from prismem_core.runs.run import Manifest, RunRecord, read_run

MODES = ("content", "paper", "off")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, make_job: Callable[..., EvolutionJob]) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("reuse")
    return {mode: start_run(root / mode, make_job({"reuse": mode}), SilentObserver()) for mode in MODES}


def account(run: Path) -> list[dict[str, Any]]:
    return reuse_account(read_run(run), Ledger(run / LEDGER, read_only=True))


def test_paper_and_off_are_told_from_a_run_with_content_as_runs_in_those_modes_pay(runs: dict[str, Path]) -> None:
    found = {mode: account(run) for mode, run in runs.items()}
    told = [[(row["step"], row["off"], row["paper"]) for row in rows] for rows in found.values()]
    assert told[0] == told[1] == told[2]
    steps = [row["step"] for row in found["content"]]
    assert (steps[0], steps[-1]) == ("0", "test")
    for mode in ("off", "paper"):
        for row in found[mode]:
            assert row["made"] == row[mode], (mode, row["step"])


def test_content_pays_for_no_more_than_paper_and_paper_than_off(runs: dict[str, Path]) -> None:
    rows = account(runs["content"])
    for row in rows:
        for what in ("calls", "input_tokens", "output_tokens"):
            assert row["made"][what] <= row["paper"][what] <= row["off"][what], row["step"]
    sums = [sum(row[mode]["calls"] for row in rows) for mode in ("made", "paper", "off")]
    assert sums[0] < sums[1] < sums[2]


def test_the_report_prints_all_three(runs: dict[str, Path]) -> None:
    report = load_report(runs["content"])
    total = report.data["reuse"]["total"]
    text = write_markdown(runs["content"], report).read_text(encoding="utf-8")
    (row,) = [line for line in text.split("## Reuse by iteration")[1].splitlines() if line.startswith("| total |")]
    for mode in ("off", "paper", "made"):
        assert f" {total[mode]['calls']:,} " in row


def usage(calls: int) -> dict[str, Any]:
    none = {"calls": 0, "input_tokens": 0, "output_tokens": 0}
    one = {"calls": calls, "input_tokens": 10 * calls, "output_tokens": calls}
    stages = {"extract": {**none, "calls": 2}, "index": none, "plan": one, "retrieve": none, "answer": one}
    return {"usage": {"stages": stages, "embedded_texts": 0, "embedded_tokens": 0}}


def record(*events: Event) -> RunRecord:
    return RunRecord(Path("run"), Manifest("0", {}, {}, {}), events)


def added(program: str, source: str) -> ProgramAdded:
    return ProgramAdded(0, program, None, source, "", "", "", [])


def evaluated(iteration: int, program: str, purpose: str, *tasks: str) -> Evaluated:
    return Evaluated(iteration, program, purpose, dict.fromkeys(tasks, 0.5), None, usage(len(tasks)))


def test_questions_that_were_asked_before_are_taken_over_whatever_set_they_came_in() -> None:
    seed = library.source("seed")
    answering = seed.replace("provide a short answer", "answer in a word")
    events = [
        added("n00", seed),
        added("n01", answering),
        evaluated(0, "n00", "target", "a"),
        evaluated(1, "n00", "target", "b", "c"),
        evaluated(2, "n00", "full", "a", "b", "c", "d"),
        evaluated(3, "n01", "target", "c"),
        evaluated(4, "n01", "full", "a", "b", "c", "d"),
    ]
    rows = {row["step"]: row for row in reuse_account(record(*events), None)}
    assert [rows[step]["paper"]["calls"] for step in "01234"] == [4, 6, 2, 1, 3]
    # The journal does not say whether a, b and c share a history: extraction counts until one set holds them all.
    assert [rows[step]["off"]["calls"] for step in "01234"] == [4, 6, 2, 4, 6]
    assert all(row["made"] is None for row in rows.values())


def test_a_ledger_without_iterations_leaves_what_was_made_open(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / LEDGER)
    ledger.record("chat", "plan", "k", 1, 1)
    events = [added("n00", library.source("seed")), evaluated(0, "n00", "full", "a")]
    (row,) = reuse_account(record(*events), ledger)
    ledger.close()
    assert row["made"] is None
    assert row["off"]["calls"] == 4
