"""Texts that are numbers or missing, speakers and roles that nobody knows: reported one by one, and kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.tasks.test_irregular_records import Slip, added, beam, locomo, longmemeval, message, perltqa

from prismem_core.tasks.history import Turn
from prismem_core.tasks.task import Dataset

ROLE = "role that is neither user nor assistant kept"


def turn_of(dataset: Dataset, turn_id: str) -> Turn:
    (history,) = dataset.histories.values()
    return next(turn for session in history.sessions for turn in session.turns if turn.id == turn_id)


def in_locomo(**fields: Any) -> Slip:
    """Changes the first turn of the sample's session 2, D2:1."""
    return lambda sample: sample["conversation"]["session_2"][0].update(fields)


@pytest.mark.parametrize(
    "fields, kept, kind, found",
    [
        ({"text": 5}, ("Bo", "5"), "turn text that is no text read as text", "5"),
        ({"text": 0}, ("Bo", "0"), "turn text that is no text read as text", "0"),
        ({"text": None}, ("Bo", ""), "turn without text kept", "null"),
        ({"text": " "}, ("Bo", ""), "turn without text kept", ""),
        ({"blip_caption": 3}, ("Bo", "I want a boat. [image: 3]"), "caption that is no text read as text", "3"),
        ({"speaker": "Cy"}, ("Cy", "I want a boat."), "turn of another speaker than the two, kept", "Cy"),
        ({"speaker": None}, ("", "I want a boat."), "turn without a speaker kept", ""),
    ],
)
def test_locomo_turns(tmp_path: Path, fields: dict[str, Any], kept: tuple[str, str], kind: str, found: str) -> None:
    dataset, reported = added(locomo, tmp_path, in_locomo(**fields))
    (field,) = fields
    assert reported == [("conv-9", f"turn D2:1, {field}", kind, found)]
    turn = turn_of(dataset, "D2:1")
    assert (turn.speaker, turn.text) == kept


@pytest.mark.parametrize(
    "fields, field, kind, found",
    [
        ({"question": 12}, "question", "question that is no text read as text", "12"),
        ({"category": "2"}, "category", "category that is text read as a number", "2"),
        ({"answer": " "}, "answer", "answer missing", ""),
    ],
)
def test_locomo_questions(tmp_path: Path, fields: dict[str, Any], field: str, kind: str, found: str) -> None:
    dataset, reported = added(locomo, tmp_path, lambda sample: sample["qa"][0].update(fields))
    assert ("conv-9/q000", field, kind, found) in reported
    task = dataset.task("conv-9/q000")
    assert (task.question, task.native_type) == (str(fields.get("question", "When did Ana paint?")), "temporal")


def test_locomo_questions_without_a_text_or_a_category(tmp_path: Path) -> None:
    kind = "question without text or known category left out"
    _, found = added(locomo, tmp_path, lambda sample: sample["qa"][0].pop("question"))
    assert [(where, field, what) for where, field, what, _ in found] == [("conv-9/q000", "question", kind)]
    _, found = added(locomo, tmp_path, lambda sample: sample["qa"][0].update(category=True))
    assert found == [("conv-9/q000", "category", kind, "true")]


def test_ids_that_are_missing_or_numbers(tmp_path: Path) -> None:
    dataset, found = added(locomo, tmp_path, lambda sample: sample.pop("sample_id"))
    assert ("conv-1", "sample_id", "conversation id missing, named by position", "") in found
    assert list(dataset.histories) == ["conv-1"]
    dataset, found = added(locomo, tmp_path, lambda sample: sample.update(sample_id=9))
    assert ("sample 0", "sample_id", "conversation id that is no text read as text", "9") in found
    assert list(dataset.histories) == ["9"]
    dataset, found = added(longmemeval, tmp_path, lambda instance: instance.pop("question_id"))
    assert ("question-1", "question_id", "question id missing, named by position", "") in found
    _, found = added(longmemeval, tmp_path, lambda instance: instance.update(question_id=7))
    assert ("instance 0", "question_id", "question id that is no text read as text", "7") in found


