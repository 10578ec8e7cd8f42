"""The report as terminal tables."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from prismem_core.runs.report.contents import Contents
from prismem_core.runs.report.tables import Table, all_tables, call_table, score_tables

_TEXT = ("program", "parent", "stage", "outcome", "specialist of", "change")


def draw(table: Table) -> RichTable:
    """A table as rich draws it: numbers to the right, the last column of text takes what width is left."""
    drawn = RichTable(title=table.title, title_justify="left", title_style="bold")
    for position, column in enumerate(table.columns):
        text = position == 0 or column in _TEXT
        last = column == "change"
        drawn.add_column(column, justify="left" if text else "right", no_wrap=not last, ratio=1 if last else None)
    for row in table.rows:
        # Text, not markup: summaries and names are data and may hold brackets.
        drawn.add_row(*(Text(cell) for cell in row))
    return drawn


def make_console() -> Console:
    """The console of the command line; where output is no terminal, tables get room for their columns."""
    console = Console()
    return console if console.is_terminal else Console(width=140)


def render(report: Contents, *, short: bool = False) -> RenderableType:
    """All tables; `short` leaves out the lineage."""
    tables = [*score_tables(report), call_table(report)] if short else list(all_tables(report))
    return Group(*(draw(table) for table in tables))


def show(report: Contents, console: Console, *, short: bool = False) -> None:
    """Print the report."""
    console.print(render(report, short=short))
