"""BEAM as parquet, in the shapes of the public release: flat messages, literals, and the plans of the 10M size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.tasks.test_beam import CHAT, QUESTIONS, write_chat

from prismem_core.errors import DataError, SettingsError
from prismem_core.tasks.datasets import load

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def flat(chat: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [[message for turn in batch["turns"] for message in turn] for batch in chat]


def message(number: int, text: str, anchor: str | None = None) -> dict[str, Any]:
    return {"id": number, "role": "user", "content": text, "time_anchor": anchor}


def batch(number: int, *messages: dict[str, Any]) -> dict[str, Any]:
    return {"batch_number": number, "time_anchor": None, "turns": [list(messages)]}


def row(number: str, chat: Any, questions: Any = None) -> dict[str, Any]:
    return {"conversation_id": number, "chat": chat, "probing_questions": repr(questions or QUESTIONS), "plans": "long"}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    return path


def test_a_table_holds_what_the_folders_hold(tmp_path: Path) -> None:
    table = load(write(tmp_path / "100K-00000-of-00001.parquet", row("7", flat(CHAT)), row("8", flat(CHAT))))
    folder = load(write_chat(tmp_path / "100K" / "7"))
    assert list(table.histories) == ["100K/7", "100K/8"]
    assert table.histories["100K/7"].digest == folder.histories["100K/7"].digest
    assert table.tasks[: len(folder.tasks)] == folder.tasks
    assert (table.name, table.tasks[0].benchmark) == ("beam-100K", "beam")


def test_shards_in_one_folder_are_one_data_set(tmp_path: Path) -> None:
    write(tmp_path / "10M-00000-of-00002.parquet", row("1", flat(CHAT)))
    write(tmp_path / "10M-00001-of-00002.parquet", row("2", flat(CHAT)))
    dataset = load(tmp_path)
    assert list(dataset.histories) == ["10M/1", "10M/2"]
    assert len(dataset.digest) == 64


PLANS: list[dict[str, Any]] = [
    {"plan-1": [batch(1, message(0, "a ->-> 1,1", "March-05-2024"), message(1, "b")), batch(2, message(2, "c"))]},
    {"plan-2": [batch(1, message(3, "d", "April-01-2024"))]},
    {"plan-10": [batch(1, message(4, "e"))]},
]
CITED = {"information_extraction": [{"question": "?", "answer": "d", "source_chat_ids": [3, 4], "rubric": ["d"]}]}
SESSIONS = [
    ("1.1", "March 5, 2024", "a b"),
    ("1.2", "March 5, 2024", "c"),
    ("2.1", "April 1, 2024", "d"),
    ("10.1", "April 1, 2024", "e"),
]


def sessions(dataset: Any) -> list[tuple[str, str, str]]:
    (history,) = dataset.histories.values()
    return [(s.id, s.timestamp, " ".join(turn.text for turn in s.turns)) for s in history.sessions]


def test_the_plans_of_the_largest_size(tmp_path: Path) -> None:
    dataset = load(write(tmp_path / "10M-00000-of-00001.parquet", row("1", PLANS, CITED)))
    assert sessions(dataset) == SESSIONS
    assert dataset.tasks[0].evidence == ("d", "e")


def test_message_ids_that_begin_again_go_on(tmp_path: Path) -> None:
    again = json.loads(json.dumps(PLANS))
    again[1]["plan-2"][0]["turns"][0][0]["id"] = 0
    again[2]["plan-10"][0]["turns"][0][0]["id"] = 0
    folder = tmp_path / "10M" / "1"
    (folder / "probing_questions").mkdir(parents=True)
    (folder / "chat.json").write_text(json.dumps(again), encoding="utf-8")
    (folder / "probing_questions" / "probing_questions.json").write_text(json.dumps(CITED), encoding="utf-8")
    dataset = load(folder)
    assert sessions(dataset) == SESSIONS
    assert [turn.id for s in dataset.histories["10M/1"].sessions for turn in s.turns] == ["0", "1", "2", "3", "4"]
    assert dataset.tasks[0].evidence == ("d", "e")


def test_damaged_and_other_tables(tmp_path: Path) -> None:
    other = write(tmp_path / "other.parquet", {"a": 1})
    with pytest.raises(DataError, match=r"expected, found a$"):
        load(other)
    whole = write(tmp_path / "100K.parquet", row("1", flat(CHAT)))
    whole.write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(DataError, match="damaged parquet") as error:
        load(whole)
    assert "\n" not in str(error.value)


def test_one_damaged_row_leaves_the_others(tmp_path: Path) -> None:
    path = write(tmp_path / "1M.parquet", row("1", flat(CHAT)), row("2", flat(CHAT)) | {"probing_questions": "open("})
    dataset = load(path)
    assert list(dataset.histories) == ["1M/1", "1M/2"]
    assert {task.history_id for task in dataset.tasks} == {"1M/1"}
    faults = [(item.record, item.kind) for item in dataset.irregularities if "literal" in item.kind]
    kind = "`probing_questions` that is neither JSON nor a Python literal left out"
    assert faults == [("row 1, 1M/2", kind)]


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "100K.parquet", row("1", flat(CHAT)))

    def absent(name: str, *rest: Any) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("prismem_core.tasks.datasets.beam_table.import_module", absent)
    with pytest.raises(SettingsError, match=r"prismem-core\[parquet\]"):
        load(path)
