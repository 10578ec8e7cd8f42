"""Dates and time expressions: found in a text and resolved against the day the text was said.

A resolved expression is phrased as people would note it down: a day for what points to a day ("7 May 2023"), else the
span seen from the day of the talk ("the week before 9 June 2023", "June 2023", "2022").
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTH_NUMBERS = {name.lower(): i + 1 for i, name in enumerate(MONTHS)}
_MONTH_NUMBERS |= {name[:3].lower(): i + 1 for i, name in enumerate(MONTHS)} | {"sept": 9}
_WEEKDAY_NUMBERS = {name.lower(): i for i, name in enumerate(WEEKDAYS)}
_WEEKDAY_NUMBERS |= {"mon": 0, "tue": 1, "tues": 1, "wed": 2, "weds": 2, "thu": 3, "thur": 3, "thurs": 3, "fri": 4}
_WEEKDAY_NUMBERS |= {"sat": 5, "sun": 6}
NUMBER_WORDS = {
    word: i
    for i, word in enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    )
}
_WORDS_OF = {i: word for word, i in NUMBER_WORDS.items()}

_MONTH = (
    r"(?P<month>January|February|March|April|May|June|July|August|September|October|November|December|Jan|Feb|"
    r"Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)"
)
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_WEEKDAY = r"(?P<weekday>monday|tuesday|wednesday|thursday|friday|saturday|sunday|tues?|weds?|thurs?|thu|fri|mon)"
_COUNT = (
    r"(?P<count>\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|a couple(?: of)?|"
    r"couple(?: of)?|a few|few|several|some)"
)
_UNIT = r"(?P<unit>day|week|weekend|month|year|hour|minute)s?"

_FULL_DATES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b{_DAY}\s+(?:of\s+)?{_MONTH}\.?,?\s+{_YEAR}\b",
        rf"\b{_MONTH}\.?[ -]{_DAY},?[ -]\s*{_YEAR}\b",
        r"\b(?P<year>(?:19|20)\d\d)[-/](?P<month>[01]?\d)[-/](?P<day>[0-3]?\d)\b",
    )
)


@dataclass(frozen=True)
class TimeExpression:
    """One expression: its place in the text, what it resolves to, and the day where it names one.

    `kind` is `day`, `week`, `month`, `year` or `vague`.
    """

    start: int
    end: int
    phrase: str
    kind: str
    day: date | None = None


def long_date(day: date) -> str:
    """`8 May 2023`."""
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def _date_of(match: re.Match[str]) -> date | None:
    month = match["month"].lower()
    try:
        return date(int(match["year"]), int(month) if month.isdigit() else _MONTH_NUMBERS[month], int(match["day"]))
    except ValueError:
        return None


@lru_cache(maxsize=1 << 14)
def parse_date(text: str) -> date | None:
    """The first full date written in the text, None without one."""
    found = [
        (match.start(), day)
        for pattern in _FULL_DATES
        for match in pattern.finditer(text)
        if (day := _date_of(match)) is not None
    ]
    return min(found)[1] if found else None


def add_months(day: date, months: int) -> date:
    """The first day of the month `months` after that of `day`."""
    index = day.year * 12 + day.month - 1 + months
    return date(index // 12, index % 12 + 1, 1)


def month_year(day: date) -> str:
    """`May 2023`."""
    return f"{MONTHS[day.month - 1]} {day.year}"


def _count(word: str) -> int | None:
    word = word.lower().removeprefix("a ") if word.lower() not in ("a", "an") else "one"
    if word.isdigit():
        return int(word)
    return 2 if word.startswith("couple") else NUMBER_WORDS.get(word)


def _nearest_year(month: int, day: int, anchor: date) -> date | None:
    candidates = []
    for year in (anchor.year, anchor.year - 1, anchor.year + 1):
        try:
            candidates.append(date(year, month, day))
        except ValueError:
            continue
    return min(candidates, key=lambda d: abs((d - anchor).days)) if candidates else None


def _day(day: date) -> tuple[str, str, date]:
    return long_date(day), "day", day


Resolved = tuple[str, str, date | None]


def _ago(match: re.Match[str], anchor: date, _text: str) -> Resolved | None:
    number, unit = _count(match["count"]), match["unit"].lower()
    if unit in ("hour", "minute"):
        return _day(anchor)
    if number is None:
        return f"{match['count'].lower()} {unit}s before {long_date(anchor)}", "vague", None
    try:
        if unit == "day":
            return _day(anchor - timedelta(days=number))
        if unit == "month":
            return month_year(add_months(anchor, -number)), "month", add_months(anchor, -number)
        if unit == "year":
            return str(anchor.year - number), "year", None
    except (ValueError, OverflowError):
        return None
    if number == 1:
        return f"the {unit} before {long_date(anchor)}", "week", None
    return f"{_WORDS_OF.get(number, number)} {unit}s before {long_date(anchor)}", "week", None


def _relative_span(match: re.Match[str], anchor: date, _text: str) -> Resolved | None:
    which, what = match["which"].lower(), match["what"].lower()
    step = -1 if "last" in which or "past" in which or "previous" in which else 0 if "this" in which else 1
    if what == "month":
        return month_year(add_months(anchor, step)), "month", add_months(anchor, step)
    if what == "year":
        return str(anchor.year + step), "year", None
    if what in ("week", "weekend"):
        return f"the {what} {('before', 'of', 'after')[step + 1]} {long_date(anchor)}", "week", None
    if what in ("spring", "summer", "fall", "autumn", "winter"):
        return f"the {what} of {anchor.year + step}", "month", None
    if what in ("night", "evening"):
        return _day(anchor + timedelta(days=min(step, 0)))
    if what in ("morning", "afternoon"):
        return _day(anchor)
    return None


def _weekday(match: re.Match[str], anchor: date, text: str) -> Resolved:
    which = (match["which"] or "").lower()
    name = WEEKDAYS[_WEEKDAY_NUMBERS[match["weekday"].lower()]]
    ahead = "next" in which or "coming" in which or ("last" not in which and "past" not in which and _FUTURE(text))
    return f"the {name} {'after' if ahead else 'before'} {long_date(anchor)}", "week", None


def _month(match: re.Match[str], anchor: date, _text: str) -> Resolved:
    month, which = _MONTH_NUMBERS[match["month"].lower()], match["which"].lower()
    nearest = _nearest_year(month, 1, anchor)
    assert nearest is not None
    if "last" in which and nearest > anchor.replace(day=1):
        nearest = nearest.replace(year=nearest.year - 1)
    if "next" in which and nearest < anchor:
        nearest = nearest.replace(year=nearest.year + 1)
    return month_year(nearest), "month", nearest


def _day_month(match: re.Match[str], anchor: date, _text: str) -> Resolved | None:
    day = _nearest_year(_MONTH_NUMBERS[match["month"].lower()], int(match["day"]), anchor)
    return None if day is None else _day(day)


_FUTURE: Callable[[str], re.Match[str] | None] = re.compile(
    r"\b(?:will|going to|gonna|planning|plan to|can't wait|looking forward|upcoming|coming up|tomorrow)\b|'ll\b",
    re.IGNORECASE,
).search

_NEAR = {
    "yesterday": -1, "last night": -1, "the day before yesterday": -2, "tomorrow": 1, "the day after tomorrow": 2,
    "today": 0, "tonight": 0, "earlier today": 0, "just now": 0,
}  # fmt: skip

Rule = tuple[re.Pattern[str], Callable[[re.Match[str], date, str], Resolved | None]]


def _rule(pattern: str, resolve: Callable[[re.Match[str], date, str], Resolved | None], case: bool = False) -> Rule:
    return re.compile(pattern, 0 if case else re.IGNORECASE), resolve


def _explicit(match: re.Match[str], _anchor: date, _text: str) -> Resolved | None:
    day = _date_of(match)
    return None if day is None else _day(day)


_WHICH = r"(?P<which>last|this past|the past|past|previous|this coming|coming|this|next|on)"
_SPAN = r"(?P<what>weekend|week|month|year|spring|summer|fall|autumn|winter|night|evening|morning|afternoon)"
_NEAR_WORDS = (
    r"\b(?:the )?day (?:before yesterday|after tomorrow)\b|\byesterday\b|\blast night\b|\btomorrow\b"
    r"|\b(?:earlier )?today\b|\btonight\b|\bjust now\b"
)
_IN_MONTH = r"(?P<which>(?i:in|last|this|next|since|until|till|by|early|late|mid|of|during|around))"
_IN_YEAR = r"(?P<since>since )?(?:in |back in |during |around |from )?"


def _near(match: re.Match[str], anchor: date, _text: str) -> Resolved:
    words = match[0].lower()
    return _day(anchor + timedelta(days=_NEAR[f"the {words}" if words.startswith("day") else words]))


def _month_of_year(match: re.Match[str], _anchor: date, _text: str) -> Resolved:
    return f"{MONTHS[_MONTH_NUMBERS[match['month'].lower()] - 1]} {match['year']}", "month", None


def _year(match: re.Match[str], _anchor: date, _text: str) -> Resolved:
    return ("since " if match["since"] else "") + match["year"], "year", None


def _weekend(_match: re.Match[str], anchor: date, _text: str) -> Resolved:
    return f"the weekend before {long_date(anchor)}", "week", None


def _other_day(_match: re.Match[str], anchor: date, _text: str) -> Resolved:
    return f"a few days before {long_date(anchor)}", "vague", None


# Earlier rules win where matches start at the same place and are equally long.
_RULES: tuple[Rule, ...] = (
    *((pattern, _explicit) for pattern in _FULL_DATES),
    _rule(rf"\b{_MONTH}\.? {_DAY}(?!\w)", _day_month, case=True),
    _rule(rf"\b(?:the )?{_DAY} (?:of )?{_MONTH}\b", _day_month, case=True),
    _rule(
        rf"\b(?:(?i:in|since|until|till|by|early|late|mid|of|during|around) )?{_MONTH},? (?:of )?{_YEAR}\b",
        _month_of_year,
        case=True,
    ),
    _rule(_NEAR_WORDS, _near),
    _rule(rf"\b{_COUNT} {_UNIT} (?:ago|back|earlier)\b", _ago),
    _rule(rf"\b{_WHICH} {_SPAN}\b", _relative_span),
    _rule(rf"\b{_WHICH} {_WEEKDAY}\b", _weekday),
    _rule(rf"\b(?i:{_WHICH}) (?P<weekday>Sat|Sun)\b", _weekday, case=True),
    _rule(rf"\b(?P<which>)(?P<weekday>{'|'.join(WEEKDAYS)})\b", _weekday, case=True),
    _rule(r"\b(?:over|on|at|during) the weekend\b", _weekend),
    _rule(rf"\b{_IN_MONTH} {_MONTH}\b", _month, case=True),
    _rule(rf"\b{_IN_YEAR}{_YEAR}\b(?![-/\d])", _year),
    _rule(r"\bthe other day\b", _other_day),
)
_TRIGGER = re.compile(
    r"\d|day|morrow|week|month|year|night|morning|afternoon|evening|tonight|now|spring|summer|fall|"
    r"autumn|winter|ago|back|earlier|"
    r"Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec|Mon|Tue|Wed|Thu|Fri|Sat|Sun|mon|tue|wed|thu|fri"
)


@lru_cache(maxsize=1 << 14)
def time_expressions(text: str, anchor: date | None) -> tuple[TimeExpression, ...]:
    """The time expressions of `text` in order of place, none overlapping; the longer wins where two start together.

    Without an anchor a relative expression keeps its own words.
    """
    if not _TRIGGER.search(text):
        return ()
    base = anchor or date(2000, 1, 1)
    found: list[tuple[int, int, int, TimeExpression]] = []
    for order, (pattern, resolve) in enumerate(_RULES):
        for match in pattern.finditer(text):
            resolved = resolve(match, base, text)
            if resolved is None:
                continue
            phrase, kind, day = resolved
            if anchor is None and resolve is not _explicit:
                phrase, day = match[0], None
            found.append(
                (match.start(), -match.end(), order, TimeExpression(match.start(), match.end(), phrase, kind, day))
            )
    chosen: list[TimeExpression] = []
    for start, _, _, expression in sorted(found, key=lambda item: item[:3]):
        if not chosen or start >= chosen[-1].end:
            chosen.append(expression)
    return tuple(chosen)


_DURATION = re.compile(
    rf"\b(?:(?:for |about |around |almost |nearly |over |under |more than |less than |at least |only |"
    rf"the past |the last )*)"
    rf"(?:{_COUNT}|half an?|\d+(?:\.\d+)?)(?: and a half)? (?:years?|months?|weeks?|days?|hours?|"
    rf"minutes?|mins?|hrs?|decades?)\b(?! ago| old)"
    rf"|\bsince (?:{'|'.join(MONTHS)} )?(?:19|20)\d\d\b|\bsince (?:I was|childhood|high school|college)[\w ]*",
    re.IGNORECASE,
)


@lru_cache(maxsize=1 << 14)
def durations(text: str) -> tuple[str, ...]:
    """The spans of time a text tells ("for three years", "since 2016"), in order of place."""
    return tuple(match[0] for match in _DURATION.finditer(text))


@dataclass(frozen=True)
class Period:
    """A day, a month (of a year or of any) or a year that a text names; None where it does not say."""

    year: int | None
    month: int | None
    day: int | None

    def holds(self, day: date) -> bool:
        """Whether the day lies in the period; a named day holds the three days around it too."""
        if self.day is not None and self.month is not None and self.year is not None:
            return abs((day - date(self.year, self.month, self.day)).days) <= 3
        return self.year in (None, day.year) and self.month in (None, day.month)


_NAMED_MONTH = re.compile(rf"\b{_MONTH}\b(?:,? {_YEAR})?")
_NAMED_YEAR = re.compile(rf"\b{_YEAR}\b")


@lru_cache(maxsize=1 << 14)
def named_periods(text: str) -> tuple[Period, ...]:
    """The days, months and years a text names outright, the narrowest reading of each."""
    found: list[Period] = []
    rest = text
    for pattern in _FULL_DATES:
        for match in pattern.finditer(text):
            day = _date_of(match)
            if day is not None:
                found.append(Period(day.year, day.month, day.day))
                rest = rest.replace(match[0], " ")
    for match in _NAMED_MONTH.finditer(rest):
        month = _MONTH_NUMBERS[match["month"].lower()]
        found.append(Period(int(match["year"]) if match["year"] else None, month, None))
        rest = rest.replace(match[0], " ")
    found += [Period(int(match["year"]), None, None) for match in _NAMED_YEAR.finditer(rest)]
    return tuple(dict.fromkeys(found))
