"""The tables of several runs that differ in their seed alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prismem_core.runs.report.tables import NO_INTERVALS, Table, estimate, number

# A bootstrap knows no more values than there are: below this number its intervals cover less often than they say.
FEW = 8

_PARTS = {"train": "training", "valid": "validation", "test": "test"}


def seed_tables(report: Mapping[str, Any]) -> list[Table]:
    """A row a run, the means over runs with their spread by part, and the gains question by question."""
    runs = report["runs"]
    columns = ("run", "seed", "result", *_PARTS, "start on test", "left out of test")
    rows = [
        (
            row["run"],
            str(row["seed"]),
            row["result"],
            *(number(row["scores"][part]["result"]) for part in _PARTS),
            number(row["scores"]["test"]["start"]),
            str(sum((row["left_out"].get("result") or {}).values())),
        )
        for row in runs
    ]
    tables = [Table(f"{len(runs)} runs that differ in their seed", columns, tuple(rows), "Means over questions.")]
    note = "Standard deviation: of the sample (n - 1)."
    note += " In brackets: 95% intervals, a bootstrap over runs" if report["intervals"] else f" {NO_INTERVALS}"
    if report["intervals"]:
        note += f"; of {len(runs)} runs alone they are too narrow." if len(runs) < FEW else "."
    for part, words in _PARTS.items():
        own = [measure for measure in report["measures"] if measure["part"] == part]
        if own:
            spread = tuple((m["measure"], estimate(m["interval"], _signed(m["measure"])), number(m["sd"])) for m in own)
            title = f"Over runs: {words} questions"
            tables.append(
                Table(title, ("measure", "mean", "standard deviation"), spread, note if part == "test" else "")
            )
    gains = tuple(
        (f"gain over {name.removeprefix('over_')}", *(estimate(found[part], True) for part in _PARTS))
        for name, found in report["by_question"].items()
    )
    words = "Each question's gain is averaged over the runs"
    words += "; in brackets: 95% intervals over questions." if report["intervals"] else "."
    return [*tables, Table("Gain of the results, question by question", ("gain", *_PARTS), gains, words)]


def _signed(measure: str) -> bool:
    return "gain" in measure or "gap" in measure
