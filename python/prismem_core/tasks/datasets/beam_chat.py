"""The dialogue of a BEAM chat: batches become sessions, also where plans stand around them (the 10M size)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from prismem_core.tasks.datasets.times import beam_date
from prismem_core.tasks.history import History, Session, Turn
from prismem_core.tasks.irregularity import Findings

_PLAN = re.compile(r"plan-?(\d+)", re.IGNORECASE)
_MARKER = "->->"
_MARKER_INDEX = re.compile(r"\s*\d+,\s*\d+\s*")


def beam_history(history_id: str, chat: Any, findings: Findings) -> History | None:
    """One session a batch, None without any message; a batch without a date stands under the last one before it.

    In the 10M size a chat is a list of `{"plan-1": [batches]}`: sessions are then called `<plan>.<batch>`. Where the
    message ids of a plan begin again, they go on from the last id of the plan before, as the benchmark counts them.
    """
    sessions: list[Session] = []
    date, offset, last, current_plan = "", 0, -1, ""
    taken: set[str] = set()
    session_ids: set[str] = set()
    indices: Counter[str] = Counter()
    for position, (plan, batch) in enumerate(_batches(chat), 1):
        messages = list(_messages(batch))
        if plan != current_plan:
            numbers = [n for message in messages if (n := _number(message.get("id"))) is not None]
            begins_again = bool(current_plan) and bool(numbers) and numbers[0] <= last
            current_plan, offset = plan, last + 1 if begins_again else 0
        own = batch.get("time_anchor") if isinstance(batch, dict) else None
        anchors = [str(a).strip() for a in (own, *(m.get("time_anchor") for m in messages)) if a is not None]
        anchors = list(dict.fromkeys(anchor for anchor in anchors if anchor))
        number = batch.get("batch_number") if isinstance(batch, dict) else None
        name = str(number if isinstance(number, int) else position)
        record = f"{history_id} batch {plan}.{name}" if plan else f"{history_id} batch {name}"
        if anchors:
            date = _date(anchors[0], record, findings)
            if len(anchors) > 1:
                findings.note("batch with several dates, first one kept", record, "time_anchor", "; ".join(anchors))
        elif messages:
            findings.note("batch without a date, last one carried over", record, "time_anchor", date)
        turns: list[Turn] = []
        for message in messages:
            turn_id, own_number = str(message.get("id", "")), _number(message.get("id"))
            if own_number is not None:
                last = own_number + offset
                turn_id = str(last)
            if (own_number is None and not turn_id.strip()) or turn_id in taken or message.get("id") is None:
                findings.note("message id missing or repeated, replaced by position", record, "id", message.get("id"))
                turn_id = f"{position}.{len(turns)}"
            taken.add(turn_id)
            text = _text(message, f"{history_id} message {turn_id}", findings)
            turns.append(Turn(turn_id, str(message.get("role") or ""), text))
            if message.get("question_type") == "main_question" and isinstance(message.get("index"), str):
                indices[message["index"].strip()] += 1
        if not turns:
            findings.note("batch without messages ignored", record)
            continue
        session_id = f"{plan}.{name}" if plan else name
        if session_id in session_ids:
            findings.note("repeated batch number replaced by position", record, "batch_number")
            session_id = f"{session_id}.{position}"
        session_ids.add(session_id)
        sessions.append(Session(session_id, date, tuple(turns)))
    repeated = [index for index, count in indices.items() if count > 1]
    if repeated:
        findings.note("index repeated in its chat, not used", history_id, "index", "; ".join(repeated), variant=True)
    return History(history_id, tuple(sessions)) if sessions else None


def _batches(chat: Any) -> Iterator[tuple[str, Any]]:
    """(number of the plan or "", batch) in order; a plan holder may have fields of other plans that are null."""
    for item in chat if isinstance(chat, list) else []:
        plans = {}
        if isinstance(item, dict) and "turns" not in item and "content" not in item:
            plans = {m[1]: value for key, value in item.items() if (m := _PLAN.fullmatch(str(key)))}
        if not plans:
            yield "", item
        for number, batches in sorted(plans.items(), key=lambda entry: int(entry[0])):
            for batch in batches if isinstance(batches, list) else []:
                yield number, batch


def _messages(batch: Any) -> Iterator[Mapping[str, Any]]:
    """The messages of a batch in order, with or without the level of turns."""
    if isinstance(batch, dict):
        if "content" in batch:
            yield batch
        else:
            yield from _messages(batch.get("turns"))
    elif isinstance(batch, list):
        for item in batch:
            yield from _messages(item)


def _text(message: Mapping[str, Any], record: str, findings: Findings) -> str:
    """What was said, without the marker that the generator left at the end."""
    content = message.get("content")
    if content is None:
        findings.note("message without text kept", record, "content")
    text, marker, index = str("" if content is None else content).partition(_MARKER)
    if not marker:
        return text
    findings.count("generation marker cut from a message")
    kind = message.get("question_type")
    if kind not in (None, "main_question"):
        findings.note("marker in a message that is no main question, cut", record, str(kind), index, variant=True)
    if not _MARKER_INDEX.fullmatch(index):
        findings.note("marker with another index than two numbers, cut", record, "content", index, variant=True)
    return text.rstrip()


def _date(anchor: str, record: str, findings: Findings) -> str:
    """`March-15-2024` as `March 15, 2024`; another spelling is kept as it is and reported."""
    if beam_date(anchor) is None:
        findings.note("date of another form kept as text", record, "time_anchor", anchor)
        return anchor
    month, day, year = anchor.split("-")
    return f"{month} {int(day)}, {year}"


def _number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    text = str(value).strip() if value is not None else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None
