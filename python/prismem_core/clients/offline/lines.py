"""Lines of text and their parts: date, speaker, body, sentences, names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from prismem_core.clients.offline.dates import MONTHS, WEEKDAYS, parse_date, time_expressions
from prismem_core.tasks.text import STOP_WORDS

ROLES = frozenset({"user", "assistant", "system", "human", "ai"})
_NAME = r"[^\W\d_][\w'.-]*"
_SPEAKER = re.compile(
    rf"(?P<speaker>{_NAME}(?: {_NAME}){{0,2}})(?: ?\((?P<date>[^()]{{4,40}})\))? ?: ?(?P<rest>.*)", re.DOTALL
)
_BRACKET = re.compile(r"[\[(](?P<inside>[^\[\]()]{1,100})[\])][:,]?\s*")
_BULLET = re.compile(r"(?:[-*•·]|\(?\d{1,3}[.)])\s+")
_DATE_FIRST = re.compile(
    r"(?:(?:on|date|time)[: ]+)?"
    r"(?P<date>[^|:;\n]{0,24}?(?:19|20)\d\d(?:[-/][01]?\d[-/][0-3]?\d)?(?:[ T]\d\d?:\d\d(?::\d\d)?)?)"
    r"\s*(?:\||:|;| - | – )\s*(?P<rest>.+)",
    re.IGNORECASE | re.DOTALL,
)
_DATE_LAST = re.compile(r"\s*[\[(](?P<date>[^\[\]()]{4,40})[\])]\s*$")
# Words that stand before a colon without naming anybody.
LABELS = frozenset(
    """
    note notes example examples step tip tips warning question answer summary ingredients instructions output input
    result results description title steps goal goals total code important remember usage pros cons conclusion
    introduction overview date time place caption image session topic topics keywords update edit
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Line:
    """One line of a retrieved text.

    `body` is what was said, without date and speaker; `asked` the question of another speaker that the line right
    before it ends with; `told` the date in brackets behind the body of a line that has a date of its own; "" without
    one.
    """

    index: int
    day: date | None
    speaker: str
    body: str
    asked: str = ""
    told: str = ""


def is_speaker(prefix: str) -> bool:
    """Whether the words before a colon look like somebody who speaks: a role, or one to three capitalised words."""
    words = prefix.split()
    if prefix.lower() in ROLES:
        return True
    return bool(words) and all(w[0].isupper() for w in words) and words[0].lower() not in LABELS


@lru_cache(maxsize=1 << 15)
def _parts(text: str) -> tuple[date | None, str, str, str]:
    day: date | None = None
    rest = text.strip()
    bullet = _BULLET.match(rest)
    if bullet:
        rest = rest[bullet.end() :]
    while (bracket := _BRACKET.match(rest)) and not bracket["inside"].lower().startswith(("image", "photo", "caption")):
        found = parse_date(bracket["inside"])
        if found is None and rest[0] == "(":
            break
        day, rest = day or found, rest[bracket.end() :]
    if day is None and (first := _DATE_FIRST.match(rest)):
        day = parse_date(first["date"])
        if day is not None:
            rest = first["rest"]
    speaker = ""
    said = _SPEAKER.match(rest)
    if said and is_speaker(said["speaker"]):
        speaker, rest = said["speaker"], said["rest"]
        day = day or (parse_date(said["date"]) if said["date"] else None)
        again = _BRACKET.match(rest)
        if day is None and again and (found := parse_date(again["inside"])) is not None:
            day, rest = found, rest[again.end() :]
    told = ""
    last = _DATE_LAST.search(rest)
    if last and day is None and (found := parse_date(last["date"])) is not None:
        day, rest = found, rest[: last.start()]
    elif last and day is not None and _is_time(last["date"]):
        told, rest = last["date"], rest[: last.start()]
    return day, speaker, rest.strip(), told


def _is_time(text: str) -> bool:
    """Whether a text is a time expression that names a year, and little else."""
    found = time_expressions(text, None)
    return bool(found) and re.search(r"(?:19|20)\d\d", text) is not None and found[-1].end >= len(text) - 1


def parse_lines(text: str) -> list[Line]:
    """The lines of a retrieved text.

    A line that holds nothing but a date in brackets is a heading: the lines after it that have no date take its date.
    A line without date and speaker that follows a line with one of them is the rest of that turn.
    """
    lines: list[Line] = []
    heading: date | None = None
    for index, raw in enumerate(text.split("\n")):
        if not raw.strip():
            continue
        day, speaker, body, told = _parts(raw)
        if not body:
            heading = day
            continue
        if day is None and not speaker and lines and lines[-1].speaker:
            day, speaker = lines[-1].day, lines[-1].speaker
        day = day or heading
        asked = ""
        if lines and speaker and lines[-1].speaker not in ("", speaker) and lines[-1].day == day:
            asked = closing_question(lines[-1].body)
        lines.append(Line(index, day, speaker, body, asked, told))
    return lines


@lru_cache(maxsize=1 << 14)
def closing_question(body: str) -> str:
    """The last sentence that asks something, if at most one sentence or an image caption comes after it."""
    said = [s for s in sentences(body) if not s.startswith("[")]
    return next((s for s in reversed(said[-2:]) if s.endswith("?")), "")


_ABBREVIATION = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|St|vs|etc|e\.g|i\.e|No|approx)|\b[A-Z])\.$")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]”]*\s+|\n+")


@lru_cache(maxsize=1 << 15)
def sentences(text: str) -> tuple[str, ...]:
    """The sentences of a text, stripped, in order; line breaks end a sentence too."""
    found: list[str] = []
    start = 0
    for match in _SENTENCE_END.finditer(text):
        piece = text[start : match.start()]
        if _ABBREVIATION.search(piece) and "\n" not in match[0]:
            continue
        found.append(text[start : match.end()].strip())
        start = match.end()
    found.append(text[start:].strip())
    return tuple(piece for piece in found if piece)


_CAPITALISED = re.compile(r"[A-Z][\w'’&-]*(?:\s+(?:(?:of|the|and|de|la)\s+)?[A-Z][\w'’&-]*)*")
_NOT_NAMES = (
    frozenset(w.lower() for w in (*MONTHS, *WEEKDAYS))
    | STOP_WORDS
    | frozenset(
        """
    i i'm i've i'll i'd ok okay yes no yeah yep yup hey hi hello wow thanks thank oh well great good nice sure
    absolutely definitely congrats congratulations awesome cool please sorry maybe also let's it's that's there's
    what's here's glad sounds really yesterday today tomorrow tonight later finally recently last next first maybe
    however anyway
    """.split()  # noqa: SIM905
    )
)


@lru_cache(maxsize=1 << 14)
def names(text: str) -> tuple[str, ...]:
    """Capitalised words and runs of them that look like names, once each, in order of place.

    The first word of a sentence counts only where it stands capitalised elsewhere in the text too.
    """
    found: dict[str, None] = {}
    for match in _CAPITALISED.finditer(text):
        words = match[0].split()
        before = text[: match.start()].rstrip()
        if not before or before[-1] in ".!?:\n-–*\"'([]":
            inner = re.search(rf"(?<=[a-z,] ){re.escape(words[0])}\b", text)
            if len(words) == 1 and inner is None and words[0][1:].islower():
                continue
            if words[0].lower().replace("’", "'") in _NOT_NAMES:
                words = words[1:]
        while words and words[0].lower().replace("’", "'") in _NOT_NAMES:
            words = words[1:]
        if words:
            name = " ".join(words).removesuffix("'s").removesuffix("’s")
            if name.lower() not in _NOT_NAMES:
                found.setdefault(name)
    return tuple(found)
