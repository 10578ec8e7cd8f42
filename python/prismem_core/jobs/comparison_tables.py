"""A comparison as tables for the terminal and as Markdown: the form of the paper's Table 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prismem_core.runs.isolation import isolation_from_json
from prismem_core.runs.report.facts import NEVER_CHANGE_A_RESULT, code_words, given_values
from prismem_core.runs.report.markdown import markdown_table
from prismem_core.runs.report.tables import Table, left_out_note, model_table, number
from prismem_core.tasks.capability import CAPABILITIES
from prismem_core.tasks.datasets.summary import note_lines

_SCORES = (
    "`overall` is the mean over the capabilities before it, `questions` that over questions with its 95 % bootstrap "
    "interval, `recall` the share of the evidence that the retrieved text holds."
)
_NO_INTERVAL = " Intervals need the extra statistics: pip install 'prismem-core[statistics]'."
_COSTS = (
    "Tokens of the task model as if nothing had been stored: for a question those of planning, retrieving and "
    "answering, over all conversations those of building the memories. Seconds are of this run, in which stored "
    "replies cost none."
)


def comparison_tables(result: Mapping[str, Any]) -> list[Table]:
    """Scores by capability, what each system takes, and what was really asked of the models."""
    asked = model_table(result["models"])
    return [_scores(result), _costs(result), *([] if asked is None else [asked])]


def comparison_markdown(result: Mapping[str, Any]) -> str:
    """The whole comparison, with what a reader needs to repeat it; no clock time and no path."""
    made, settings = result["provenance"], result["settings"]
    facts = [
        ("data", f"{result['data']['name']} (SHA-256 {result['data']['digest']})"),
        *(("data", line) for line in note_lines(result["data"]["notes"])),
        ("questions", f"{result['questions']} ({result['part']}) of {result['conversations']} conversations"),
        ("category map", made["category_map"]),
        ("score", result["score"]),
        *([("judge prompts", f"version {made['judge_prompts']}")] if made["judge_prompts"] else []),
        *result["roles"].items(),
        ("job", given_values(settings, NEVER_CHANGE_A_RESULT | {"models", "score"})),
        ("prismem-core", code_words(made["version"], made)),
        ("isolation of programs", f"{isolation_from_json(result['isolation']).words()} (docs/security.md)"),
        *((name, f"{entry['kind']} {entry['identity']}") for name, entry in result["systems"].items()),
    ]
    head = ["# Comparison of memory systems", "", *(f"- {name}: {value}" for name, value in facts)]
    failed = [f"- {text}" for text in result["failed"].values()]
    parts = ["\n".join(head), *(markdown_table(table) for table in comparison_tables(result))]
    if failed:
        parts.append("\n".join(["## First failures", "", *failed]))
    return "\n\n".join(parts) + "\n"


def _scores(result: Mapping[str, Any]) -> Table:
    systems: Mapping[str, Any] = result["systems"]
    summaries = {name: entry["summary"] for name, entry in systems.items()}
    present = [c for c in CAPABILITIES if any(str(c) in s["capabilities"] for s in summaries.values())]
    rows = []
    for name, summary in summaries.items():
        rows.append(
            (
                name,
                f"{summary['scored']} of {summary['questions']}",
                *(number(summary["capabilities"].get(str(c), {}).get("score")) for c in present),
                number(summary["overall"]),
                number(summary["score"]),
                _interval(systems[name]["interval"]),
                number(summary["official"]),
                number(summary["recall"]),
            )
        )
    letters = (c.letter for c in present)
    columns = ("system", "scored", *letters, "overall", "questions", "95 %", "official", "recall")
    known = all(entry["interval"] is not None for entry in systems.values() if entry["summary"]["scored"])
    note = " ".join(filter(None, [_SCORES + ("" if known else _NO_INTERVAL), left_out_note(summaries)]))
    return Table(f"{result['score']} on {result['questions']} {result['part']} questions", columns, tuple(rows), note)


def _interval(found: Mapping[str, Any] | None) -> str:
    if found is None or found["low"] is None:
        return "-"
    return f"{found['low']:.3f} to {found['high']:.3f}"


def _costs(result: Mapping[str, Any]) -> Table:
    rows = []
    for name, entry in result["systems"].items():
        answering, building = entry["answering"], entry["building"]
        rows.append(
            (
                name,
                f"{answering['input_tokens_per_question']:,.1f}",
                f"{answering['output_tokens_per_question']:,.1f}",
                f"{building['calls']:,}",
                f"{building['input_tokens']:,}",
                f"{building['output_tokens']:,}",
                f"{entry['embedded_texts']:,}",
                f"{entry['summary']['retrieved_chars'] or 0:,.0f}",
                f"{entry['seconds']:,.1f}",
            )
        )
    columns = (
        "system",
        "in/question",
        "out/question",
        "building calls",
        "building in",
        "building out",
        "embedded texts",
        "chars",
        "seconds",
    )
    cut = [f"{name}: {n}" for name, entry in result["systems"].items() if (n := entry.get("cut_texts"))]
    note = _COSTS + (f" Retrieved texts cut to the budget of every program: {', '.join(cut)}." if cut else "")
    return Table("What a system takes", columns, tuple(rows), note)
