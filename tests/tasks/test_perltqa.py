"""PerLTQA: both files, every release's form, groups, references, and records out of form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prismem_core.errors import DataError
from prismem_core.tasks.datasets import load
from prismem_core.tasks.task import Dataset

RECORD: dict[str, Any] = {
    "profile": {"Protagonist": "Ada", "Age": 28, "Hobbies": "chess"},
    "profile_description": "Ada plays chess.",
    "social_relationship": {"4_0": {"Supporting Characters": "Bo", "Description": "brother", "Relationship": "kin"}},
    "events": {
        "4_0_0": {"content": "They sailed.", "summary": "s", "Creation Time": "2018", "Theme": "sea"},
        "4_0_1": {"content": "They voted.", "summary": "v", "Creation Time": "during an election"},
        "4_0_2": {"content": "They moved.", "summary": "m", "Creation Time": "May 12, 2017"},
    },
    "dialogues": {
        "4_0_0#1": {
            "events": "4_0_0",
            "contents": {"2019-07-15 10:00": ["Bo: Ahoy: hi!", "Ada: Hi."], "2018-07-16 10:00": ["(silence)"]},
        }
    },
}


def asked(question: str, reference: Any, **more: Any) -> dict[str, Any]:
    return {"Question": question, "Answer": "x", "Reference Memory": reference, "Memory Anchors": [], **more}


GROUPS: dict[str, Any] = {
    "profile": [asked("Age?", "Age")],
    "social_relationship": [{"4_0": [asked("Who?", "['4_0']")]}],
    "events": [{"4_0_0": [asked("What?", "['4_0_0', '4_0_1']"), asked("Lost?", "['9_9_9']")]}],
    "dialogues": [{"4_0_0#1": [asked("Said?", ["4_0_0#1"], **{"Memory Anchors": [{"&#39;": [-1, -1]}]})]}],
}


def written(folder: Path, memory: Any, questions: Any, end: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"perltmem{end}.json").write_text(json.dumps(memory, ensure_ascii=False), encoding="utf-8")
    (folder / f"perltqa{end}.json").write_text(json.dumps(questions, ensure_ascii=False), encoding="utf-8")
    return folder


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return load(written(tmp_path / "data", {"Ada": RECORD}, [{"Ada": GROUPS}]))


def test_memory_becomes_sessions_undated_first(dataset: Dataset) -> None:
    assert [session.text for session in dataset.histories["Ada"].sessions] == [
        "[Session 1]\nProfile: Protagonist: Ada\nProfile: Age: 28\nProfile: Hobbies: chess\nProfile: Ada plays chess.",
        "[Session 2]\nRelationship: Supporting Characters: Bo; Description: brother; Relationship: kin",
        "[Session 3: during an election]\nEvent: They voted.",
        "[Session 4: May 12, 2017]\nEvent: They moved.",
        "[Session 5: 2018]\nEvent: They sailed.",
        "[Session 6: 2018-07-16 10:00]\nUnknown: (silence)",
        "[Session 7: 2019-07-15 10:00]\nBo: Ahoy: hi!\nAda: Hi.",
    ]


def test_questions_by_group_with_the_referenced_memory(dataset: Dataset) -> None:
    assert [(t.id, t.native_type, t.benchmark, t.evidence) for t in dataset.tasks] == [
        ("Ada/profile-000", "profile", "perltqa", ("Age: 28",)),
        (
            "Ada/social_relationship-000",
            "social_relationship",
            "perltqa",
            ("Supporting Characters: Bo; Description: brother; Relationship: kin",),
        ),
        ("Ada/events-000", "events", "perltqa", ("They sailed.", "They voted.")),
        ("Ada/events-001", "events", "perltqa", ("They sailed.",)),
        ("Ada/dialogues-000", "dialogues", "perltqa", ("Ahoy: hi!", "Hi.", "(silence)")),
    ]


def test_each_irregular_record_is_reported(dataset: Dataset) -> None:
    assert [(item.file, item.record, item.kind, item.variant) for item in dataset.irregularities] == [
        ("perltmem.json", "Ada 4_0_1", "event time of another form kept as text", True),
        ("perltmem.json", "Ada 4_0_0#1", "event time and dialogue time differ, both kept", True),
        ("perltmem.json", "Ada 4_0_0#1", "dialogue line without a speaker", False),
        ("perltmem.json", "Ada 4_0_0#1", "dialogue out of order of time, sorted", False),
        ("perltqa.json", "Ada/events-001", "reference that names no memory dropped", False),
        ("perltqa.json", "Ada/events-001", "memory of the group taken as evidence", False),
        ("perltqa.json", "Ada/dialogues-000", "memory anchor with HTML entities, not used", True),
    ]


def test_earlier_releases_have_lists_and_objects(tmp_path: Path, dataset: Dataset) -> None:
    grouped = {
        name: {key: records for entry in group for key, records in entry.items()} if name != "profile" else group
        for name, group in GROUPS.items()
    }
    first = load(written(tmp_path / "v1", [RECORD], {"Ada": grouped}, "_en"))
    assert first.histories == dataset.histories
    assert first.tasks == dataset.tasks


def test_a_character_may_be_named_twice(tmp_path: Path) -> None:
    folder = written(tmp_path / "again", {"Ada": RECORD}, [{"Ada": {"profile": [asked("Age?", "Age")]}}] * 2)
    assert [task.id for task in load(folder).tasks] == ["Ada/profile-000", "Ada/profile-001"]


def test_either_file_finds_the_other(tmp_path: Path) -> None:
    folder = written(tmp_path / "two", {"Ada": RECORD}, [{"Ada": GROUPS}], "_en")
    written(folder, {"Ada": RECORD}, [{"Ada": GROUPS}], "_zh")
    tasks = load(folder / "perltqa_en.json").tasks
    assert load(folder / "perltmem_en.json").tasks == tasks
    with pytest.raises(DataError, match="4 JSON files: name one of them"):
        load(folder)
    (folder / "perltmem_zh.json").unlink()
    (folder / "perltmem_en.json").unlink()
    with pytest.raises(DataError, match=r"its memory file .* must lie beside it, found 0"):
        load(folder / "perltqa_zh.json")


def test_records_out_of_form(tmp_path: Path) -> None:
    record = {
        **RECORD,
        "social_relationship": repr(RECORD["social_relationship"]),
        "events": {"4_0_0": {"content": ""}, "4_0_3": "They swam."},
        "dialogues": {"d1": {"contents": {}}, "d2": {"contents": {"some day": [["甲：你好"], []]}}},
    }
    groups = {
        "profile": [
            asked("", "Age"),
            asked("Age?", None),
            {"question": "Hobby?", "answer": 3, "reference_memory": "Hobbies"},
        ],
        "dreams": [asked("?", "x")],
        "social_relationship": [{"4_0": [asked("Who?", "['4_0']")]}],
    }
    dataset = load(written(tmp_path / "odd", {"Ada": record, "Bo": 3}, [{"Ada": groups}, {"Cy": GROUPS}, 5]))
    kinds = [(item.record, item.kind) for item in dataset.irregularities]
    assert kinds == [
        ("Ada", "group that is a literal in a string, parsed"),
        ("Ada 4_0_0", "event without text left out"),
        ("Ada 4_0_3", "event without a time"),
        ("Ada d1", "dialogue without text left out"),
        ("Ada d2", "dialogue time of another form kept as text"),
        ("Bo", "character that is no object left out"),
        ("Ada/profile-000", "question without text left out"),
        ("Ada/profile-001", "question without evidence"),
        ("Ada/profile-002", "answer that is no text read as text"),
        ("Ada", "questions of an unknown group left out"),
        ("Cy", "questions about a character without a memory left out"),
        ("", "questions that are no object left out"),
    ]
    assert dataset.histories["Ada"].sessions[-1].text == "[Session 4: some day]\n甲: 你好"
    assert [task.evidence for task in dataset.tasks][-1] == (
        "Supporting Characters: Bo; Description: brother; Relationship: kin",
    )


def test_the_real_excerpt(data_dir: Path) -> None:
    dataset = load(data_dir / "perltqa")
    counts = {name: sum(t.native_type == name for t in dataset.tasks) for name in GROUPS}
    assert counts == {"profile": 13, "social_relationship": 17, "events": 8, "dialogues": 3}
    assert all(task.evidence for task in dataset.tasks)
    assert dataset.task("Zhang Xiaohong/profile-003").evidence == ("Age: 28",)
    assert len(dataset.task("Zhang Xiaohong/dialogues-000").evidence) == 17
