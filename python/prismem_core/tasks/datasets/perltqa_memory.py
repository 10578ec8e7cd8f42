"""A PerLTQA character's memory as a history: profile, relationships, then events and dialogues in order of time."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from prismem_core.tasks.history import History, Session, Turn
from prismem_core.tasks.irregularity import Findings, shown

_MAX_LITERAL_CHARS = 1_000_000
_YEAR = re.compile(r"(?:19|20)\d\d")
_FORMS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d", "%Y-%m", "%B %d, %Y", "%B %Y", "%Y", "%Y年%m月%d日")
_CHINESE = re.compile(r"(\d{4})年(\d{1,2})月(\d{1,2})日")
_LINE = re.compile(r"\s*([^:：\n]{1,60})[:：]\s*(.*)", re.DOTALL)


@dataclass
class Memory:
    """A character's history, the turns each memory record became, and the text each turn stands for as evidence."""

    history: History
    places: Mapping[tuple[str, str], tuple[str, ...]]
    texts: Mapping[str, str]

    def anywhere(self, key: str) -> tuple[str, ...]:
        """The turns of the record with that key in whichever group has it, none if there is none."""
        return next((turns for (_, name), turns in self.places.items() if name == key), ())


@dataclass
class _Draft:
    places: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def turn(self, group: str, key: str, turn_id: str, speaker: str, text: str) -> Turn:
        self.places[group, key] = (*self.places.get((group, key), ()), turn_id)
        self.texts[turn_id] = text
        return Turn(turn_id, speaker, text)


def character_memory(name: str, record: Mapping[str, Any], findings: Findings) -> Memory | None:
    """The memory of one character, None if it holds nothing.

    Profile and relationships are one session each without a time, and so is every event whose time cannot be read;
    dated events and dialogues follow by date, times kept as the source spells them.
    """
    draft = _Draft()
    undated: list[tuple[str, list[Turn]]] = []
    dated: list[tuple[datetime, str, list[Turn]]] = []
    profile = [
        draft.turn("profile", str(key).strip(), f"profile:{key}", "Profile", f"{key}: {_words(value)}")
        for key, value in _object(record.get("profile"), name, "profile", findings).items()
        if value not in (None, "")
    ]
    description = findings.text(record.get("profile_description"), "description", name, "profile_description").strip()
    if description:
        profile.append(Turn("profile_description", "Profile", description))
    relations = [
        draft.turn("social_relationship", str(key).strip(), f"relationship:{key}", "Relationship", _relation(value))
        for key, value in _object(record.get("social_relationship"), name, "social_relationship", findings).items()
    ]
    undated += [("", turns) for turns in (profile, relations) if turns]
    events = _object(record.get("events"), name, "events", findings)
    for key, event in events.items():
        time, content = _event(event)
        text = findings.text(content, "event text", f"{name} {key}", "content").strip()
        if not text:
            findings.note("event without text left out", f"{name} {key}", "content", event)
            continue
        turn = draft.turn("events", str(key).strip(), f"event:{key}", "Event", text)
        when = _when(time)
        if when is None:
            # Free text by the benchmark's own description, so that it is no fault of the record.
            kind = "event time of another form kept as text" if time else "event without a time"
            findings.note(kind, f"{name} {key}", "Creation Time", time, variant=True)
            undated.append((time, [turn]))
        else:
            dated.append((when, time, [turn]))
    for key, dialogue in _object(record.get("dialogues"), name, "dialogues", findings).items():
        _add_dialogue(name, str(key).strip(), dialogue, events, draft, undated, dated, findings)
    sessions = [*undated, *((time, turns) for _, time, turns in sorted(dated, key=lambda entry: entry[0]))]
    if not sessions:
        return None
    history = History(name, tuple(Session(str(n), time, tuple(turns)) for n, (time, turns) in enumerate(sessions, 1)))
    return Memory(history, draft.places, draft.texts)


