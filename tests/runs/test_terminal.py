"""Tables on terminals of any width: columns may move below, but no name and no number is cut."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from prismem_core.runs.report.tables import Table
from prismem_core.runs.report.terminal import draw


def drawn(table: Table, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(draw(table, width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [40, 80, 140, 400])
def test_no_name_and_no_number_is_cut(width: int) -> None:
    names = tuple(f"n{i:02d}-031be134.py" for i in range(20))
    rows = tuple(
        (kind, *(f"0.{row}{i:02d}" for i in range(20))) for row, kind in enumerate(("temporal", "adversarial"))
    )
    text = drawn(Table("[bold] by type", ("type", *names), rows), width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert "[bold] by type" in text
    for word in (*names, *(cell for row in rows for cell in row)):
        assert word in text


def test_a_table_that_fits_is_one_block() -> None:
    text = drawn(Table("scores", ("program", "F", "T"), (("seed", "0.100", "0.200"),)), 40)
    assert "more columns" not in text
    assert text.count("seed") == 1


def test_a_long_name_is_folded_and_sentences_are_wrapped() -> None:
    table = Table("t", ("program", "valid", "change"), (("p" * 60, "0.125", "a sentence of many words " * 5),))
    text = drawn(table, 60)
    assert "…" not in text
    assert "0.125" in text
    assert text.count("p" * 9) >= 6
    assert text.count("words") == 5
