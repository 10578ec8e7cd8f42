"""The report as terminal tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from prismem_core.runs.isolation import isolation_from_json
from prismem_core.runs.report.contents import Contents
from prismem_core.runs.report.facts import facts, seed_facts
from prismem_core.runs.report.reading_order import all_tables, short_tables
from prismem_core.runs.report.seed_tables import seed_tables
from prismem_core.runs.report.tables import Table

_TEXT = ("why", "program", "parent", "stage", "outcome", "specialist of", "change")


# A column of sentences is folded down to this width; every other column keeps its width, so that no number is cut.
_LEAST_SENTENCE = 24
_BORDERS = 3


def draw(table: Table, width: int) -> RenderableType:
    """A table as rich draws it, in as many blocks of columns, one below the other, as `width` characters ask for.

    Each block begins with the first column, which is folded where a name is longer than the room for it.
    """
    needed = [_needed(table, position) for position in range(len(table.columns))]
    blocks: list[list[int]] = [[]]
    room = width - 1 - needed[0]
    for position in range(1, len(needed)):
        if blocks[-1] and sum(needed[i] for i in blocks[-1]) + needed[position] > room:
            blocks.append([])
        blocks[-1].append(position)
    drawn: list[RenderableType] = [_block(table, block, number > 0) for number, block in enumerate(blocks)]
    return Group(*drawn, *([Text(table.note)] if table.note else []))


def _needed(table: Table, position: int) -> int:
    """Characters that a column takes with one border."""
    longest = max(cell_len(text) for text in (table.columns[position], *(row[position] for row in table.rows)))
    return _BORDERS + (min(longest, _LEAST_SENTENCE) if table.columns[position] == "change" else longest)


def _block(table: Table, positions: Sequence[int], goes_on: bool) -> RichTable:
    """Some columns after the first: numbers to the right, a column of sentences takes what width is left."""
    title = Text(table.title + (" (more columns)" if goes_on else ""))
    drawn = RichTable(title=title, title_justify="left", title_style="bold")
    shown = (0, *positions)
    for position in shown:
        column = table.columns[position]
        if position == 0:
            drawn.add_column(column, overflow="fold")
        elif column == "change":
            drawn.add_column(column, ratio=1)
        else:
            drawn.add_column(column, justify="left" if column in _TEXT else "right", no_wrap=True)
    for row in table.rows:
        # Text, not markup: summaries and names are data and may hold brackets.
        drawn.add_row(*(Text(row[position]) for position in shown))
    return drawn


def make_console() -> Console:
    """The console of the command line; where output is no terminal, tables get room for their columns."""
    console = Console()
    return console if console.is_terminal else Console(width=140)


def isolation_text(isolation: Mapping[str, Any]) -> Text:
    """One line on what confined the programs, loud where nothing did."""
    found = isolation_from_json(isolation)
    return Text(f"isolation: {found.words()}", style="bold red" if found.marked else "")


def render(report: Contents, width: int, *, short: bool = False) -> RenderableType:
    """Header and all tables for a console of `width` characters; `short` leaves out the header and the lineage."""
    tables = short_tables(report) if short else all_tables(report)
    header = [] if short else [Text(f"{name}: {value}") for name, value in facts(report) if name != "isolation"]
    return Group(*header, *(draw(table, width) for table in tables), isolation_text(report.data["isolation"]))


def show(report: Contents, console: Console, *, short: bool = False) -> None:
    """Print the report."""
    console.print(render(report, console.width, short=short))


def show_seeds(report: Mapping[str, Any], console: Console) -> None:
    """Print the report of several runs that differ in their seed alone."""
    header = [Text(f"{name}: {value}") for name, value in seed_facts(report)]
    console.print(Group(*header, *(draw(table, console.width) for table in seed_tables(report))))
