"""The dialogue of a BEAM chat: batches become sessions, also where plans stand around them (the 10M size)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prismem_core.tasks.datasets.times import beam_date
from prismem_core.tasks.history import History, Session, Turn
from prismem_core.tasks.irregularity import Findings

_PLAN = re.compile(r"plan-?(\d+)", re.IGNORECASE)
_MARKER = "->->"
_MARKER_INDEX = re.compile(r"\s*\d+,\s*\d+\s*")


@dataclass
class _Order:
    """What comes next where numbers and dates go on as they should; reports what does not, and takes it as it is."""

    findings: Findings
    batch: int | None = None
    message: int = 0
    date: str = ""

    def check_batch(self, number: Any, record: str) -> None:
        """The number of a batch goes on by one; a repeated one is reported where it is replaced."""
        if type(number) is not int:
            if number is not None:
                self.findings.note("batch number that is no number, position taken", record, "batch_number", number)
            return
        if self.batch is not None and number not in (self.batch, self.batch + 1):
            told = f"{number} after {self.batch}"
            self.findings.note("batch numbers that do not go on, order kept", record, "batch_number", told)
        self.batch = number

    def check_date(self, anchor: str, record: str) -> None:
        """Dates go forward; one that cannot be read counts for nothing."""
        when, before = beam_date(anchor), beam_date(self.date)
        if when is not None and before is not None and when < before:
            told = f"{anchor}, after {self.date}"
            self.findings.note("batch dated before the last one, order kept", record, "time_anchor", told)
        self.date = self.date if when is None else anchor

    def check_message(self, turn_id: str, number: int | None, record: str) -> None:
        """Ids of messages count from 0 over the whole chat."""
        if number is None:
            self.findings.note("message id that is no number kept", record, "id", turn_id)
        elif number != self.message:
            told = f"{number}, expected {self.message}"
            self.findings.note("message ids that do not go on, kept", record, "id", told)
            self.message = number
        self.message += 1


def beam_history(history_id: str, chat: Any, findings: Findings) -> History | None:
    """One session a batch, None without any message; a batch without a date stands under the last one before it.

    In the 10M size a chat is a list of `{"plan-1": [batches]}`: sessions are then called `<plan>.<batch>`. Where the
    message ids of a plan begin again, they go on from the last id of the plan before, as the benchmark counts them.
    """
    sessions: list[Session] = []
    date, offset, last, current_plan = "", 0, -1, ""
    order = _Order(findings)
    taken: set[str] = set()
    session_ids: set[str] = set()
    indices: Counter[str] = Counter()
    for position, (plan, batch) in enumerate(_batches(chat), 1):
        place = f"{history_id} batch {plan}.{position}" if plan else f"{history_id} batch {position}"
        messages = list(_messages(batch, place, findings))
        if plan != current_plan:
            numbers = [n for message in messages if (n := _number(message.get("id"))) is not None]
            begins_again = bool(current_plan) and bool(numbers) and numbers[0] <= last
            current_plan, offset, order.batch = plan, last + 1 if begins_again else 0, None
        own = batch.get("time_anchor") if isinstance(batch, dict) else None
        anchors = [str(a).strip() for a in (own, *(m.get("time_anchor") for m in messages)) if a is not None]
        anchors = list(dict.fromkeys(anchor for anchor in anchors if anchor))
        number = batch.get("batch_number") if isinstance(batch, dict) else None
        name = str(number if type(number) is int else position)
        record = f"{history_id} batch {plan}.{name}" if plan else f"{history_id} batch {name}"
        order.check_batch(number, record)
        if anchors:
            date = _date(anchors[0], record, findings)
            if len(anchors) > 1:
                findings.note("batch with several dates, first one kept", record, "time_anchor", "; ".join(anchors))
            order.check_date(anchors[0], record)
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
                order.message += 1
            else:
                order.check_message(turn_id, None if own_number is None else last, record)
            taken.add(turn_id)
            text = _text(message, f"{history_id} message {turn_id}", findings)
            role = message.get("role")
            if role not in ("user", "assistant"):
                place = f"{history_id} message {turn_id}"
                findings.note("role that is neither user nor assistant kept", place, "role", role)
            turns.append(Turn(turn_id, "" if role is None else str(role).strip(), text))
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
            for batch in batches if isinstance(batches, list) else [] if batches is None else [batches]:
                yield number, batch


def _messages(batch: Any, record: str, findings: Findings) -> Iterator[Mapping[str, Any]]:
    """The messages of a batch in order, with or without the level of turns; what is no message is left out."""
    if isinstance(batch, dict):
        if {"content", "role", "id"} & set(batch):
            yield batch
        else:
            yield from _messages(batch.get("turns", []), record, findings)
    elif isinstance(batch, list):
        for item in batch:
            yield from _messages(item, record, findings)
    else:
        findings.note("message that is no object left out", record, "turns", batch)


def _text(message: Mapping[str, Any], record: str, findings: Findings) -> str:
    """What was said, without the marker that the generator left at the end."""
    content = message.get("content")
    text, marker, index = findings.text(content, "message text", record, "content").partition(_MARKER)
    if not text.strip():
        findings.note("message without text kept", record, "content", content)
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
