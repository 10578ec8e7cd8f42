"""What the README shows is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "[0 1 2 3]"
    assert "top_k" in done.stdout


def test_the_two_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_commands_and_documents_exist() -> None:
    from typer.main import get_command

    from prismem_core.cli.main import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    used = set(re.findall(r"^prismem ([\w-]+)", README, re.MULTILINE))
    assert used
    assert used <= set(commands)
    for path in re.findall(r"`(docs/\w+\.md|[A-Z]+\.md)`", README):
        assert (ROOT / path).exists(), path