def _add_dialogue(
    name: str,
    key: str,
    dialogue: Any,
    events: Mapping[str, Any],
    draft: _Draft,
    undated: list[tuple[str, list[Turn]]],
    dated: list[tuple[datetime, str, list[Turn]]],
    findings: Findings,
) -> None:
    """One session for each time of a dialogue."""
    where = f"{name} {key}"
    contents = dialogue.get("contents") if isinstance(dialogue, dict) else dialogue
    if isinstance(contents, list):
        contents = {"": contents}
    if not isinstance(contents, dict) or not contents:
        findings.note("dialogue without text left out", where, "contents", contents)
        return
    named = dialogue.get("events") if isinstance(dialogue, dict) else None
    if named is not None and str(named).strip() not in events:
        findings.note("dialogue of an event that is not there, kept", where, "events", named)
    number, latest, latest_time = 0, datetime.min, ""
    for time, lines in contents.items():
        turns = []
        for line in _lines([] if lines is None else lines):
            number += 1
            if line is None or not str(line).strip():
                findings.note("empty dialogue line left out", where, f"line {number}", line)
                continue
            if not isinstance(line, str):
                findings.note("dialogue line that is no text read as text", where, f"line {number}", line)
            said = _LINE.fullmatch(str(line))
            if said is None:
                findings.note("dialogue line without a speaker", where, f"line {number}", line)
            speaker, text = (said[1].strip(), said[2].strip()) if said else ("Unknown", str(line).strip())
            turns.append(draft.turn("dialogues", key, f"{key}:{number}", speaker, text))
        if not turns:
            findings.note("dialogue without text left out", where, str(time))
            continue
        when = _when(str(time))
        if when is None:
            findings.note("dialogue time of another form kept as text", where, "contents", str(time))
            undated.append((str(time), turns))
            continue
        if when < latest:
            findings.note("dialogue out of order of time, sorted", where, "contents", f"{time}, after {latest_time}")
        latest, latest_time = when, str(time)
        dated.append((when, str(time), turns))
        event = events.get(str(named).strip())
        years = set(_YEAR.findall(_event(event)[0])) if event is not None else set()
        if years and str(when.year) not in years:
            told = f"event {_event(event)[0]}, dialogue {time}"
            findings.note("event time and dialogue time differ, both kept", where, "Creation Time", told, variant=True)


def _lines(value: Any) -> Iterator[Any]:
    """The lines of a dialogue in order; some releases nest lists of them."""
    if isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _lines(item)
    else:
        yield value


def _object(value: Any, name: str, field_name: str, findings: Findings) -> Mapping[str, Any]:
    """A group of records; one that is a Python literal in a string is parsed, never evaluated."""
    if isinstance(value, str) and value.strip().startswith("{") and len(value) <= _MAX_LITERAL_CHARS:
        try:
            parsed = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            parsed = None
        if isinstance(parsed, dict):
            findings.note("group that is a literal in a string, parsed", name, field_name, value)
            value = parsed
    if isinstance(value, dict):
        return value
    if value not in (None, "", []):
        findings.note("group that is no object left out", name, field_name, value)
    return {}


def _relation(value: Any) -> str:
    if not isinstance(value, dict):
        return _words(value)
    return "; ".join(f"{key}: {_words(item)}" for key, item in value.items() if item not in (None, ""))


def _event(value: Any) -> tuple[str, Any]:
    """(time, content) of an event; its summary where it has no content."""
    if not isinstance(value, dict):
        return "", value
    keys = {str(key).casefold(): item for key, item in value.items()}
    text = next((keys[k] for k in ("content", "内容", "summary", "摘要") if keys.get(k) not in (None, "")), None)
    time = next((str(keys[k]).strip() for k in ("creation time", "creation_time", "创建时间") if keys.get(k)), "")
    return time, text


def _words(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    return ", ".join(map(str, value)) if isinstance(value, list) else shown(value)


def _when(time: str) -> datetime | None:
    text = time.strip()
    if match := _CHINESE.search(text):
        text = f"{match[1]}-{int(match[2]):02d}-{int(match[3]):02d}"
    for form in _FORMS:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    return None
