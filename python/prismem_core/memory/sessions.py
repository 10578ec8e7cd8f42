"""The forms in which a session may be given, each read into a `Session` or refused with what was wrong."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from prismem_core.errors import ArgumentError
from prismem_core.tasks.history import Session, Turn

# A key of the documented form, then the names that chat programs give it.
_SESSION_KEYS = {"id": ("id",), "time": ("time", "timestamp"), "turns": ("turns",)}
_TURN_KEYS = {"id": ("id",), "speaker": ("speaker", "role"), "text": ("text", "content")}


def new_sessions(given: Sequence[Any], known: Sequence[Session]) -> list[Session]:
    """The sessions of `given` that are not among `known` yet, in their order.

    Each is a `Session`, a mapping with `turns` and perhaps `id` and `time` (or `timestamp`), or the list of its turns;
    a turn is a `Turn` or a mapping with `speaker` (or `role`), `text` (or `content`) and perhaps an `id`. Ids that are
    not given are counted on. Raises ArgumentError for another form, for a session without turns, for an id that is
    taken by another session or turn.
    """
    sessions = {session.id: session for session in known}
    turn_ids = {turn.id: session.id for session in known for turn in session.turns}
    new = []
    for position, value in enumerate(given, 1):
        where = f"session {position}" if len(given) > 1 else "the session"
        session = _session(value, where, sessions, turn_ids)
        if session.id in sessions:
            if sessions[session.id] == session:
                continue
            raise ArgumentError(
                f"{where}: the memory has another session of the id {session.id!r}; give each session an id of its own"
            )
        for turn in session.turns:
            if turn.id in turn_ids:
                raise ArgumentError(
                    f"{where}: the turn id {turn.id!r} is taken (session {turn_ids[turn.id]!r}); give each turn an id "
                    "of its own, or none"
                )
            turn_ids[turn.id] = session.id
        sessions[session.id] = session
        new.append(session)
    return new


def _session(value: Any, where: str, sessions: Collection[str], turn_ids: Collection[str]) -> Session:
    if isinstance(value, Session):
        value = {"id": value.id, "time": value.timestamp, "turns": value.turns}
    elif isinstance(value, (list, tuple)):
        value = {"turns": value}
    if not isinstance(value, Mapping):
        hint = "; a file is added with add_file" if isinstance(value, (str, bytes)) or hasattr(value, "suffix") else ""
        raise ArgumentError(
            f'{where} is {_shown(value)}; expected a mapping such as {{"time": ..., "turns": [...]}} or a list of '
            f"turns{hint}"
        )
    fields = _fields(value, _SESSION_KEYS, where)
    session_id = _identifier(fields.get("id"), where) or _count_on(len(sessions) + 1, sessions)
    time = fields.get("time", "")
    if not isinstance(time, str):
        raise ArgumentError(f"{where}: 'time' is {_shown(time)}; expected a text such as 'May 8, 2023'")
    given = fields.get("turns")
    if not isinstance(given, (list, tuple)) or not given:
        raise ArgumentError(f"{where} has no turns; expected a non-empty list of turns under 'turns'")
    turns: list[Turn] = []
    own: set[str] = set()
    for number, one in enumerate(given, 1):
        turn = _turn(one, f"{where}, turn {number}", session_id, number, turn_ids, own)
        own.add(turn.id)
        turns.append(turn)
    return Session(session_id, time, tuple(turns))


def _turn(
    value: Any, where: str, session_id: str, number: int, turn_ids: Collection[str], own: Collection[str]
) -> Turn:
    if isinstance(value, Turn):
        value = {"id": value.id, "speaker": value.speaker, "text": value.text}
    if not isinstance(value, Mapping):
        several = "; pass several sessions one by one" if isinstance(value, (Session, list, tuple)) else ""
        raise ArgumentError(
            f'{where} is {_shown(value)}; expected a mapping such as {{"speaker": "Ana", "text": "..."}}{several}'
        )
    if "turns" in value:
        raise ArgumentError(f"{where} is a session of its own; pass several sessions one by one, as in add(*sessions)")
    fields = _fields(value, _TURN_KEYS, where)
    speaker, text = fields.get("speaker"), fields.get("text")
    if not isinstance(speaker, str) or not speaker.strip():
        raise ArgumentError(f"{where}: the speaker is {_shown(speaker)}; expected a name under 'speaker' or 'role'")
    if not isinstance(text, str):
        raise ArgumentError(f"{where}: the text is {_shown(text)}; expected a string under 'text' or 'content'")
    turn_id = _identifier(fields.get("id"), where) or f"{session_id}:{number}"
    if turn_id in own:
        raise ArgumentError(f"{where}: the id {turn_id!r} is there twice; give each turn an id of its own, or none")
    return Turn(turn_id, speaker, text)


def _fields(value: Mapping[Any, Any], keys: Mapping[str, Iterable[str]], where: str) -> dict[str, Any]:
    """The values by the first name of their key; one that is None counts as not given."""
    known = {alias: name for name, aliases in keys.items() for alias in aliases}
    fields: dict[str, Any] = {}
    for key, item in value.items():
        if key not in known:
            raise ArgumentError(f"{where}: unknown key {_shown(key)}; expected {', '.join(known)}")
        if known[key] in fields:
            raise ArgumentError(f"{where}: {' and '.join(keys[known[key]])} mean the same; give one of them")
        if item is not None:
            fields[known[key]] = item
    return fields


def _identifier(value: Any, where: str) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise ArgumentError(f"{where}: 'id' is {_shown(value)}; expected a text that is not blank, or none")
    return value


def _count_on(number: int, taken: Collection[str]) -> str:
    while str(number) in taken:
        number += 1
    return str(number)


def _shown(value: Any) -> str:
    if isinstance(value, (str, int, float, bool)) or value is None:
        return "not given" if value is None else json.dumps(value)[:60]
    return f"of type {type(value).__name__}"
