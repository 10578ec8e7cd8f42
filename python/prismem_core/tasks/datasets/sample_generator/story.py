"""Story files: sessions of scenes with tagged turns, and questions that cite the tags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from prismem_core.errors import DataError
from prismem_core.tasks.capability import CAPABILITIES, Capability

_TAGGED = re.compile(r"(?P<text>.*?)(?: #(?P<tag>[a-z0-9_]+))?")
_RESOLVED = re.compile(r"\{([a-z0-9_]+):(?:last (mon|tue|wed|thu|fri|sat|sun)|-(\d+)([dw]))\}")
_WEEKDAYS = {
    "mon": "Monday",
    "tue": "Tuesday",
    "wed": "Wednesday",
    "thu": "Thursday",
    "fri": "Friday",
    "sat": "Saturday",
    "sun": "Sunday",
}
_NUMBERS = ("no", "one", "two", "three", "four")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_LETTERS = {c.letter: c for c in CAPABILITIES}


@dataclass(frozen=True)
class Line:
    """A written turn; `tag` is the name by which questions cite it, or None."""

    speaker: str
    text: str
    tag: str | None


@dataclass(frozen=True)
class StorySession:
    """Scenes under one time; small talk may stand between scenes, never inside one."""

    time: datetime
    scenes: tuple[tuple[Line, ...], ...]


@dataclass(frozen=True)
class Question:
    """A question as written; `answer` is None where the conversation does not say it."""

    capability: Capability
    secondary: tuple[Capability, ...]
    text: str
    answer: str | None
    tags: tuple[str, ...]


@dataclass
class Story:
    """One conversation; `avoid` names small talk that would blur its questions."""

    id: str = ""
    people: tuple[str, str] = ("", "")
    part: str = ""
    avoid: tuple[str, ...] = ()
    sessions: list[StorySession] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)

    @property
    def days(self) -> Mapping[str, date]:
        """The day on which each tagged turn was said."""
        return {
            line.tag: session.time.date()
            for session in self.sessions
            for scene in session.scenes
            for line in scene
            if line.tag
        }


def parse_story(text: str) -> Story:
    """The story of one file; DataError with the line that is out of form or cites a tag that is not there."""
    story = Story()
    scenes: list[list[Line]] = []
    time: datetime | None = None

    def close_session() -> None:
        if time is not None:
            story.sessions.append(StorySession(time, tuple(tuple(scene) for scene in scenes if scene)))
        scenes.clear()

    for number, raw in enumerate(text.split("\n"), 1):
        mark, _, rest = raw.partition(" ")
        if not raw.strip():
            scenes.append([])
        elif mark == "conversation":
            story.id = rest
        elif mark == "people":
            first, _, second = rest.partition(" | ")
            story.people = (first, second)
        elif mark == "part":
            story.part = rest
        elif mark == "avoid":
            story.avoid = tuple(rest.split(", "))
        elif mark == "@":
            close_session()
            time = datetime.strptime(rest, "%Y-%m-%d %H:%M")
            scenes.append([])
        elif mark in ("A:", "B:"):
            match = _TAGGED.fullmatch(rest)
            if match is None:
                raise DataError(f"story {story.id}, line {number}: {raw!r}")
            scenes[-1].append(Line(story.people[mark == "B:"], match["text"], match["tag"]))
        elif mark == "?":
            story.questions.append(_question(rest, number, story.id))
        else:
            raise DataError(f"story {story.id}, line {number}: {raw!r} is no turn, session, question or setting")
    close_session()
    return _checked(story)


def _question(rest: str, number: int, story_id: str) -> Question:
    fields = rest.split(" | ")
    if len(fields) != 4:
        raise DataError(f"story {story_id}, line {number}: expected `? LABELS | question | answer | tags`")
    labels, text, answer, tags = fields
    first, *others = (_LETTERS[letter] for letter in labels.split("+"))
    secondary = tuple(c for c in CAPABILITIES if c in others)
    return Question(first, secondary, text, None if answer == "-" else answer, tuple(tags.split()))


def _checked(story: Story) -> Story:
    """The story with days in answers worked out, after a check of tags and of the order of sessions."""
    tags = [line.tag for session in story.sessions for scene in session.scenes for line in scene if line.tag]
    for tag in tags:
        if tags.count(tag) > 1:
            raise DataError(f"story {story.id}: tag {tag!r} is there twice")
    for question in story.questions:
        for tag in question.tags:
            if tag not in tags:
                raise DataError(f"story {story.id}: question {question.text!r} cites the unknown tag {tag!r}")
    times = [session.time for session in story.sessions]
    if times != sorted(set(times)):
        raise DataError(f"story {story.id}: the sessions are not in order of time")
    days = story.days
    story.questions = [
        Question(q.capability, q.secondary, q.text, q.answer and resolve(q.answer, days), q.tags)
        for q in story.questions
    ]
    return story


def resolve(answer: str, days: Mapping[str, date]) -> str:
    """`{tag:last tue}`, `{tag:-2w}` and `{tag:-1d}` in an answer as times, counted from the day of the tag.

    They become `the Tuesday before 9 June 2023`, `two weeks before 9 June 2023` and `8 June 2023`: the references of
    LoCoMo note times that way.
    """

    def day(match: re.Match[str]) -> str:
        said = days[match[1]]
        if match[2]:
            return f"the {_WEEKDAYS[match[2]]} before {spelled(said)}"
        number = int(match[3])
        if match[4] == "d":
            return spelled(said - timedelta(days=number))
        return f"{_NUMBERS[number]} weeks before {spelled(said)}"

    return _RESOLVED.sub(day, answer)


def spelled(day: date) -> str:
    """`7 May 2023`."""
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def spelled_time(time: datetime) -> str:
    """`1:56 pm on 8 May, 2023`, the form LoCoMo uses, whatever the locale."""
    hour = time.hour % 12 or 12
    half = "am" if time.hour < 12 else "pm"
    return f"{hour}:{time.minute:02d} {half} on {time.day} {_MONTHS[time.month - 1]}, {time.year}"
