"""Lines of retrieved texts in the formats programs print."""

from __future__ import annotations

from datetime import date

import pytest

from prismem_core.clients.offline.lines import closing_question, names, parse_lines, sentences

DAY = date(2023, 5, 8)


@pytest.mark.parametrize(
    "line",
    [
        "[8 May 2023] Ana: I saw a heron",
        "(8 May 2023) Ana: I saw a heron",
        "8 May 2023 | Ana: I saw a heron",
        "2023-05-08: Ana: I saw a heron",
        "8 May 2023 - Ana: I saw a heron",
        "- [1:56 pm on 8 May, 2023] Ana: I saw a heron",
        "1. Ana (8 May 2023): I saw a heron",
        "Ana: I saw a heron (8 May 2023)",
        "[Session 3: 8 May 2023] Ana: I saw a heron",
    ],
)
def test_formats_give_the_same_parts(line: str) -> None:
    (found,) = parse_lines(line)
    assert (found.day, found.speaker, found.body) == (DAY, "Ana", "I saw a heron")


def test_a_line_without_anything_is_all_body() -> None:
    (found,) = parse_lines("the heron: a bird (grey)")
    assert (found.day, found.speaker, found.body) == (None, "", "the heron: a bird (grey)")


def test_captions_belong_to_the_body() -> None:
    (found,) = parse_lines("Ana: [image: a photo of a heron]")
    assert found.body == "[image: a photo of a heron]"


def test_headings_date_the_lines_after_them() -> None:
    found = parse_lines("[Session 1: 8 May 2023]\nAna: one\n\n[Session 2: 9 May 2023]\nBen: two\nmore of two")
    assert [(f.day, f.speaker, f.body) for f in found] == [
        (DAY, "Ana", "one"),
        (date(2023, 5, 9), "Ben", "two"),
        (date(2023, 5, 9), "Ben", "more of two"),
    ]


def test_a_date_behind_a_dated_line_is_told_apart() -> None:
    (found,) = parse_lines("[8 May 2023] Ana: I saw a heron (the week before 8 May 2023)")
    assert (found.body, found.told) == ("I saw a heron", "the week before 8 May 2023")


def test_a_line_knows_the_question_it_replies_to() -> None:
    text = "[8 May 2023] Ben: Hi! What did you see?\n[8 May 2023] Ana: A heron\n[9 May 2023] Ben: Nice"
    assert [f.asked for f in parse_lines(text)] == ["", "What did you see?", ""]
    other_day = "[7 May 2023] Ben: What did you see?\n[8 May 2023] Ana: A heron"
    assert [f.asked for f in parse_lines(other_day)] == ["", ""]
    same_speaker = "Ana: What did I see?\nAna: A heron"
    assert [f.asked for f in parse_lines(same_speaker)] == ["", ""]


def test_closing_question_may_be_followed_by_a_caption() -> None:
    assert closing_question("Hi. Seen this? [image: a heron]") == "Seen this?"
    assert closing_question("Seen this? I have. It was grey.") == ""


def test_sentences_mind_abbreviations_and_line_ends() -> None:
    assert sentences('Dr. Lee came. "Well," he said! Now?\nYes') == ("Dr. Lee came.", '"Well," he said!', "Now?", "Yes")
    assert sentences("It costs 3.5 euros.") == ("It costs 3.5 euros.",)
    assert sentences("  ") == ()


def test_names_leave_sentence_starts_and_dates_out() -> None:
    assert names("Yesterday Ana met Tom Baker in New York. Wow, on Monday in May I rest.") == (
        "Ana",
        "Tom Baker",
        "New York",
    )
