"""The tables of a report, once for both faces: titles, columns and rows of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prismem_core.errors import FAILURE_KINDS
from prismem_core.runs.report.contents import Contents
from prismem_core.tasks.capability import CAPABILITIES, Capability

_TITLES = {
    "train": "training questions (they drove selection)",
    "valid": "validation questions (they chose the result)",
    "test": "test questions (they decided nothing)",
}


_STAGES = {"cold_start": "I", "refinement": "II", "integration": "III"}


@dataclass(frozen=True)
class Table:
    """A titled table; the first column is text, the others are numbers as text. A `note` says how they are counted."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def number(value: float | None, signed: bool = False) -> str:
    """Three decimals, a dash for no value."""
    if value is None:
        return "-"
    return f"{value:+.3f}" if signed else f"{value:.3f}"


def score_tables(report: Contents) -> list[Table]:
    """One table a split: capabilities, start, result and gain of the score that drove selection."""
    tables = []
    for part, programs in report.data["scores"].items():
        start, end = programs.get("n00"), programs.get(report.best)
        if start is None or end is None:
            continue
        rows: list[tuple[str, ...]] = []
        for capability in CAPABILITIES:
            before, after = _score(start, capability), _score(end, capability)
            if before is None or after is None:
                continue
            count = start["capabilities"][str(capability)]["questions"]
            rows.append((str(capability), str(count), number(before), number(after), number(after - before, True)))
        rows.append(_row("mean over capabilities", start, end, "overall"))
        rows.append(_row("mean over questions", start, end, "score"))
        columns = ("capability", "questions", "n00 (start)", report.best, "gain")
        note = left_out_note({"n00": start, report.best: end})
        tables.append(Table(f"Scores on {_TITLES[part]}", columns, tuple(rows), note))
    return [*tables, *(table for table in (_official_table(report), held_out_table(report)) if table is not None)]


def _score(summary: Mapping[str, Any], capability: Capability) -> float | None:
    entry = summary["capabilities"].get(str(capability))
    score: float | None = entry["score"] if entry else None
    return score


def _row(name: str, start: Mapping[str, Any], end: Mapping[str, Any], key: str) -> tuple[str, ...]:
    before, after = start[key], end[key]
    return (name, str(start["questions"]), number(before), number(after), number(after - before, True))


