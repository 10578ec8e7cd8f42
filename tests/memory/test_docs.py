"""The example of docs/memory.md runs, does what it says, and fits on twenty lines or so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "memory.md"


def test_the_example_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert len(code.splitlines()) <= 24
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    when, who, usage = done.stdout.splitlines()
    assert "April" in when
    assert "Miso" in who
    assert "'chat/extract': {'calls': 1," in usage
    assert [path.name for path in tmp_path.iterdir()] == ["ana.memory"]
