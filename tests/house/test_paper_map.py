"""Every place that docs/paper_map.md names exists."""

from __future__ import annotations

import re
from pathlib import Path

from prismem_core import ops

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "prismem_core"


def places() -> list[tuple[str, list[str]]]:
    text = (ROOT / "docs" / "paper_map.md").read_text(encoding="utf-8")
    found = []
    for line in text.splitlines():
        cells = line.split("|")
        if len(cells) < 4 or "---" in line or "here" in cells[2]:
            continue
        for span in re.findall(r"`([^`]+)`", cells[2]):
            path, _, names = span.partition(":")
            found.append((path.strip(), [name.strip() for name in names.split(",") if name.strip()]))
    return found


def test_every_place_exists() -> None:
    checked = 0
    for path, names in places():
        if "/" not in path:
            assert hasattr(ops, path), f"there is no op {path}"
            checked += 1
            continue
        target = PACKAGE / path
        assert target.exists(), f"{path} does not exist"
        source = target.read_text(encoding="utf-8") if target.is_file() else ""
        for name in names:
            assert re.search(rf"^(def|class) {name}\b", source, re.MULTILINE), f"{path} has no {name}"
        checked += 1
    assert checked > 20
