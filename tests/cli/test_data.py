"""`prismem data`: what is printed, exit codes, and errors of one line."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.test_errors import prismem, refused


def test_list_names_data_sets_and_splits() -> None:
    shown = prismem("data", "list").stdout
    for name in ("locomo", "longmemeval-m", "beam-10m", "perltqa-en-v2", "beam-100k/paper", "longmemeval-s/paper"):
        assert f"\n{name} " in shown
    value = json.loads(prismem("data", "list", "--json").stdout)
    assert {"data_sets", "splits"} == set(value)


def test_doctor_lists_each_irregular_record(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(
        '{"type": "conversation", "id": "a", "sessions": [{"turns": [{"speaker": "Ana", "text": "Tea."}]}]}\n'
        '{"type": "question", "conversation": "a", "question": "Tea?", "answer": "yes", "capability": "P"}\n',
        encoding="utf-8",
    )
    result = prismem("data", "doctor", str(path))
    assert (result.returncode, result.stderr) == (1, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"{path}: mine, 1 conversations, 1 sessions, 1 turns, 1 questions (sha256 ")
    assert lines[1:] == [
        "  2 irregular records:",
        "    mine.jsonl: a: session 1: session without a time",
        "    mine.jsonl: a/q000: evidence: question without evidence",
        "1 data sets load, 2 irregular records; 0 without histories; 0 refused",
    ]
    as_json = prismem("data", "doctor", str(path), "--json")
    assert as_json.returncode == 1
    assert json.loads(as_json.stdout)["irregular"] == 2


def test_doctor_refuses_what_does_not_load(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text("[", encoding="utf-8")
    result = prismem("data", "doctor", str(path))
    assert result.returncode == 3
    assert "bad.json: REFUSED: " in result.stdout
    refused(prismem("data", "doctor", str(tmp_path / "none")), "no data at")


def test_split_prints_and_writes(tmp_path: Path) -> None:
    out = tmp_path / "split.json"
    result = prismem("data", "split", "beam-100k/paper", "--out", str(out))
    assert result.returncode == 0
    assert result.stdout.startswith("train: 8 conversations\n  100K/1 100K/3 ")
    assert len(json.loads(out.read_text(encoding="utf-8"))["valid"]) == 6
    refused(prismem("data", "split", "beam/paper"), "no split 'beam/paper'")
    refused(prismem("data", "split", "longmemeval-s/paper", "--data", "sample"), "needs 120 questions")


def test_fetch_says_what_is_wrong(tmp_path: Path) -> None:
    refused(prismem("data", "fetch", "nothing"), "no public data set 'nothing'; there are locomo")
    to = str(tmp_path / "a")
    refused(prismem("data", "fetch", "locomo", "--to", to, "--from", "http://127.0.0.1:9"), "no network to 127.0.0.1:9")
