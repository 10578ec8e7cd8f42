"""The file of a ledger: damage is told, and a file that is not there is told from one without calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismem_core.errors import RunError
from prismem_core.roles.ledger import Ledger


@pytest.mark.parametrize("line", ["nonsense", "{}", "[]", '{"role": "chat"}', "[" * 2000], ids=lambda line: line[:20])
def test_a_damaged_line_is_told_with_what_deleting_the_file_costs(tmp_path: Path, line: str) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(RunError, match=r"calls\.jsonl is damaged: .*delete the file to lose only the counts"):
        Ledger(path, read_only=True)
