"""The report as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prismem_core.runs.isolation import isolation_from_json
from prismem_core.runs.report.contents import Contents
from prismem_core.runs.report.facts import facts, seed_facts
from prismem_core.runs.report.reading_order import all_tables
from prismem_core.runs.report.seed_tables import seed_tables
from prismem_core.runs.report.tables import Table


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def markdown_table(table: Table) -> str:
    """A table with its title as a heading and its note below."""
    head = "| " + " | ".join(table.columns) + " |"
    rule = "|" + "|".join([" --- ", *(" ---: " for _ in table.columns[1:])]) + "|"
    rows = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in table.rows]
    note = ["", table.note] if table.note else []
    return "\n".join([f"## {table.title}", "", head, rule, *rows, *note])


def markdown(report: Contents) -> str:
    """The whole report; it holds no clock time and no path of the machine it was written on."""
    isolation = isolation_from_json(report.data["isolation"])
    warning = [f"**{isolation.words()}**", ""] if isolation.marked else []
    header = [f"- {name}: {value}" for name, value in facts(report)]
    head = "\n".join([f"# Run {report.data['run']}", "", *warning, *header, ""])
    return head + "\n" + "\n\n".join(markdown_table(table) for table in all_tables(report)) + "\n"


def seeds_markdown(report: Mapping[str, Any]) -> str:
    """The report of several runs that differ in their seed alone."""
    header = [f"- {name}: {value}" for name, value in seed_facts(report)]
    head = "\n".join([f"# {len(report['runs'])} runs", "", *header, ""])
    return head + "\n" + "\n\n".join(markdown_table(table) for table in seed_tables(report)) + "\n"
