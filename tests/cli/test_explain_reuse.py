"""`prismem explain-reuse` on files and library programs."""

from __future__ import annotations

import json
from pathlib import Path

from prismem_core.program import library

from .test_errors import prismem, refused


def test_all_modes_stand_below_each_other(tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text(library.source("bm25_rag").replace('return "\\n".join(kept)', 'return "\\n\\n".join(kept)'))
    result = prismem("explain-reuse", "bm25_rag", str(child))
    assert result.returncode == 0, result.stderr
    text = " ".join(result.stdout.split())
    assert "changed pack: parent line" in text
    assert "Memory.retrieve reaches a change: Memory.retrieve -> pack" in text
    assert "Table 6 begins at indexing." in text
    positions = [
        text.index(words)
        for words in (
            "content: re-execution begins at retrieval",
            "paper: re-execution begins at indexing",
            "off: re-execution begins at extraction",
        )
    ]
    assert positions == sorted(positions)


def test_one_mode_as_json() -> None:
    result = prismem("explain-reuse", "seed", "naive_rag", "--reuse", "paper", "--json")
    record = json.loads(result.stdout)
    assert [mode["mode"] for mode in record["modes"]] == ["paper"]
    assert record["modes"][0]["start"] == record["table6"] == "extraction"
    assert {"component": "pack", "kind": "added"}.items() <= next(
        change for change in record["changes"] if change["component"] == "pack"
    ).items()


def test_what_cannot_be_explained_is_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    refused(prismem("explain-reuse", "seed", "nowhere.py"), "no program at nowhere.py", "seed")
    refused(prismem("explain-reuse", "seed", str(broken)), "broken.py", "SyntaxError", "line 1")
    refused(prismem("explain-reuse", "seed", "seed", "--reuse", "some"), "some", "content")
