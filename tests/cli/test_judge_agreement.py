"""`prismem judge-agreement` from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = "import sys; from prismem_core.cli.main import main; sys.argv = ['prismem', *sys.argv[1:]]; main()"


def agreement(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, "judge-agreement", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def rows(path: Path, scores: list[float]) -> Path:
    found = [{"program": "seed", "task": f"t{i}", "answer": "x", "score": s} for i, s in enumerate(scores)]
    path.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
    return path


def test_two_files_are_compared(tmp_path: Path) -> None:
    first = rows(tmp_path / "a.jsonl", [1, 1, 0, 0, 1, 0])
    second = rows(tmp_path / "b.jsonl", [1, 0, 0, 0, 1, 1])
    shown = agreement(first, second)
    assert shown.returncode == 0 and shown.stderr == ""
    assert (
        "Agreement of two judges" in shown.stdout
        and "0.333" in shown.stdout
        and "A: a.jsonl. B: b.jsonl." in shown.stdout
    )
    found = json.loads(agreement(first, second, "--json").stdout)
    assert found["compared"] == 6 and abs(found["all"]["kappa"] - 1 / 3) < 1e-9
    assert found["all"]["low"] < 1 / 3 < found["all"]["high"]


def test_what_cannot_be_compared_ends_in_one_line(tmp_path: Path) -> None:
    first = rows(tmp_path / "a.jsonl", [1, 0])
    for words, said in (
        ([first], "two files, or one file and two --judge"),
        ([first, "--judge", "lexical", "--judge", "openai:m@http://localhost:1/v1"], "--data"),
        ([first, tmp_path / "b.jsonl"], "cannot read"),
    ):
        refused = agreement(*words)
        assert refused.returncode != 0 and said in refused.stderr
        assert len(refused.stderr.splitlines()) == 1 and refused.stderr.startswith("prismem: ")
