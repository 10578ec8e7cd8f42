"""JSON Lines: what is read, what is refused (with its line), and that writing and reading give the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prismem_core.errors import DataError
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.datasets import load, write_jsonl

CONVERSATION: dict[str, Any] = {
    "type": "conversation",
    "id": "c1",
    "sessions": [
        {"id": "s1", "time": "8 May 2023", "turns": [{"speaker": "Ana", "text": "I bought a red\nbike."}]},
        {"turns": [{"id": "t9", "speaker": "Bo", "text": "I sold mine in June."}]},
    ],
}
QUESTION: dict[str, Any] = {
    "type": "question",
    "conversation": "c1",
    "question": "What did Ana buy?",
    "answer": "a red bike",
    "capability": "factual_retrieval",
    "evidence": ["s1:1"],
}
UNANSWERABLE: dict[str, Any] = {
    "type": "question",
    "conversation": "c1",
    "question": "What did Bo buy?",
    "capability": "A",
    "evidence": ["a RED  bike"],
}


def write(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_a_small_set(tmp_path: Path) -> None:
    listed = QUESTION | {
        "id": "mine",
        "capability": "M",
        "secondary": ["T"],
        "evidence": ["s1:1", "t9"],
        "question": "All?",
    }
    dataset = load(write(tmp_path / "talks.jsonl", QUESTION, CONVERSATION, UNANSWERABLE, listed))
    assert dataset.name == "talks"
    sessions = dataset.histories["c1"].sessions
    assert [(s.id, s.timestamp, [t.id for t in s.turns]) for s in sessions] == [
        ("s1", "8 May 2023", ["s1:1"]),
        ("2", "", ["t9"]),
    ]
    plain, unanswerable, multi = dataset.tasks
    assert (plain.id, plain.evidence, plain.metric, plain.labelled) == (
        "c1/q000",
        ("I bought a red\nbike.",),
        "f1",
        False,
    )
    assert (unanswerable.metric, unanswerable.reference, unanswerable.twin) == ("abstention", "", "c1/q000")
    assert (unanswerable.evidence, unanswerable.evidence_ids) == (("a RED  bike",), ("s1:1",))
    assert (multi.id, multi.metric, multi.secondary) == ("mine", "f1_multi", (Capability.TEMPORAL,))
    assert multi.labelled
    assert dataset.repairs == {"session without a time": 1}


def test_settings_line_gives_name_split_and_reply_length(tmp_path: Path) -> None:
    settings = {"type": "dataset", "name": "mine", "reply_words": 12, "split": {"train": ["c1"], "valid": ["c2"]}}
    dataset = load(write(tmp_path / "x", settings, CONVERSATION, CONVERSATION | {"id": "c2"}, QUESTION))
    assert (dataset.name, dataset.reply_words) == ("mine", 12)
    assert dataset.default_split == {"train": ("c1",), "valid": ("c2",), "test": ()}


def test_a_folder_of_files_is_one_set(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", QUESTION)
    write(tmp_path / "b.jsonl", CONVERSATION)
    (tmp_path / "notes.txt").write_text("not data", encoding="utf-8")
    dataset = load(tmp_path)
    assert (dataset.name, len(dataset.tasks), list(dataset.histories)) == (tmp_path.name, 1, ["c1"])


REFUSED = {
    "unknown type": ([{"type": "talk"}, CONVERSATION], 'line 1: type "talk" is unknown'),
    "unknown key": ([CONVERSATION, QUESTION | {"answr": "x"}], "line 2: unknown key 'answr'"),
    "unknown key of a turn": (
        [CONVERSATION | {"sessions": [{"turns": [{"speaker": "A", "text": "x", "time": "y"}]}]}],
        "line 1, sessions[0], turns[0]: unknown key 'time'",
    ),
    "missing key": ([CONVERSATION, {"type": "question", "conversation": "c1"}], "line 2: key 'question' is missing"),
    "no answer": (
        [CONVERSATION, {k: v for k, v in QUESTION.items() if k != "answer"}],
        "line 2: key 'answer' is missing",
    ),
    "blank answer": ([CONVERSATION, QUESTION | {"answer": " "}], "line 2: 'answer' is blank"),
    "not a string": ([CONVERSATION, QUESTION | {"answer": 3}], "line 2: 'answer' must be a string"),
    "unknown capability": ([CONVERSATION, QUESTION | {"capability": "X"}], 'line 2: capability "X" is unknown'),
    "secondary is primary": ([CONVERSATION, QUESTION | {"secondary": ["F"]}], "line 2: 'secondary' is [\"F\"]"),
    "three secondaries": ([CONVERSATION, QUESTION | {"secondary": ["T", "P", "M"]}], "line 2: 'secondary'"),
    "unknown conversation": ([CONVERSATION, QUESTION | {"conversation": "c9"}], "line 2: conversation 'c9' is not"),
    "repeated conversation": ([CONVERSATION, CONVERSATION], "line 2: conversation 'c1' is there twice"),
    "repeated question": (
        [CONVERSATION, QUESTION | {"id": "a"}, QUESTION | {"id": "a"}],
        "line 3: question 'a' is there twice",
    ),
    "repeated session": (
        [CONVERSATION | {"sessions": [CONVERSATION["sessions"][0]] * 2}],
        "line 1, sessions[1]: session 's1' is there twice",
    ),
    "no turns": (
        [CONVERSATION | {"sessions": [{"turns": []}]}],
        "line 1, sessions[0]: 'turns' must be a non-empty list",
    ),
    "unknown evidence": ([CONVERSATION, QUESTION | {"evidence": ["D9:9"]}], 'line 2: evidence "D9:9" is neither'),
    "answerable contradicts metric": (
        [CONVERSATION, QUESTION | {"metric": "abstention"}],
        "line 2: metric 'abstention' does not fit",
    ),
    "split names nothing known": (
        [{"type": "dataset", "split": {"train": ["c7"]}}, CONVERSATION, QUESTION],
        "history 'c7'",
    ),
    "split with another part": (
        [{"type": "dataset", "split": {"dev": []}}, CONVERSATION],
        "line 1, split: unknown key",
    ),
    "an array": ([CONVERSATION, [1]], "line 2: list in place of an object"),
}


@pytest.mark.parametrize("records, message", REFUSED.values(), ids=list(REFUSED))
def test_what_is_refused(tmp_path: Path, records: list[Any], message: str) -> None:
    path = write(tmp_path / "bad.jsonl", *records)
    first = records[0]
    if not (isinstance(first, dict) and first["type"] in ("dataset", "conversation", "question")):
        records = [CONVERSATION, *records]
        message = message.replace("line 1", "line 2")
        write(path, *records)
    with pytest.raises(DataError) as error:
        load(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_broken_line_is_named_with_its_column(tmp_path: Path) -> None:
    path = write(tmp_path / "bad.jsonl", CONVERSATION)
    path.write_text(path.read_text(encoding="utf-8") + '\n{"type": "question",, }\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"at line 3, column 21"):
        load(path)


def test_writing_and_reading_the_sample_gives_the_same(tmp_path: Path) -> None:
    sample = load("sample")
    path = tmp_path / "again.jsonl"
    write_jsonl(sample, path)
    again = load(path)
    assert (again.histories, again.tasks, again.default_split) == (sample.histories, sample.tasks, sample.default_split)
    assert again.digest == sample.digest


@pytest.mark.parametrize("name", ["locomo/locomo10_first6.json", "beam/chats/100K/1"])
def test_writing_and_reading_a_benchmark_gives_the_same(tmp_path: Path, data_dir: Path, name: str) -> None:
    dataset = load(data_dir / name)
    path = tmp_path / "again.jsonl"
    write_jsonl(dataset, path)
    again = load(path)
    assert again.histories == dataset.histories
    assert again.tasks == dataset.tasks
    assert (again.name, again.reply_words, again.default_split) == (
        dataset.name,
        dataset.reply_words,
        dataset.default_split,
    )


def test_the_documented_example_loads(tmp_path: Path) -> None:
    document = Path(__file__).parents[2] / "docs" / "data.md"
    example = document.read_text(encoding="utf-8").split("```json\n")[1].split("```")[0]
    path = tmp_path / "example.jsonl"
    path.write_text(example.replace('"valid": ["c2"]', '"valid": []'), encoding="utf-8")
    dataset = load(path)
    assert [task.metric for task in dataset.tasks] == ["f1", "abstention"]
    assert dataset.tasks[1].twin == dataset.tasks[0].id
