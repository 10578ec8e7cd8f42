"""One slip in a record of form: each is reported once more than the same source without it, and the record is kept."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tasks.test_beam import CHAT, QUESTIONS
from tests.tasks.test_locomo import SAMPLE
from tests.tasks.test_longmemeval import INSTANCE
from tests.tasks.test_perltqa import GROUPS, RECORD, written

from prismem_core.tasks.datasets import load
from prismem_core.tasks.task import Dataset

Slip = Callable[[Any], Any]
Report = tuple[str, str, str, str]


def locomo(folder: Path, slip: Slip) -> Dataset:
    sample = copy.deepcopy(SAMPLE)
    slip(sample)
    path = folder / "locomo.json"
    path.write_text(json.dumps([sample]), encoding="utf-8")
    return load(path)


def beam(folder: Path, slip: Slip) -> Dataset:
    """A slip gets `(chat, questions)`."""
    chat, questions = copy.deepcopy(CHAT), copy.deepcopy(QUESTIONS)
    slip((chat, questions))
    path = folder / "100K.json"
    path.write_text(
        json.dumps([{"conversation_id": "7", "chat": chat, "probing_questions": questions}]), encoding="utf-8"
    )
    return load(path)


def longmemeval(folder: Path, slip: Slip) -> Dataset:
    instance = copy.deepcopy(INSTANCE)
    slip(instance)
    path = folder / "longmemeval.json"
    path.write_text(json.dumps([instance]), encoding="utf-8")
    return load(path)


def perltqa(folder: Path, slip: Slip) -> Dataset:
    """A slip gets `(memory, questions)` of the character."""
    record, groups = copy.deepcopy(RECORD), copy.deepcopy(GROUPS)
    slip((record, groups))
    return load(written(folder / "perltqa", {"Ada": record}, [{"Ada": groups}]))


def reports(dataset: Dataset) -> Counter[Report]:
    return Counter((item.record, item.field, item.kind, item.found) for item in dataset.irregularities)


def added(load_with: Callable[[Path, Slip], Dataset], folder: Path, slip: Slip) -> tuple[Dataset, list[Report]]:
    """The data set with the slip, and what is reported of it that is not without."""
    plain = load_with(folder, lambda _: None)
    slipped = load_with(folder, slip)
    return slipped, list((reports(slipped) - reports(plain)).elements())


def message(number: int, position: int, **fields: Any) -> Slip:
    """Changes one message of BEAM: the number of its batch, and its position there."""
    return lambda source: [m for turn in source[0][number]["turns"] for m in turn][position].update(fields)


def shown_times(dataset: Dataset) -> list[str]:
    (history,) = dataset.histories.values()
    return [session.timestamp for session in history.sessions]


@pytest.mark.parametrize(
    "date", ["sometime", "1:56 pm on 31 June, 2023", "13:56 pm on 8 May, 2023", "8 May 2023", 2023]
)
def test_a_locomo_date_that_cannot_be_read(tmp_path: Path, date: Any) -> None:
    dataset, found = added(locomo, tmp_path, lambda sample: sample["conversation"].update(session_2_date_time=date))
    kind = "session date of another form kept as text"
    assert found == [("conv-9", "session_2_date_time", kind, str(date))]
    assert shown_times(dataset)[1] == str(date)


@pytest.mark.parametrize("date", ["Foo-12-2024", "March-99-2024", "February-30-2023", "2024-03-15", 2024])
def test_a_beam_date_that_cannot_be_read(tmp_path: Path, date: Any) -> None:
    dataset, found = added(beam, tmp_path, message(0, 0, time_anchor=date))
    assert found[0] == ("100K/7 batch 1", "time_anchor", "date of another form kept as text", str(date))
    assert [where for where, *_ in found[1:]] == ["100K/7 batch 2"]  # which has none of its own
    assert shown_times(dataset)[:2] == [str(date)] * 2


def test_several_beam_dates_in_one_batch(tmp_path: Path) -> None:
    _, found = added(beam, tmp_path, message(0, 2, time_anchor="March-07-2024"))
    kind = "batch with several dates, first one kept"
    assert found == [("100K/7 batch 1", "time_anchor", kind, "March-05-2024; March-07-2024")]


@pytest.mark.parametrize("date", ["2023/13/45 (Sat) 10:00", "2023/02/30", "2023/05/20 (Sat) 25:00", "20 May", 20230520])
def test_a_longmemeval_date_that_cannot_be_read(tmp_path: Path, date: Any) -> None:
    dataset, found = added(longmemeval, tmp_path, lambda instance: instance["haystack_dates"].__setitem__(2, date))
    kind = "session date of another form kept as text"
    assert found[0] == ("q1 session padding_2", "haystack_dates", kind, str(date))
    assert str(date) in shown_times(dataset)
    dataset, found = added(longmemeval, tmp_path, lambda instance: instance.update(question_date=date))
    assert found == [("q1", "question_date", "question date of another form kept as text", str(date))]
    assert dataset.tasks[0].asked_at == str(date)


def test_perltqa_times_that_cannot_be_read(tmp_path: Path) -> None:
    dataset, found = added(
        perltqa, tmp_path, lambda s: s[0]["events"]["4_0_2"].update({"Creation Time": "May 45, 2017"})
    )
    assert found == [("Ada 4_0_2", "Creation Time", "event time of another form kept as text", "May 45, 2017")]
    assert "May 45, 2017" in shown_times(dataset)
    contents = {"2018-13-45 10:00": ["Bo: Ahoy!"]}
    dataset, found = added(perltqa, tmp_path, lambda s: s[0]["dialogues"]["4_0_0#1"].update(contents=contents))
    kind = "dialogue time of another form kept as text"
    assert found == [("Ada 4_0_0#1", "contents", kind, "2018-13-45 10:00")]
    assert "2018-13-45 10:00" in shown_times(dataset)


def test_locomo_sessions_that_go_back_in_time(tmp_path: Path) -> None:
    date = "9:00 am on 2 January, 2020"
    dataset, found = added(locomo, tmp_path, lambda sample: sample["conversation"].update(session_2_date_time=date))
    kind = "session dated before the last one, order of numbers kept"
    assert found == [("conv-9", "session_2_date_time", kind, f"{date}, after 9:00 am on 1 January, 2023")]
    assert shown_times(dataset)[1] == date


def test_locomo_gaps(tmp_path: Path) -> None:
    _, found = added(locomo, tmp_path, lambda sample: sample["conversation"].pop("session_2"))
    date = SAMPLE["conversation"]["session_2_date_time"]
    assert ("conv-9", "session_2_date_time", "session date without a session ignored", date) in found

    def without_session(sample: Any) -> None:
        del sample["conversation"]["session_2"], sample["conversation"]["session_2_date_time"]

    _, found = added(locomo, tmp_path, without_session)
    assert ("conv-9", "session_10", "gap in the numbers of sessions", "8 missing between 1 and 10") in found
    _, found = added(locomo, tmp_path, lambda sample: sample["conversation"]["session_1"].pop(0))
    assert ("conv-9", "turn D1:1, dia_id", "gap in the ids of turns", "D1:2, expected D1:1") in found


def test_locomo_numbers_and_ids_out_of_place(tmp_path: Path) -> None:
    again = [{"speaker": "Bo", "dia_id": "D2:2", "text": "Really."}]
    dataset, found = added(locomo, tmp_path, lambda sample: sample["conversation"].update(session_02=again))
    assert ("conv-9", "session_02", "session number repeated, both kept", "") in found
    assert [session.id for session in dataset.histories["conv-9"].sessions] == ["1", "2", "02", "10"]
    _, found = added(locomo, tmp_path, lambda sample: sample["conversation"]["session_10"][1].update(dia_id="x"))
    kind = "turn id that is not of its place, kept"
    assert ("conv-9", "turn D10:2, dia_id", kind, "x, expected D10:2") in found


def test_beam_batches_that_go_back_in_time_or_leave_a_gap(tmp_path: Path) -> None:
    dataset, found = added(beam, tmp_path, message(1, 0, time_anchor="March-04-2024"))
    kind = "batch dated before the last one, order kept"
    assert found == [("100K/7 batch 2", "time_anchor", kind, "March-04-2024, after March-05-2024")]
    assert shown_times(dataset)[1] == "March 4, 2024"
    _, found = added(beam, tmp_path, lambda source: source[0].pop(1))
    assert ("100K/7 batch 3", "batch_number", "batch numbers that do not go on, order kept", "3 after 1") in found
    assert ("100K/7 batch 3", "id", "message ids that do not go on, kept", "5, expected 4") in found
    _, found = added(beam, tmp_path, lambda source: source[0][1].update(batch_number="two"))
    assert ("100K/7 batch 2", "batch_number", "batch number that is no number, position taken", "two") in found


def test_beam_message_ids(tmp_path: Path) -> None:
    _, found = added(beam, tmp_path, message(0, 1, id="b"))
    assert ("100K/7 batch 1", "id", "message id that is no number kept", "b") in found
    _, found = added(beam, tmp_path, message(0, 1, id=0))
    assert found == [("100K/7 batch 1", "id", "message id missing or repeated, replaced by position", "0")]


def test_perltqa_dialogues_out_of_order_or_of_no_event(tmp_path: Path) -> None:
    dialogue = {"events": "9_9_9", "contents": {"2019-07-15 10:00": ["Bo: Hi."], "2019-07-14": ["Ada: Hi."]}}
    dataset, found = added(perltqa, tmp_path, lambda source: source[0]["dialogues"].update({"9#1": dialogue}))
    order = "dialogue out of order of time, sorted"
    assert found == [
        ("Ada 9#1", "events", "dialogue of an event that is not there, kept", "9_9_9"),
        ("Ada 9#1", "contents", order, "2019-07-14, after 2019-07-15 10:00"),
    ]
    assert shown_times(dataset)[-3:] == ["2019-07-14", "2019-07-15 10:00", "2019-07-15 10:00"]


SPLIT = "several evidence ids in one string split"
NO_LIST = "evidence that is no list read as one"
NO_TURN = "evidence id that names no turn dropped"
NO_MESSAGE = "evidence id that names no message dropped"
TEXT_ID = "evidence id that is text read as a number"


@pytest.mark.parametrize(
    "evidence, kept, kinds",
    [
        ("D1:1", ("D1:1",), [NO_LIST]),
        ("D1:1; D2:1", ("D1:1", "D2:1"), [NO_LIST, SPLIT]),
        (["D1:1", None, 3, ""], ("D1:1",), [NO_TURN] * 3),
        (["D1:1", ["D2:1"]], ("D1:1", "D2:1"), ["nested evidence ids flattened"]),
        ({"a": "D2:1"}, ("D2:1",), [NO_LIST]),
    ],
)
def test_locomo_evidence(tmp_path: Path, evidence: Any, kept: tuple[str, ...], kinds: list[str]) -> None:
    dataset, found = added(locomo, tmp_path, lambda sample: sample["qa"][0].update(evidence=evidence))
    assert sorted(kind for _, _, kind, _ in found) == sorted(kinds)
    assert {(where, field) for where, field, *_ in found} == {("conv-9/q000", "evidence")}
    assert dataset.tasks[0].evidence_ids == kept


@pytest.mark.parametrize(
    "ids, kept, expected",
    [
        ([0, None], ("0",), [("", NO_MESSAGE, "null")]),
        ([0, [None, 99]], ("0",), [("", "nested evidence ids flattened", "[0, [null, 99]]")]),
        ({"a": [0], "b": None}, ("0",), [(".b", "evidence ids missing", "")]),
        (["0", 2], ("0", "2"), [("", TEXT_ID, "0")]),
        ("[0, 2]", ("0", "2"), [("", "evidence ids that are no list read as one", "[0, 2]"), ("", TEXT_ID, "[0, 2]")]),
        (2, ("2",), [("", "evidence ids that are no list read as one", "2")]),
        ([0, True], ("0",), [("", NO_MESSAGE, "True")]),
    ],
)
def test_beam_evidence(tmp_path: Path, ids: Any, kept: tuple[str, ...], expected: list[tuple[str, str, str]]) -> None:
    follow = "instruction_following"
    dataset, found = added(beam, tmp_path, lambda s: s[1][follow][0].update(source_chat_ids=ids))
    for field, kind, what in expected:
        assert (f"100K/7/{follow}-0", f"source_chat_ids{field}", kind, what) in found
    if ids == [0, [None, 99]]:
        assert [what for *_, kind, what in found if kind == NO_MESSAGE] == ["null", "99"]
    else:
        assert len(found) == len(expected)
    assert dataset.task(f"100K/7/{follow}-0").evidence_ids == kept


def test_longmemeval_evidence(tmp_path: Path) -> None:
    _, found = added(longmemeval, tmp_path, lambda instance: instance.update(answer_session_ids="answer_9"))
    assert found == [("q1", "answer_session_ids", "evidence sessions that are no list read as one", "answer_9")]
    _, found = added(longmemeval, tmp_path, lambda instance: instance["answer_session_ids"].append(None))
    assert found == [("q1", "answer_session_ids", "evidence session that is not in the haystack", "null")]
    marked = INSTANCE["haystack_sessions"][1][0] | {"has_answer": "true"}
    _, found = added(longmemeval, tmp_path, lambda instance: instance["haystack_sessions"][1].__setitem__(0, marked))
    kind = "mark of evidence that is neither true nor false, not used"
    assert found == [("q1 session padding_1", "has_answer", kind, "true")]


def test_perltqa_references(tmp_path: Path) -> None:
    reference = {"Reference Memory": ["Age", None]}
    dataset, found = added(perltqa, tmp_path, lambda source: source[1]["profile"][0].update(reference))
    kind = "reference that names no memory dropped"
    assert found == [("Ada/profile-000", "Reference Memory", kind, '["Age", null]')]
    assert dataset.tasks[0].evidence == ("Age: 28",)


@pytest.mark.parametrize(
    "rubric, kept, expected",
    [
        (
            "LLM response should state: x",
            ("LLM response should state: x",),
            ["rubric that is no list read as one point"],
        ),
        (["a", 7], ("a", "7"), ["point of a rubric that is no text read as text"]),
        (["a", None, " "], ("a",), ["empty point of a rubric left out"] * 2),
        ([], (), ["rubric missing"]),
        (None, (), ["rubric missing"]),
        ("", (), ["rubric that is no list read as one point", "empty point of a rubric left out", "rubric missing"]),
    ],
)
def test_beam_rubrics(tmp_path: Path, rubric: Any, kept: tuple[str, ...], expected: list[str]) -> None:
    dataset, found = added(beam, tmp_path, lambda source: source[1]["abstention"][0].update(rubric=rubric))
    assert [(where, field, kind) for where, field, kind, _ in found] == [
        ("100K/7/abstention-0", "rubric", kind) for kind in expected
    ]
    assert dataset.task("100K/7/abstention-0").rubric == kept


@pytest.mark.parametrize(
    "slip, what",
    [
        (lambda source: source[1].pop("abstention"), ""),
        (lambda source: source[1].update(abstention=[]), "[]"),
        (lambda source: source[1].update(abstention=None), "null"),
    ],
)
def test_a_beam_type_without_questions(tmp_path: Path, slip: Slip, what: str) -> None:
    dataset, found = added(beam, tmp_path, slip)
    assert found == [("100K/7", "abstention", "no questions of a type", what)]
    assert len(dataset.tasks) == 6


def test_beam_questions_of_a_type_that_are_no_list(tmp_path: Path) -> None:
    dataset, found = added(beam, tmp_path, lambda source: source[1].update(abstention=source[1]["abstention"][0]))
    assert [(where, field, kind) for where, field, kind, _ in found] == [
        ("100K/7", "abstention", "questions of a type that are no list read as one")
    ]
    assert len(dataset.tasks) == 7


def test_a_beam_chat_without_questions(tmp_path: Path) -> None:
    rows = [
        {"conversation_id": number, "chat": CHAT, "probing_questions": asked}
        for number, asked in (("1", QUESTIONS), ("2", {}))
    ]
    (tmp_path / "100K.json").write_text(json.dumps(rows), encoding="utf-8")
    found = reports(load(tmp_path / "100K.json"))
    assert found["100K/2", "probing_questions", "chat without probing questions", ""] == 1
