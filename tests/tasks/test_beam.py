"""BEAM: folders and tables, markers, dates, nested and missing evidence, on synthetic chats and on the real ones."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from prismem_core.errors import DataError
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.datasets import load
from prismem_core.tasks.datasets.beam import chat_folders
from prismem_core.tasks.task import Dataset

CHAT: list[dict[str, Any]] = [
    {
        "batch_number": 1,
        "time_anchor": None,
        "turns": [
            [
                {
                    "role": "user",
                    "id": 0,
                    "time_anchor": "March-05-2024",
                    "index": "1,1",
                    "question_type": "main_question",
                    "content": "I have 2 cats ->-> 1,1",
                },
                {"role": "assistant", "id": 1, "content": "Good."},
            ],
            [
                {
                    "role": "user",
                    "id": 2,
                    "question_type": "followup_question",
                    "content": "A list:\n- a ->-> 2,22, 24",
                },
                {"role": "assistant", "id": 3, "content": "Noted."},
            ],
        ],
    },
    {"batch_number": 2, "time_anchor": None, "turns": [[{"role": "user", "id": 4, "content": "And a dog ->-> 5,14)"}]]},
    {
        "batch_number": 3,
        "time_anchor": None,
        "turns": [[{"role": "user", "id": 5, "time_anchor": "early spring", "content": "Now 3 cats"}]],
    },
]
QUESTIONS: dict[str, list[dict[str, Any]]] = {
    "abstention": [{"question": "Colour?", "ideal_response": "There is no information.", "rubric": ["no information"]}],
    "contradiction_resolution": [
        {
            "question": "Cats or not?",
            "ideal_answer": "Both said.",
            "source_chat_ids": {"first_statement": [0], "second_statement": [5]},
            "rubric": ["LLM response should state: both"],
        }
    ],
    "event_ordering": [
        {
            "question": "Order?",
            "answer": "a, b",
            "source_chat_ids": [[0, 2], [4], "--", 99],
            "total_mentions": 9,
            "rubric": ["a", "b"],
        }
    ],
    "knowledge_update": [
        {
            "question": "How many cats now?",
            "answer": "3",
            "source_chat_ids": {"original_info": [0], "updated_info": []},
            "rubric": ["3"],
        },
        {"question": "Missing ids?", "answer": "x", "rubric": []},
    ],
    "instruction_following": [
        {"question": "Follow?", "expected_compliance": "does", "source_chat_ids": [0, 0], "rubric": ["r"]}
    ],
    "summarization": [{"question": "Sum?", "ideal_summary": "s", "source_chat_ids": [], "rubric": ["r"]}],
    "new_kind": [{"question": "?", "answer": "y"}],
}


def write_chat(folder: Path, *, packed: bool = False) -> Path:
    (folder / "probing_questions").mkdir(parents=True)
    data = json.dumps(CHAT).encode()
    if packed:
        (folder / "chat.json.gz").write_bytes(gzip.compress(data))
    else:
        (folder / "chat.json").write_bytes(data)
    (folder / "probing_questions" / "probing_questions.json").write_text(json.dumps(QUESTIONS), encoding="utf-8")
    return folder


@pytest.fixture
def chat(tmp_path: Path) -> Dataset:
    return load(write_chat(tmp_path / "chats" / "100K" / "7"))


def test_batches_become_sessions_with_the_date_carried_over(chat: Dataset) -> None:
    history = chat.histories["100K/7"]
    assert [(session.id, session.timestamp) for session in history.sessions] == [
        ("1", "March 5, 2024"),
        ("2", "March 5, 2024"),
        ("3", "early spring"),
    ]
    assert [turn.id for session in history.sessions for turn in session.turns] == ["0", "1", "2", "3", "4", "5"]


def test_markers_and_indices_are_gone_from_all_that_is_shown(chat: Dataset) -> None:
    text = "\n".join(session.text for session in chat.histories["100K/7"].sessions)
    assert text == (
        "[Session 1: March 5, 2024]\nuser: I have 2 cats\nassistant: Good.\nuser: A list:\n- a\nassistant: Noted.\n"
        "[Session 2: March 5, 2024]\nuser: And a dog\n[Session 3: early spring]\nuser: Now 3 cats"
    )
    assert all("->->" not in piece for task in chat.tasks for piece in task.evidence)


def test_questions_by_type(chat: Dataset) -> None:
    seen = {t.id.removeprefix("100K/7/"): (t.primary.letter, t.metric, t.reference, t.evidence_ids) for t in chat.tasks}
    assert seen == {
        "abstention-0": ("A", "abstention", "There is no information.", ()),
        "contradiction_resolution-0": ("A", "rubric", "Both said.", ("0", "5")),
        "event_ordering-0": ("T", "rubric", "a, b", ("0", "2", "4")),
        "knowledge_update-0": ("T", "rubric", "3", ("0",)),
        "knowledge_update-1": ("T", "rubric", "x", ()),
        "instruction_following-0": ("P", "rubric", "does", ("0",)),
        "summarization-0": ("M", "rubric", "s", ()),
    }
    ordering = chat.task("100K/7/event_ordering-0")
    assert ordering.evidence == ("I have 2 cats", "A list:\n- a", "And a dog")
    assert ordering.rubric == ("a", "b")
    assert chat.reply_words == 80
    assert chat.task("100K/7/abstention-0").twin is not None


def test_repairs_are_counted(chat: Dataset) -> None:
    assert chat.repairs == {
        "batch without a date, last one carried over": 1,
        "date of another form kept as text": 1,
        "empty list of evidence ids": 2,
        "evidence id that names no message dropped": 2,
        "evidence ids missing": 1,
        "generation marker cut from a message": 3,
        "marker in a message that is no main question, cut": 1,
        "marker with another index than two numbers, cut": 2,
        "nested evidence ids flattened": 1,
        "no questions of a type": 4,
        "number of mentions differs from the rubric, rubric kept": 1,
        "questions of an unknown type left out": 1,
        "rubric missing": 1,
    }


def test_one_chat_one_size_and_all_sizes(tmp_path: Path) -> None:
    root = tmp_path / "beam"
    for size, number in (("1M", "3"), ("100K", "11"), ("100K", "2")):
        write_chat(root / "chats" / size / number, packed=size == "1M")
    assert list(load(root).histories) == ["100K/2", "100K/11", "1M/3"]
    assert list(load(root / "chats").histories) == ["100K/2", "100K/11", "1M/3"]
    assert list(load(root / "chats" / "100K").histories) == ["100K/2", "100K/11"]
    assert list(load(root / "chats" / "1M" / "3").histories) == ["1M/3"]
    assert load(root / "chats" / "100K").name == "beam-100K"


def test_the_table_of_the_public_release(tmp_path: Path) -> None:
    flat = [[message for turn in batch["turns"] for message in turn] for batch in copy.deepcopy(CHAT)]
    row = {"conversation_id": "7", "chat": flat, "probing_questions": repr(QUESTIONS | {"extra": None})}
    del flat[0][0]["index"]
    path = tmp_path / "100K.json"
    path.write_text(json.dumps([row]), encoding="utf-8")
    lines = tmp_path / "beam_100K.jsonl"
    lines.write_text(json.dumps(row) + "\n" + json.dumps(row | {"conversation_id": "8"}) + "\n", encoding="utf-8")
    folder = load(write_chat(tmp_path / "100K" / "7"))
    table = load(path)
    assert table.histories["100K/7"].digest == folder.histories["100K/7"].digest
    assert table.tasks == folder.tasks
    assert list(load(lines).histories) == ["100K/7", "100K/8"]


def test_a_literal_is_never_evaluated(tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    row = {"conversation_id": "1", "chat": CHAT, "probing_questions": f"open({str(proof)!r}, 'w')"}
    path = tmp_path / "table.json"
    path.write_text(json.dumps([row]), encoding="utf-8")
    with pytest.raises(DataError, match=r"has no questions \(.*neither JSON nor a Python literal"):
        load(path)
    assert not proof.exists()


def test_chats_without_messages_or_questions(tmp_path: Path) -> None:
    folder = write_chat(tmp_path / "1")
    (folder / "chat.json").write_text("[]", encoding="utf-8")
    with pytest.raises(DataError, match="has no messages"):
        load(folder)
    folder = write_chat(tmp_path / "2")
    (folder / "probing_questions" / "probing_questions.json").unlink()
    with pytest.raises(DataError, match="it has no questions"):
        load(folder)


@pytest.fixture(scope="module")
def loaded() -> dict[str, Dataset]:
    return {}


@pytest.fixture
def beam(data_dir: Path, loaded: dict[str, Dataset]) -> Dataset:
    if "beam" not in loaded:
        loaded["beam"] = load(data_dir / "beam" / "chats")
    return loaded["beam"]


def test_real_counts_and_split(beam: Dataset) -> None:
    assert (len(beam.histories), len(beam.tasks)) == (15, 300)
    assert all(sum(t.native_type == name for t in beam.tasks) == 30 for name in {t.native_type for t in beam.tasks})
    assert beam.default_split["train"] == ("100K/1", "100K/4", "100K/6", "100K/8", "100K/11", "100K/14")
    assert beam.default_split["test"] == ("100K/16", "100K/18", "100K/19")
    assert list(beam.histories)[-3:] == ["500K/1", "500K/29", "1M/7"]
    assert {t.primary for t in beam.tasks if t.metric == "abstention"} == {Capability.ADVERSARIAL}


def test_real_chats_show_no_marker_and_have_all_messages(beam: Dataset) -> None:
    turns = {key: [t for s in history.sessions for t in s.turns] for key, history in beam.histories.items()}
    assert not any("->->" in turn.text for all_turns in turns.values() for turn in all_turns)
    assert {key: len(all_turns) for key, all_turns in turns.items() if not key.startswith("100K")} == {
        "500K/1": 796,
        "500K/29": 910,
        "1M/7": 1662,
    }
    assert beam.histories["100K/1"].sessions[0].timestamp == "March 15, 2024"


def test_real_irregular_records(beam: Dataset) -> None:
    assert {"134", "136", "138"} <= set(beam.task("100K/4/event_ordering-1").evidence_ids)
    assert len(beam.task("100K/13/event_ordering-1").evidence_ids) > 1
    assert {"24", "26", "28", "146"} <= set(beam.task("100K/18/event_ordering-1").evidence_ids)
    assert beam.task("100K/18/summarization-0").evidence == beam.task("100K/18/summarization-1").evidence == ()
    assert beam.task("500K/1/knowledge_update-0").evidence == ()
    assert beam.task("100K/1/temporal_reasoning-0").reference.startswith("I have exactly 4 weeks")
    assert beam.repairs == {
        "empty list of evidence ids": 2,
        "evidence ids missing": 1,
        "generation marker cut from a message": 2673,
        "index repeated in its chat, not used": 7,
        "marker in a message that is no main question, cut": 11,
        "marker with another index than two numbers, cut": 27,
        "nested evidence ids flattened": 3,
        "number of mentions differs from the rubric, rubric kept": 2,
        "rubric contradicts the reference, rubric kept": 2,
    }


def test_real_folders_of_one_size(data_dir: Path) -> None:
    folders = chat_folders(data_dir / "beam" / "chats" / "100K")
    assert [folder.name for folder in folders] == ["1", "2", "4", "6", "7", "8", "11", "13", "14", "16", "18", "19"]
