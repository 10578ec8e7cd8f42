"""The tables of a run whose strategy routes questions: what the router scores, and where it sent what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prismem_core.runs.events import ROUTER
from prismem_core.runs.report.contents import Contents
from prismem_core.runs.report.tables import Table, estimate, left_out_note, number
from prismem_core.tasks.capability import CAPABILITIES

MODES: Mapping[str, str] = {
    "question": "the task model, from the question alone",
    "oracle": "the benchmark's own type of the question (no system could know it)",
}


def routing_tables(report: Contents) -> list[Table]:
    """Both tables; none where no questions were routed or the test questions were not measured yet."""
    routing = report.data["routing"]
    return [] if routing is None else [_scores(report), _destinations(routing)]


def _scores(report: Contents) -> Table:
    """Start, best program and router side by side on the test questions."""
    programs = report.data["scores"]["test"]
    shown = {"n00 (start)": programs.get("n00"), report.best: programs.get(report.best), ROUTER: programs[ROUTER]}
    rows = []
    for capability in CAPABILITIES:
        own = programs[ROUTER]["capabilities"].get(str(capability))
        if own is None:
            continue
        values = [
            None if summary is None else summary["capabilities"].get(str(capability), {}).get("score")
            for summary in shown.values()
        ]
        rows.append(_row(str(capability), own["questions"], values))
    for name, key in (
        ("mean over capabilities", "overall"),
        ("mean over questions", "score"),
        ("official metric, mean over questions", "official"),
        ("evidence recall", "recall"),
    ):
        values = [None if summary is None else summary[key] for summary in shown.values()]
        rows.append(_row(name, programs[ROUTER]["questions"], values))
    measured = {name: summary for name, summary in shown.items() if summary is not None}
    notes = [
        "Every question is answered by the specialist of its capability, with the memory that program built.",
        _gain_note(report),
        left_out_note(measured),
    ]
    columns = ("capability", "questions", *shown, f"{ROUTER} - {report.best}")
    return Table("The router on the test questions", columns, tuple(rows), " ".join(filter(None, notes)))


def _gain_note(report: Contents) -> str:
    """What routing gains, question by question; "" where that was not reckoned."""
    gains = (report.data["carry_over"] or {}).get("router")
    if gains is None:
        return ""
    over = f"{estimate(gains['over_start'], True)} over the start"
    return f"Question by question it scores {over} and {estimate(gains['over_best'], True)} over {report.best}."


def _row(name: str, questions: int, values: list[float | None]) -> tuple[str, ...]:
    single, routed = values[1], values[2]
    gain = None if single is None or routed is None else routed - single
    return (name, str(questions), *(number(value) for value in values), number(gain, True))


def _destinations(routing: Mapping[str, Any]) -> Table:
    """How many questions went where, and how many of them the native type would have sent there, too."""
    rows = [
        (
            row["capability"] or "no valid prediction",
            row["program"],
            str(row["questions"]),
            str(row["agreeing"]) if row["capability"] else "-",
            str(row["native"]) if row["capability"] else "-",
        )
        for row in routing["by_capability"]
        if row["questions"] or row["native"]
    ]
    agreeing, questions = routing["agreeing"], routing["questions"]
    share = f"{agreeing / questions:.1%}" if questions else "-"
    note = f"Capability by {MODES[routing['mode']]}. {agreeing} of {questions} agree with the native type ({share})."
    columns = ("predicted capability", "program", "questions", "of them native", "native questions")
    return Table("Where the router sent the test questions", columns, tuple(rows), note)
