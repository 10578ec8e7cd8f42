"""The report as Markdown."""

from __future__ import annotations

from collections.abc import Mapping

from prismem_core.runs.isolation import isolation_from_json
from prismem_core.runs.report.contents import Contents
from prismem_core.runs.report.reading_order import all_tables
from prismem_core.runs.report.tables import Table
from prismem_core.tasks.datasets.summary import note_lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _table(table: Table) -> str:
    head = "| " + " | ".join(table.columns) + " |"
    rule = "|" + "|".join([" --- ", *(" ---: " for _ in table.columns[1:])]) + "|"
    rows = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in table.rows]
    note = ["", table.note] if table.note else []
    return "\n".join([f"## {table.title}", "", head, rule, *rows, *note])


def _checked(counts: Mapping[str, int] | None) -> list[str]:
    if counts is None:
        return []
    return [
        f"- reused memories built again to compare: {counts['memories']:,}; of {counts['texts']:,} texts retrieved "
        f"from them {counts['differing']:,} differed"
    ]


def markdown(report: Contents) -> str:
    """The whole report; it holds no clock time and no path of the machine it was written on."""
    data = report.data
    isolation = isolation_from_json(data["isolation"])
    state = f"finished with {report.final}" if data["finished"] else f"not finished; best so far {report.best}"
    facts = [
        f"# Run {data['run']}",
        "",
        f"- state: {state}",
        f"- strategy: {data['strategy']}, seed {data['settings'].get('seed')}, designer {data['designer']}",
        f"- data: {data['data'].get('name', '?')} (SHA-256 {data['data'].get('digest', '?')})",
        *(f"- data: {line}" for line in note_lines(data["data"].get("notes", {}))),
        f"- questions: {', '.join(f'{part} {count}' for part, count in data['job']['split'].items())}",
        f"- selection score: {data['job'].get('scoring') or data['job']['job']['score']}",
        f"- interface: {data['job']['job'].get('interface', 'paper')}",
        *(f"- {role}: {identity}" for role, identity in data["roles"].items()),
        f"- prismem-core {data['version']}",
        f"- isolation: {isolation.words()} (docs/security.md)",
        *_checked(data["reuse_check"]),
    ]
    warning = [f"**{isolation.words()}**", ""] if isolation.marked else []
    return (
        "\n".join([*facts[:2], *warning, *facts[2:], ""])
        + "\n"
        + "\n\n".join(_table(table) for table in all_tables(report))
        + "\n"
    )
