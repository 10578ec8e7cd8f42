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


NO_INTERVALS = "Intervals need the extra statistics: pip install 'prismem-core[statistics]'."

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
    """One table a split: capabilities, start, base, result and gain of the score that drove selection."""
    tables = []
    for part, programs in report.data["scores"].items():
        shown = _shown(report, programs)
        if len(shown) < len({"n00", report.best}):
            continue
        rows = [
            _row(str(c), [entry.get("capabilities", {}).get(str(c)) for entry in shown.values()], "score")
            for c in CAPABILITIES
            if any(str(c) in entry["capabilities"] for entry in shown.values())
        ]
        rows.append(_row("mean over capabilities", list(shown.values()), "overall"))
        rows.append(_row("mean over questions", list(shown.values()), "score"))
        columns = ("capability", "questions", *(_with_role(report, program) for program in shown), "gain")
        broken = report.data["test_failures"].items() if part == "test" else ()
        notes = [left_out_note(shown), *(f"{program} broke on {f['message']}." for program, f in broken)]
        tables.append(Table(f"Scores on {_TITLES[part]}", columns, tuple(rows), " ".join(filter(None, notes))))
    return [*tables, *(table for table in (_official_table(report), carry_over_table(report)) if table is not None)]


def _shown(report: Contents, programs: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Start, base before integration and result, as far as they were measured, each once."""
    order = dict.fromkeys(("n00", report.data["base"], report.best))
    return {program: programs[program] for program in order if program in programs}


def _with_role(report: Contents, program: str) -> str:
    roles = {report.data["base"]: "base", report.best: "result" if report.final else "best so far", "n00": "start"}
    return f"{program} ({roles[program]})"


def _row(name: str, entries: Sequence[Mapping[str, Any] | None], key: str) -> tuple[str, ...]:
    """Over how many questions, the means of the programs and the gain of the last over the first."""
    means = [None if entry is None else entry[key] for entry in entries]
    asked = next(entry["questions"] for entry in entries if entry is not None)
    scored = ["0" if entry is None else str(entry.get("scored", entry["questions"])) for entry in entries]
    count = str(asked) if set(scored) == {str(asked)} else f"{' / '.join(scored)} of {asked}"
    first, last = means[0], means[-1]
    gain = None if first is None or last is None else last - first
    return (name, count, *map(number, means), number(gain, True))


def left_out_note(summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """Which of the four kinds of failure kept questions out of the means, and over how many these run; "" for none."""
    said = []
    for name, summary in summaries.items():
        counts = summary.get("left_out", {})
        kinds = [f"{counts[kind]} {kind} ({words})" for kind, words in FAILURE_KINDS.items() if counts.get(kind)]
        if kinds:
            said.append(f"{name}: {', '.join(kinds)}; {summary['scored']} of {summary['questions']} questions scored")
    return f"Left out of the means, {'. '.join(said)}." if said else ""


def carry_over_table(report: Contents) -> Table | None:
    """How much of what was gained on the questions that drove selection carries over to the test questions."""
    told = report.data["carry_over"]
    if told is None:
        return None
    last = "result" if report.final else "best so far"
    rows = []
    gaps = []
    for row in told["programs"]:
        roles = (last if role == "result" else role for role in row["roles"])
        name = f"{row['program']} ({' and '.join(roles)})"
        if any(row[part] is not None for part in _TITLES):
            rows.append((name, *(estimate(row[part]) for part in _TITLES)))
        if any(row["gaps"].values()):
            own = (estimate(row["gaps"][part], True) for part in ("train", "valid"))
            gaps.append((f"{row['program']}: above the test questions", *own, "-"))
    if not rows:
        return None
    gains = [
        (f"gain over {name.removeprefix('over_')}", *(estimate(found[part], True) for part in _TITLES))
        for name, found in told["gains"].items()
    ]
    if any(told["excess"].values()):
        excess = (estimate(told["excess"][part], True) for part in ("train", "valid"))
        gains.append(("gain over start: above the test questions", *excess, "-"))
    columns = ("program, or difference", *_TITLES)
    return Table("What carries over", columns, (*rows, *gaps, *gains), _carry_over_note(told))


def _carry_over_note(told: Mapping[str, Any]) -> str:
    words = (
        "Means over questions; gains are those of the result, question by question. No test question drove selection: "
    )
    words += "answers that a program has stored show as a gap."
    if told["intervals"]:
        words += (
            f" In brackets: {told['level']:.0%} intervals, a bootstrap over questions; `prismem report` of several "
        )
        words += "runs shows the spread over seeds."
    else:
        words += f" {NO_INTERVALS}"
    return " ".join([words, *told["findings"]])


def estimate(found: Mapping[str, Any] | None, signed: bool = False) -> str:
    """A mean with its interval in brackets, where it has one."""
    if found is None:
        return "-"
    text = number(found["mean"], signed)
    return text if found["low"] is None else f"{text} [{number(found['low'], signed)}, {number(found['high'], signed)}]"


def _official_table(report: Contents) -> Table | None:
    """Official metrics, recall and length on the test questions, where they were measured."""
    programs = report.data["scores"]["test"]
    shown = _shown(report, programs)
    if len(shown) < len({"n00", report.best}):
        return None
    entries = list(shown.values())
    measures: list[tuple[str, list[float | None]]] = [
        (name, [entry.get(key) for entry in entries])
        for name, key in (
            ("official metric, mean over questions", "official"),
            ("official metric, mean over capabilities", "official_overall"),
            ("official metric, answerable questions", "official_answerable"),
            ("answerable questions declined", "false_abstentions"),
            ("evidence recall", "recall"),
        )
    ]
    for name in entries[0]["official_parts"]:
        measures.append((f"official part: {name}", [entry["official_parts"].get(name) for entry in entries]))
    for kind in entries[0]["native_types"]:
        found = [entry["native_types"].get(kind, {}).get("official") for entry in entries]
        measures.append((f"official metric, {kind}", found))
    measures.append(("retrieved characters a question", [entry["retrieved_chars"] for entry in entries]))
    rows = []
    for name, means in measures:
        gain = None if means[0] is None or means[-1] is None else means[-1] - means[0]
        rows.append((name, *map(number, means), number(gain, True)))
    columns = ("measure", *(_with_role(report, program) for program in shown), "gain")
    return Table("Official metrics and recall on the test questions", columns, tuple(rows), _over_note(shown))


def _over_note(shown: Mapping[str, Mapping[str, Any]]) -> str:
    """Over how many questions the means run, where that is not told by their score."""
    said = []
    for program, entry in shown.items():
        over = entry.get("over", {})
        known = {"official metric": "official", "recall": "recall", "declined": "false_abstentions"}
        counts = [f"{name} {over[key]}" for name, key in known.items() if key in over]
        if counts:
            said.append(f"{program}: {', '.join(counts)} of {entry['questions']}")
    return f"Questions counted: {'; '.join(said)}." if said else ""


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
    note += _gpu_note(usage.get("time", {}).get("gpu_seconds", {}))
    return Table("What the models were asked", ("model", "calls", "tokens in", "tokens out", "cost"), tuple(rows), note)


def _gpu_note(gpu: Mapping[str, float]) -> str:
    """GPU seconds by role, where there were any; `engine` stands for searches."""
    if not gpu.get("total"):
        return ""
    by_role = ", ".join(f"{role} {seconds:,.1f}" for role, seconds in gpu.items() if role != "total")
    return f" GPU seconds: {gpu['total']:,.1f} ({by_role})."


def _counts(counts: Mapping[str, Any]) -> tuple[str, str, str]:
    return f"{counts['calls']:,}", f"{counts['input_tokens']:,}", f"{counts['output_tokens']:,}"


def call_table(report: Contents) -> Table:
    """Calls and tokens made, and what `reuse="off"` would have cost."""
    calls = report.data["calls"]
    rows = []
    for stage, entry in [*calls["stages"].items(), ("total", calls["total"])]:
        without, made = entry["without_reuse"], entry["made"]
        share = "-"
        if made is not None:
            share = f"{1 - made['calls'] / without['calls'] if without['calls'] else 0.0:.1%}"
        rows.append(
            (
                stage,
                f"{without['calls']:,}",
                _count(made, "calls"),
                share,
                *(_token_count(usage) for usage in (without, made, entry["saved"])),
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
    return Table('Calls and tokens against reuse="off"', columns, tuple(rows), calls["note"] or "")


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
                *(_token_count(usage) for usage in (off, paper, made)),
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


def _token_count(counts: Mapping[str, int] | None) -> str:
    return "-" if counts is None else f"{counts['input_tokens'] + counts['output_tokens']:,}"


_STOPPED: Mapping[str, str] = {
    "declined": "the designer had nothing left to propose",
    "no_cases": "no case was left to show",
    "reply": "the coder's reply could not be used",
    "patch": "the diff did not apply or changed nothing",
    "validation": "the program is not a valid one",
    "gate": "measured, and not better",
    **{str(kind): words for kind, words in FAILURE_KINDS.items()},
}


def rejection_table(report: Contents) -> Table | None:
    """What stopped the proposals that came to nothing; None where all came to something."""
    counts = report.data["rejections"]
    rows = [(kind, words, f"{counts[kind]:,}") for kind, words in _STOPPED.items() if counts.get(kind)]
    return Table("Proposals that came to nothing", ("by", "why", "number"), tuple(rows)) if rows else None


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
