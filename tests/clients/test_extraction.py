"""Units from segments by field names, types, descriptions and the words of the instruction."""

from __future__ import annotations

from typing import Any

import pytest

from prismem_core.clients.offline.extraction import cut_passages, extract, split_segment

SEGMENT = "[Session 1: 1:56 pm on 8 May, 2023]\nAna: I moved to Oslo last week. I love rowing!\nBen: Did Tom help?"
MAIN = {"name": "memory_text", "type": "str", "description": "One piece of information worth remembering from the text"}


def field(name: str, kind: str = "str", description: str = "") -> dict[str, str]:
    return {"name": name, "type": kind, "description": description}


def units(*fields: dict[str, str], instruction: str = "Extract.", text: str = SEGMENT) -> list[dict[str, Any]]:
    return extract({"instruction": instruction, "fields": list(fields), "text": text})


def test_one_unit_a_turn_with_its_text_verbatim() -> None:
    assert units(MAIN) == [
        {"memory_text": "Ana: I moved to Oslo last week. I love rowing!"},
        {"memory_text": "Ben: Did Tom help?"},
    ]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (field("speaker"), "Ana"),
        (field("session_date"), "8 May 2023"),
        (field("when_it_happened", description="when it happened"), "the week before 8 May 2023"),
        (field("event_date"), "the week before 8 May 2023"),
        (field("people", "list[str]"), ["Ana", "Oslo"]),
        (field("is_preference", "bool"), True),
        (field("holds_question", "bool"), False),
        (field("place"), "Oslo"),
        (field("places", "list[str]", "location it speaks of"), ["Oslo"]),
        (field("timestamp", "int"), 20230508),
        (field("x", description="Who said it"), "Ana"),
        (field("colour"), ""),
        (field("colours", "list[str]"), []),
        (field("size", "int"), 0),
        (field("size", "float"), 0.0),
        (field("flag", "bool"), False),
        (field("colour", "optional:str"), None),
        (field("colours", "optional:list[str]"), None),
    ],
)
def test_values_by_name_type_and_description(asked: dict[str, str], expected: Any) -> None:
    value = units(MAIN, asked)[0][asked["name"]]
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize("header", ["[Session 1]", "[Session 1: some day soon]", "[Session 1: 31 February, 2023]"])
def test_a_time_that_cannot_be_read_is_never_now(header: str) -> None:
    text = f"{header}\nAna: I moved to Oslo yesterday."
    (unit,) = units(MAIN, field("session_date"), field("event_date"), field("timestamp", "int"), text=text)
    assert unit["memory_text"] == "Ana: I moved to Oslo yesterday."
    assert unit["session_date"] == "" and unit["timestamp"] == 0
    assert unit["event_date"] == "yesterday", "without a day of the talk the words stand as they were said"


def test_topics_are_content_words() -> None:
    (first, _) = units(MAIN, field("topics", "list[str]"))
    assert "Oslo" in first["topics"] and "rowing" in first["topics"]
    assert not {"I", "to"} & set(first["topics"])


def test_importance_is_scaled_to_its_type() -> None:
    (first, _) = units(MAIN, field("importance", "float"), field("confidence", "int"))
    assert 0.0 < first["importance"] <= 1.0
    assert first["confidence"] == round(10 * first["importance"])


def test_some_text_field_holds_the_passage() -> None:
    assert units(field("note"), field("speaker"))[1] == {"note": "Ben: Did Tom help?", "speaker": "Ben"}


def test_a_schema_without_text_still_gives_units() -> None:
    assert units(field("flag", "bool")) == [{"flag": False}, {"flag": False}]


@pytest.mark.parametrize(
    ("instruction", "texts"),
    [
        (
            "Make one unit of each sentence.",
            ["Ana: I moved to Oslo last week.", "Ana: I love rowing!", "Ben: Did Tom help?"],
        ),
        ("Keep every exchange together.", ["Ana: I moved to Oslo last week. I love rowing!\nBen: Did Tom help?"]),
    ],
)
def test_granularity(instruction: str, texts: list[str]) -> None:
    assert [unit["memory_text"] for unit in units(MAIN, instruction=instruction)] == texts


def test_assistant_turns_can_be_left_out() -> None:
    text = "[Session 1]\nuser: I like tea\nassistant: Step 1: boil water\nNote: mind the heat\nuser: ok"
    assert [u["memory_text"] for u in units(MAIN, text=text)] == [
        "user: I like tea",
        "assistant: Step 1: boil water Note: mind the heat",
        "user: ok",
    ]
    kept = units(MAIN, instruction="Record only the user; skip the assistant.", text=text)
    assert [u["memory_text"] for u in kept] == ["user: I like tea", "user: ok"]


def test_long_turns_become_passages_that_hold_every_word() -> None:
    sentence = "The kettle boils slowly while the rain keeps falling outside. "
    text = f"[Session 1]\nAna: {sentence * 12}"
    usual = [u["memory_text"] for u in units(MAIN, text=text)]
    short = [u["memory_text"] for u in units(MAIN, instruction="A unit is a short passage.", text=text)]
    whole = [u["memory_text"] for u in units(MAIN, instruction="Keep the whole message.", text=text)]
    assert len(whole) == 1 < len(usual) < len(short)
    assert all(len(u) <= 350 + len("Ana: ") for u in usual)
    for found in (usual, short, whole):
        assert " ".join(u.removeprefix("Ana: ") for u in found).split() == (sentence * 12).split()


def test_a_text_little_longer_than_a_passage_stays_whole() -> None:
    sentence = "The kettle boils slowly. "
    assert cut_passages(sentence * 6, 100) == [(sentence * 6).strip()]
    assert len(cut_passages(sentence * 7, 100)) == 2


def test_a_sentence_longer_than_a_passage_stays_whole() -> None:
    assert cut_passages("word " * 200, 100) == [" ".join(["word"] * 200)]
    assert cut_passages("   ", 100) == []


def test_turns_may_span_lines() -> None:
    header, turns = split_segment("[Session 2: 9 May 2023]\nAna: one\ntwo: three\nBen: four")
    assert header == "[Session 2: 9 May 2023]"
    assert turns == [("Ana", "one\ntwo: three"), ("Ben", "four")]


def test_an_empty_segment_has_no_units() -> None:
    assert units(MAIN, text="[Session 1]") == []
    assert units(MAIN, text="") == []