def left_out_note(summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """Which of the four kinds of failure kept questions out of the means, and over how many these run; "" for none."""
    said = []
    for name, summary in summaries.items():
        counts = summary.get("left_out", {})
        kinds = [f"{counts[kind]} {kind} ({words})" for kind, words in FAILURE_KINDS.items() if counts.get(kind)]
        if kinds:
            said.append(f"{name}: {', '.join(kinds)}; {summary['scored']} of {summary['questions']} questions scored")
    return f"Left out of the means, {'. '.join(said)}." if said else ""


def held_out_table(report: Contents) -> Table | None:
    """Training, validation and test means side by side, where the test questions were measured."""
    measured = [row for row in report.data["held_out"] if row["gap"] is not None]
    if not measured:
        return None
    rows = []
    for row in measured:
        program = row["program"]
        role = " and ".join(word for word, own in (("start", "n00"), ("result", report.best)) if program == own)
        means = (number(row[part]) for part in ("train", "valid", "test"))
        rows.append((f"{program} ({role})", *means, number(row["gap"], True)))
    return Table(
        "What carries over",
        ("program", "train", "valid", "test", "train - test"),
        tuple(rows),
        "Mean over questions. No test question drove selection: answers that a program has stored show as a gap.",
    )


def _official_table(report: Contents) -> Table | None:
    """Official metrics, recall and length on the test questions, where they were measured."""
    programs = report.data["scores"]["test"]
    start, end = programs.get("n00"), programs.get(report.best)
    if start is None or end is None:
        return None
    measures: list[tuple[str, float | None, float | None]] = [
        ("official metric, mean over questions", start["official"], end["official"]),
        ("official metric, mean over capabilities", start["official_overall"], end["official_overall"]),
        ("official metric, answerable questions", start["official_answerable"], end["official_answerable"]),
        ("answerable questions declined", start["false_abstentions"], end["false_abstentions"]),
        ("evidence recall", start["recall"], end["recall"]),
    ]
    for name in start["official_parts"]:
        measures.append((f"official part: {name}", start["official_parts"][name], end["official_parts"].get(name)))
    for kind, entry in start["native_types"].items():
        after = end["native_types"].get(kind, {})
        measures.append((f"official metric, {kind}", entry["official"], after.get("official")))
    measures.append(("retrieved characters a question", start["retrieved_chars"], end["retrieved_chars"]))
    rows = tuple(
        (name, number(a), number(b), "-" if a is None or b is None else number(b - a, True)) for name, a, b in measures
    )
    return Table(
        "Official metrics and recall on the test questions", ("measure", "n00 (start)", report.best, "gain"), rows
    )


def model_table(usage: Mapping[str, Any]) -> Table | None:
    """Calls, tokens and cost of each model by stage; None where none was called."""
    if not usage.get("roles"):
        return None
    rows = []
    for role, entry in usage["roles"].items():
        for stage, counts in entry["stages"].items():
            rows.append((f"{role}: {stage}", *_counts(counts), ""))
        if len(entry["stages"]) > 1 or entry["cost"]:
            rows.append((role, *_counts(entry), f"{entry['cost']:,.4f}" if entry["cost"] else ""))
    total = usage["total"]
    rows.append(("all models", *_counts(total), f"{total['cost']:,.4f}" if total["cost"] else ""))
    note = "Tokens as the models counted them; a call of an embedder is a text. Replies of the cache cost nothing."
    return Table("What the models were asked", ("model", "calls", "tokens in", "tokens out", "cost"), tuple(rows), note)


def _counts(counts: Mapping[str, Any]) -> tuple[str, str, str]:
    return f"{counts['calls']:,}", f"{counts['input_tokens']:,}", f"{counts['output_tokens']:,}"


def call_table(report: Contents) -> Table:
    """Calls and tokens made, and what `reuse="off"` would have cost."""
    calls = report.data["calls"]
    rows = []
    for stage, entry in [*calls["stages"].items(), ("total", calls["total"])]:
        without, made = entry["without_reuse"], entry["made"]
        share = 1 - made["calls"] / without["calls"] if without["calls"] else 0.0
        rows.append(
            (
                stage,
                f"{without['calls']:,}",
                f"{made['calls']:,}",
                f"{share:.1%}",
                f"{_tokens(without):,}",
                f"{_tokens(made):,}",
                f"{_tokens(entry['saved']):,}",
            )
        )
    columns = (
        "stage",
        "calls without reuse",
        "calls made",
        "saved",
        "tokens without reuse",
        "tokens made",
        "tokens saved",
    )
    return Table('Calls and tokens against reuse="off"', columns, tuple(rows))


REUSE_NOTE = (
    "Task-model calls and tokens (extract, plan, answer) of the evaluations; diagnostics and embeddings are left out. "
    "off: what the journal says every program would cost by itself. paper: what Table 6 leaves of that, computed from "
    "the programs and the questions they were evaluated on; where two evaluations overlap in part of their questions "
    "it may be too high. made: the ledger; a question asked twice in one evaluation is paid for once."
)


def reuse_table(report: Contents) -> Table | None:
    """What each step of the run would cost without reuse and with that of Table 6, and what it did cost."""
    reuse = report.data["reuse"]
    if not reuse["steps"]:
        return None
    mode = report.data["job"]["job"].get("reuse", "content")
    rows = []
    for row in [*reuse["steps"], {"step": "total", **reuse["total"]}]:
        off, paper, made = row["off"], row["paper"], row["made"]
        rows.append(
            (
                row["step"],
                *(_count(usage, "calls") for usage in (off, paper, made)),
                *(_share(usage, off) for usage in (paper, made)),
                *("-" if usage is None else f"{_tokens(usage):,}" for usage in (off, paper, made)),
            )
        )
    own = f"made ({mode})"
    columns = (
        "iteration",
        "calls: off",
        "paper",
        own,
        "paper saves",
        "made saves",
        "tokens: off",
        "tokens: paper",
        f"tokens: {own}",
    )
    return Table("Reuse by iteration", columns, tuple(rows), REUSE_NOTE)


def _count(usage: Mapping[str, int] | None, name: str) -> str:
    return "-" if usage is None else f"{usage[name]:,}"


def _share(usage: Mapping[str, int] | None, whole: Mapping[str, int]) -> str:
    return "-" if usage is None or not whole["calls"] else f"{1 - usage['calls'] / whole['calls']:.1%}"


def launch_table(report: Contents) -> Table | None:
    """What answered the searches of collections; how many went together depends on timing, what they found does not."""
    launches = report.data["launches"]
    if launches is None:
        return None
    rows = [
        ("searches of collections", f"{launches['calls']:,}"),
        ("batches they went in", f"{launches['batches']:,}"),
        ("searches that shared a batch", f"{launches['merged']:,}"),
        *((f"launches of {kind}", f"{count:,}") for kind, count in launches["launches"].items()),
    ]
    return Table("Launches of the engine", ("what", "number"), tuple(rows))


def _tokens(counts: Mapping[str, int]) -> int:
    return counts["input_tokens"] + counts["output_tokens"]


def lineage_table(report: Contents) -> Table:
    """Every program that was measured, with what it changed and what became of it."""
    specialists: dict[str, list[str]] = {}
    for capability, program in report.data["specialists"].items():
        specialists.setdefault(program, []).append(Capability(capability).letter)
    targets = {row["iteration"]: row for row in report.data["iterations"]}
    rows = []
    for entry in report.data["lineage"]:
        iteration = targets.get(entry["iteration"], {})
        target = iteration.get("target")
        marks = "".join(specialists.get(entry["program"], []))
        rows.append(
            (
                entry["program"],
                entry["parent"] or "-",
                _STAGES.get(str(iteration.get("stage")), "start"),
                Capability(target).letter if target and entry["parent"] else "-",
                number(report.data["scores"]["valid"].get(entry["program"], {}).get("score")),
                entry["outcome"],
                marks + (" final" if entry["program"] == report.final else ""),
                entry["summary"],
            )
        )
    columns = ("program", "parent", "stage", "target", "valid", "outcome", "specialist of", "change")
    return Table("Lineage", columns, tuple(rows))


def all_tables(report: Contents) -> Sequence[Table]:
    """Every table of the report in reading order."""
    found = [call_table(report), model_table(report.data["models"]), reuse_table(report), launch_table(report)]
    return [*score_tables(report), *(table for table in found if table is not None), lineage_table(report)]
