"""Telling formats apart, and one clear line for what cannot be loaded."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from prismem_core.digests import digest_bytes
from prismem_core.errors import DataError
from prismem_core.tasks.datasets import load, summary

LINES = (
    '{"type": "conversation", "id": "a", "sessions": [{"turns": [{"speaker": "Ana", "text": "I like tea."}]}]}\n'
    '{"type": "question", "conversation": "a", "question": "Tea?", "answer": "yes", "capability": "P"}\n'
)


def message(path: Path) -> str:
    with pytest.raises(DataError) as error:
        load(path)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_missing_path(tmp_path: Path) -> None:
    assert "no data set at" in message(tmp_path / "nothing.json")


def test_broken_json_names_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('[\n{"conversation": }\n]', encoding="utf-8")
    assert "at line 2, column 18" in message(path)


def test_a_number_too_long_to_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"type": "dataset", "reply_words": ' + "9" * 5000 + "}\n", encoding="utf-8")
    assert "a number of thousands of digits" in message(path)


def test_unknown_formats_say_what_was_found_and_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for content, found in (
        ("[]", "an empty list"),
        ('{"a": 1, "b": 2}', "an object with the keys 'a', 'b'"),
        ("[3]", "a list whose first item is a number"),
        ('{"type": "talk"}', "an object with the keys 'type'"),
    ):
        path.write_text(content, encoding="utf-8")
        assert f"it holds {found}; looked for LoCoMo" in message(path)


def test_empty_and_undecodable_files(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"  \n")
    assert "is empty" in message(path)
    path.write_bytes(b"\xff\xfe{}")
    assert "is not UTF-8" in message(path)
    path.write_bytes(gzip.compress(LINES.encode())[:30])
    assert "damaged gzip" in message(path)
    path.write_bytes(b"[" * 100_000)
    assert "not a data set" in message(path) or "not valid JSON" in message(path)


def test_empty_data_sets(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(LINES.splitlines()[0], encoding="utf-8")
    assert "is empty: it has no questions" in message(path)
    folder = tmp_path / "folder"
    folder.mkdir()
    assert "holds no data set; looked for LoCoMo" in message(folder)


def test_gzip_is_told_by_content_and_the_digest_is_the_stored_file(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "b"
    plain.write_text(LINES, encoding="utf-8")
    packed.write_bytes(gzip.compress(LINES.encode()))
    first, second = load(plain), load(packed)
    assert first.tasks == second.tasks
    assert first.digest == digest_bytes(plain.read_bytes())
    assert second.digest == digest_bytes(packed.read_bytes())


def test_the_digest_of_several_files_follows_names_and_contents(tmp_path: Path) -> None:
    digests = []
    for folder, name in (("one", "a.jsonl"), ("two", "a.jsonl"), ("three", "b.jsonl")):
        (tmp_path / folder).mkdir()
        conversation, question = LINES.splitlines()
        (tmp_path / folder / name).write_text(conversation, encoding="utf-8")
        (tmp_path / folder / "z.jsonl").write_text(question, encoding="utf-8")
        digests.append(load(tmp_path / folder).digest)
    assert digests[0] == digests[1] != digests[2]


def test_a_folder_with_one_json_file_is_that_file(tmp_path: Path) -> None:
    sample = {
        "sample_id": "c",
        "conversation": {"session_1": [{"speaker": "A", "dia_id": "D1:1", "text": "hi"}]},
        "qa": [{"question": "?", "answer": "x", "category": 4, "evidence": ["D1:1"]}],
    }
    (tmp_path / "data.json").write_text(json.dumps([sample]), encoding="utf-8")
    assert load(tmp_path).name == "locomo"


def test_the_summary_tells_sizes_types_split_and_repairs() -> None:
    lines = summary(load("sample")).split("\n")
    assert lines[0].startswith("sample: 6 conversations, 72 sessions, ")
    assert lines[1].startswith("capabilities: F factual_retrieval ")
    assert lines[3].startswith("split: train ")
    assert len(lines) == 4


def test_the_summary_counts_the_conversations_of_a_large_part() -> None:
    parts = {"train": [str(number) for number in range(21)], "valid": ["ines-marek"], "test": []}
    line = summary(load("sample"), parts).split("\n")[3]
    assert line.startswith("split: train 21 conversations (0 questions); valid ines-marek (")
    assert line.endswith("; test none (0 questions)")


def test_the_summary_lists_repairs(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(LINES, encoding="utf-8")
    assert summary(load(path)).split("\n")[-2:] == [
        "note: question without evidence: 1",
        "note: session without a time: 1",
    ]
