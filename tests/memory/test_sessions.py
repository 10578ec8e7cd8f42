"""The forms of a session: what is read as what, and what is refused with which words."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismem_core.errors import ArgumentError
from prismem_core.memory.saved import sessions_text
from prismem_core.memory.sessions import new_sessions
from prismem_core.tasks.datasets.jsonl import load_jsonl
from prismem_core.tasks.datasets.source import Source
from prismem_core.tasks.history import Session, Turn

ONE = Session("1", "May 8, 2023", (Turn("1:1", "Ana", "I live in Lisbon."), Turn("1:2", "Ben", "")))


@pytest.mark.parametrize(
    "value",
    [
        ONE,
        {
            "time": "May 8, 2023",
            "turns": [{"speaker": "Ana", "text": "I live in Lisbon."}, ONE.turns[1]],
        },
        {"timestamp": "May 8, 2023", "turns": ONE.turns},
        {
            "id": 1,
            "time": "May 8, 2023",
            "turns": ({"role": "Ana", "content": "I live in Lisbon."}, {"id": None, "speaker": "Ben", "text": ""}),
        },
    ],
)
def test_equal_sessions_in_every_form(value: Any) -> None:
    assert new_sessions([value], []) == [ONE]


def test_a_list_is_the_turns_of_a_session_without_a_time() -> None:
    (session,) = new_sessions([[{"role": "user", "content": "Hello"}]], [ONE])
    assert session == Session("2", "", (Turn("2:1", "user", "Hello"),))


def test_ids_are_counted_on_past_those_that_are_taken() -> None:
    turns = [{"speaker": "Ana", "text": "x"}]
    sessions = new_sessions([{"id": "3", "turns": turns}, {"turns": turns}, {"turns": turns}], [ONE])
    assert [session.id for session in sessions] == ["3", "4", "5"]
    assert [session.turns[0].id for session in sessions] == ["3:1", "4:1", "5:1"]


def test_what_is_there_already_is_passed_over() -> None:
    assert new_sessions([ONE, ONE], [ONE]) == []
    assert new_sessions([ONE, ONE], []) == [ONE]


TURN = {"speaker": "Ana", "text": "x"}
REFUSED: list[tuple[Any, str]] = [
    ("hello", r'the session is "hello"; expected a mapping .* add_file'),
    (Path("talk.jsonl"), "add_file"),
    (None, "the session is not given"),
    (7, "the session is 7"),
    ({}, "has no turns"),
    ([], "has no turns"),
    ({"turns": []}, "has no turns"),
    ({"turns": {"speaker": "Ana"}}, "has no turns"),
    ({"turn": [TURN]}, r'unknown key "turn"; expected id, time, timestamp, turns'),
    ({"turns": [TURN], "time": 20230508}, "'time' is 20230508; expected a text"),
    ({"turns": [TURN], "time": "a", "timestamp": "b"}, "time and timestamp mean the same"),
    ({"turns": [TURN], "id": "  "}, "'id' is"),
    ({"turns": [TURN], "id": True}, "'id' is true"),
    ({"turns": [TURN], "id": "1"}, "another session of the id '1'"),
    ({"turns": ["hello"]}, 'turn 1 is "hello"; expected a mapping'),
    ({"turns": [TURN, {"text": "x"}]}, "turn 2: the speaker is not given"),
    ({"turns": [{"speaker": " ", "text": "x"}]}, 'the speaker is " "'),
    ({"turns": [{"speaker": "Ana"}]}, "the text is not given"),
    ({"turns": [{"speaker": "Ana", "text": ["x"]}]}, "the text is of type list"),
    ({"turns": [{"speaker": "Ana", "text": "x", "time": "y"}]}, 'unknown key "time"; expected id, speaker, role'),
    ({"turns": [{"speaker": "Ana", "role": "user", "text": "x"}]}, "speaker and role mean the same"),
    ({"turns": [{**TURN, "id": "a"}, {**TURN, "id": "a"}]}, "the id 'a' is there twice"),
    ({"turns": [{**TURN, "id": "1:1"}]}, r"the turn id '1:1' is taken \(session '1'\)"),
    ([[TURN]], "pass several sessions one by one"),
    ([{"turns": [TURN]}], r"pass several sessions one by one, as in add\(\*sessions\)"),
    ([ONE], "pass several sessions one by one"),
]


@pytest.mark.parametrize(("value", "words"), REFUSED, ids=[words[:40] for _, words in REFUSED])
def test_what_is_refused(value: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        new_sessions([value], [ONE])


def test_the_place_is_named_where_there_are_several() -> None:
    with pytest.raises(ArgumentError, match="session 2, turn 1: the speaker"):
        new_sessions([[TURN], [{"text": "x"}]], [])


names = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(string.ascii_letters), min_size=1).filter(
    lambda text: bool(text.strip())
)
texts = st.text(st.characters())


@given(st.lists(st.tuples(texts, st.lists(st.tuples(names, texts), min_size=1, max_size=3)), max_size=4))
def test_sessions_come_back_from_the_file_whatever_they_say(given: list[tuple[str, list[tuple[str, str]]]]) -> None:
    """Line breaks of every kind, null characters, half surrogate pairs: the text of a turn is anybody's."""
    values = [{"time": time, "turns": [{"speaker": s, "text": t} for s, t in turns]} for time, turns in given]
    sessions = new_sessions(values, [])
    data = sessions_text(sessions).decode("utf-8")
    assert data.count("\n") == bool(sessions)
    source = Source(Path("."))
    histories = load_jsonl([(Path("sessions.jsonl"), data)], "memory", source).histories if data else {}
    assert [session for history in histories.values() for session in history.sessions] == sessions