@pytest.mark.parametrize(
    "fields, kept, kind, found",
    [
        ({"content": 42}, ("assistant", "42"), "message text that is no text read as text", "42"),
        ({"content": ["a"]}, ("assistant", "['a']"), "message text that is no text read as text", '["a"]'),
        ({"content": " "}, ("assistant", " "), "message without text kept", ""),
        ({"role": "system"}, ("system", "Good."), ROLE, "system"),
        ({"role": None}, ("", "Good."), ROLE, "null"),
    ],
)
def test_beam_messages(tmp_path: Path, fields: dict[str, Any], kept: tuple[str, str], kind: str, found: str) -> None:
    dataset, reported = added(beam, tmp_path, message(0, 1, **fields))
    (field,) = fields
    assert reported == [("100K/7 message 1", field, kind, found)]
    turn = turn_of(dataset, "1")
    assert (turn.speaker, turn.text) == kept


def test_beam_messages_that_are_none(tmp_path: Path) -> None:
    _, found = added(beam, tmp_path, lambda source: source[0][0]["turns"][0].append("a text"))
    assert found == [("100K/7 batch 1", "turns", "message that is no object left out", "a text")]
    dataset, found = added(beam, tmp_path, lambda source: source[0][0]["turns"][0][1].pop("content"))
    assert found == [("100K/7 message 1", "content", "message without text kept", "null")]
    assert turn_of(dataset, "1").text == ""


def test_beam_questions_that_are_numbers(tmp_path: Path) -> None:
    task_id = "100K/7/knowledge_update-0"
    slip = {"question": 4, "answer": 3}
    dataset, found = added(beam, tmp_path, lambda source: source[1]["knowledge_update"][0].update(slip))
    assert set(found) == {
        (task_id, "question", "question that is no text read as text", "4"),
        (task_id, "answer", "answer that is no text read as text", "3"),
    }
    assert (dataset.task(task_id).question, dataset.task(task_id).reference) == ("4", "3")


@pytest.mark.parametrize(
    "fields, kept, kind, found",
    [
        ({"content": 42}, ("user", "42"), "turn text that is no text read as text", "42"),
        ({"role": "system"}, ("system", "Hello"), ROLE, "system"),
        ({"role": None}, ("", "Hello"), ROLE, "null"),
    ],
)
def test_longmemeval_turns(tmp_path: Path, fields: Any, kept: tuple[str, str], kind: str, found: str) -> None:
    dataset, reported = added(longmemeval, tmp_path, lambda v: v["haystack_sessions"][1][0].update(fields))
    (field,) = fields
    assert reported == [("q1 session padding_1", f"turn 1, {field}", kind, found)]
    turn = turn_of(dataset, "padding_1:1")
    assert (turn.speaker, turn.text) == kept


def test_longmemeval_packs_whose_lists_differ(tmp_path: Path) -> None:
    def pack(answers: Any) -> Slip:
        return lambda v: v.update(questions=["A?", "B?"], answers=answers, answer_session_ids=[["answer_9"]] * 2)

    kind = "lists of the pack are empty or differ in length"
    found = added(longmemeval, tmp_path, pack(["a", "b", "c"]))[1]
    assert ("q1", "questions", kind, "2 questions, 3 answers, 2 lists of evidence") in found
    assert kind not in {what for *_, what, _ in added(longmemeval, tmp_path, pack(["a", "b"]))[1]}


def test_perltqa_texts(tmp_path: Path) -> None:
    event = {"4_0_0": {"content": 5, "Creation Time": "2018"}}
    dataset, found = added(perltqa, tmp_path, lambda source: source[0]["events"].update(event))
    assert ("Ada 4_0_0", "content", "event text that is no text read as text", "5") in found
    assert turn_of(dataset, "event:4_0_0").text == "5"
    lines = {"contents": {"2019-07-15 10:00": ["Bo: Ahoy!", 7, None]}}
    dataset, found = added(perltqa, tmp_path, lambda source: source[0]["dialogues"].update({"9#1": lines}))
    assert [(field, kind) for where, field, kind, _ in found if where == "Ada 9#1"] == [
        ("line 2", "dialogue line that is no text read as text"),
        ("line 2", "dialogue line without a speaker"),
        ("line 3", "empty dialogue line left out"),
    ]
    _, found = added(perltqa, tmp_path, lambda source: source[1]["profile"][0].update(Question=5))
    assert found == [("Ada/profile-000", "Question", "question that is no text read as text", "5")]
    _, found = added(perltqa, tmp_path, lambda source: source[0].update(profile_description=5))
    assert found == [("Ada", "profile_description", "description that is no text read as text", "5")]
