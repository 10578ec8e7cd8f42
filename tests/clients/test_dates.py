"""Time expressions and what they point to."""

from __future__ import annotations

from datetime import date
from itertools import pairwise

import pytest

from prismem_core.clients.offline.dates import (
    Period,
    add_months,
    durations,
    long_date,
    named_periods,
    parse_date,
    time_expressions,
)

SAID = date(2023, 7, 17)  # a Monday


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("I went yesterday", "16 July 2023"),
        ("the day before yesterday we met", "15 July 2023"),
        ("see you tomorrow", "18 July 2023"),
        ("last night was fun", "16 July 2023"),
        ("two days ago I left", "15 July 2023"),
        ("a couple of days ago", "15 July 2023"),
        ("a week ago", "the week before 17 July 2023"),
        ("two weekends ago", "two weekends before 17 July 2023"),
        ("3 weeks ago", "three weeks before 17 July 2023"),
        ("two months ago", "May 2023"),
        ("ten years ago", "2013"),
        ("a few weeks ago", "a few weeks before 17 July 2023"),
        ("last week", "the week before 17 July 2023"),
        ("this past weekend", "the weekend before 17 July 2023"),
        ("next month", "August 2023"),
        ("last year", "2022"),
        ("last summer", "the summer of 2022"),
        ("last Fri", "the Friday before 17 July 2023"),
        ("I joined on Tuesday", "the Tuesday before 17 July 2023"),
        ("I'll join on Tuesday", "the Tuesday after 17 July 2023"),
        ("next Friday", "the Friday after 17 July 2023"),
        ("in March we moved", "March 2023"),
        ("In June 2021 we moved", "June 2021"),
        ("since 2016", "since 2016"),
        ("on August 13th", "13 August 2023"),
        ("the 15th of July", "15 July 2023"),
        ("on May 5, 2022", "5 May 2022"),
    ],
)
def test_expressions_resolve_against_the_day_of_the_talk(text: str, phrase: str) -> None:
    assert [e.phrase for e in time_expressions(text, SAID)] == [phrase]


@pytest.mark.parametrize(
    "text", ["I may go", "he sat down in the sun", "we march on", "room 2023a", "no time at all", ""]
)
def test_words_that_only_look_like_times_are_left_alone(text: str) -> None:
    assert time_expressions(text, SAID) == ()


def test_without_a_day_of_the_talk_relative_expressions_keep_their_words() -> None:
    assert [e.phrase for e in time_expressions("last week, on 8 May 2023", None)] == ["last week", "8 May 2023"]


def test_expressions_stand_in_order_and_never_overlap() -> None:
    found = time_expressions("In 2020, then last month and yesterday", SAID)
    assert [e.kind for e in found] == ["year", "month", "day"]
    assert all(a.end <= b.start for a, b in pairwise(found))


@pytest.mark.parametrize(
    "text",
    [
        "1:56 pm on 8 May, 2023",
        ["March-15-2024", "May 8, 2023"][1],
        "2023/05/08 (Mon) 02:21",
        "8th of May 2023",
    ],
)
def test_full_dates_of_the_common_spellings(text: str) -> None:
    assert parse_date(text) == date(2023, 5, 8)


def test_dates_that_do_not_exist_are_none() -> None:
    assert parse_date("31 February 2023") is None
    assert parse_date("soon") is None


def test_month_arithmetic_crosses_years() -> None:
    assert add_months(date(2023, 1, 31), -2) == date(2022, 11, 1)
    assert long_date(date(2023, 5, 8)) == "8 May 2023"


def test_durations() -> None:
    assert durations("We lived there for about three years, since 2016") == ("for about three years", "since 2016")
    assert durations("five years ago, a 7 years old dog") == ()


def test_named_periods_take_the_narrowest_reading() -> None:
    assert named_periods("in May 2022 and on 16 June, 2023") == (Period(2023, 6, 16), Period(2022, 5, None))
    assert named_periods("in August") == (Period(None, 8, None),)
    assert Period(2023, 6, 16).holds(date(2023, 6, 18))
    assert not Period(2023, 6, 16).holds(date(2023, 6, 25))
    assert Period(None, 8, None).holds(date(2021, 8, 1))
    assert not Period(2022, 8, None).holds(date(2021, 8, 1))
