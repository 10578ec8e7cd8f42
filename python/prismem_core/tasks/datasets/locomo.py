"""LoCoMo: conversations of two named people with image captions and five question categories (Maharana et al. 2024)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from prismem_core.tasks.capability import Capability
from prismem_core.tasks.datasets.source import Source, first_items
from prismem_core.tasks.datasets.splits import LOCOMO_SPLIT, default_split
from prismem_core.tasks.datasets.times import locomo_time
from prismem_core.tasks.datasets.twins import with_twins
from prismem_core.tasks.history import History, Session, Turn
from prismem_core.tasks.irregularity import Findings, leaves
from prismem_core.tasks.native_types import LOCOMO, LOCOMO_CATEGORIES
from prismem_core.tasks.task import Dataset, Task

REPLY_WORDS = 32

_SESSION_KEY = re.compile(r"session_(\d{1,9})", re.ASCII)
_DATE_KEY = re.compile(r"session_(\d{1,9})_date_time", re.ASCII)
_ID_SEPARATORS = re.compile(r"[;,\s]+")
_TURN_ID = re.compile(r"D:?0*(\d{1,9}):0*(\d{1,9})", re.ASCII)
_METRICS = {"adversarial": "abstention", "multi_hop": "f1_multi", "open_domain": "f1_first"}


def is_locomo(value: Any) -> bool:
    """Whether parsed JSON is a LoCoMo file: a list of (or one) object with `conversation` and `qa`."""
    return any(isinstance(item, dict) and {"conversation", "qa"} <= set(item) for item in first_items(value))


def load_locomo(value: Any, source: Source, file: str = "") -> Dataset:
    """The data set of a parsed LoCoMo file; irregular records are mended and reported, never refused.

    Only `conversation` and `qa` are read: summaries, observations and event lists are annotations, and the wrong
    answers of adversarial questions go nowhere.
    """
    findings = Findings(file)
    histories: dict[str, History] = {}
    tasks: list[Task] = []
    for position, sample in enumerate(value if isinstance(value, list) else [value]):
        if not isinstance(sample, dict) or not {"conversation", "qa"} <= set(sample):
            findings.note("sample without `conversation` and `qa` left out", f"sample {position}", "", sample)
            continue
        conversation, questions = sample["conversation"], sample["qa"]
        history_id = findings.text(
            sample.get("sample_id"), "conversation id", f"sample {position}", "sample_id"
        ).strip()
        if not history_id:
            history_id = f"conv-{position + 1}"
            findings.note("conversation id missing, named by position", history_id, "sample_id")
        if history_id in histories:
            findings.note("repeated conversation id renamed", history_id, "sample_id")
            history_id = f"{history_id}#{position}"
        evidence_texts: dict[str, str] = {}
        history = _history(history_id, conversation, evidence_texts, findings)
        if history is None:
            findings.note("conversation that has no session with turns left out", history_id, "conversation")
            continue
        histories[history_id] = history
        tasks += _tasks(history_id, questions, evidence_texts, findings)
        _check_observations(history_id, sample.get("observation"), findings)
    return Dataset(
        name="locomo",
        histories=histories,
        tasks=with_twins(tasks),
        digest=source.digest,
        default_split=default_split(histories, LOCOMO_SPLIT),
        reply_words=REPLY_WORDS,
        repairs=findings.repairs,
        irregularities=tuple(findings.irregularities),
    )


def _history(history_id: str, conversation: Any, evidence_texts: dict[str, str], findings: Findings) -> History | None:
    """Sessions by number, None without any; `evidence_texts` gets the text each turn id stands for as evidence."""
    if not isinstance(conversation, dict):
        return None
    keyed = sorted((int(m[1]), len(key), key) for key in conversation if (m := _SESSION_KEY.fullmatch(key)))
    numbers = {number for number, *_ in keyed}
    dates = {key: int(m[1]) for key in conversation if (m := _DATE_KEY.fullmatch(key))}
    orphans = {key: number for key, number in dates.items() if number not in numbers}
    for key in orphans:
        findings.note("session date without a session ignored", history_id, key, conversation[key])
    sessions: list[Session] = []
    previous, latest, latest_date = 0, datetime.min, ""
    for number, _, key in keyed:
        absent = number - previous - 1 - len({n for n in orphans.values() if previous < n < number})
        if absent > 0:
            told = f"{absent} missing between {previous} and {number}"
            findings.note("gap in the numbers of sessions", history_id, key, told)
        if number == previous:
            findings.note("session number repeated, both kept", history_id, key)
        session_id = key.removeprefix("session_") if number == previous else str(number)
        previous = number
        turns = _turns(number, key, conversation, evidence_texts, history_id, findings)
        if not turns:
            findings.note("session without turns ignored", history_id, key, conversation[key])
            continue
        date_key = f"{key}_date_time"
        found = conversation.get(date_key)
        date = "" if found is None else str(found).strip()
        when = locomo_time(date)
        if not date:
            findings.note("session without a date", history_id, date_key, found)
        elif when is None:
            findings.note("session date of another form kept as text", history_id, date_key, found)
        else:
            if when < latest:
                told = f"{date}, after {latest_date}"
                findings.note("session dated before the last one, order of numbers kept", history_id, date_key, told)
            latest, latest_date = when, date
        sessions.append(Session(session_id, date, turns))
    return History(history_id, tuple(sessions)) if sessions else None


def _turns(
    number: int,
    key: str,
    conversation: Mapping[str, Any],
    evidence_texts: dict[str, str],
    history_id: str,
    findings: Findings,
) -> tuple[Turn, ...]:
    """The turns of a session.

    Ids that are not `D<session>:<turn>`, counted from 1 without a gap, are reported, and so is who is not one of the
    two speakers.
    """
    turns: list[Turn] = []
    expected, records = 1, conversation[key]
    speakers = {str(name).strip() for end in "ab" if (name := conversation.get(f"speaker_{end}")) is not None}
    for index, record in enumerate(records if isinstance(records, list) else [], 1):
        if not isinstance(record, dict):
            findings.note("turn that is no object left out", history_id, f"{key} turn {index}", record)
            expected += 1
            continue
        turn, evidence = _turn(record, f"D{number}:{index}", evidence_texts, history_id, findings)
        evidence_texts[turn.id] = evidence
        if not turn.speaker or (len(speakers) == 2 and turn.speaker not in speakers):
            kind = "turn of another speaker than the two, kept" if turn.speaker else "turn without a speaker kept"
            findings.note(kind, history_id, f"turn D{number}:{index}, speaker", turn.speaker)
        turns.append(turn)
        if turn.id == record.get("dia_id") and turn.id != f"D{number}:{expected}":
            ahead = (m := _TURN_ID.fullmatch(turn.id)) and int(m[1]) == number and int(m[2]) > expected
            kind = "gap in the ids of turns" if ahead else "turn id that is not of its place, kept"
            told = f"{turn.id}, expected D{number}:{expected}"
            findings.note(kind, history_id, f"turn D{number}:{index}, dia_id", told)
            expected = int(m[2]) if m and ahead else expected
        expected += 1
    return tuple(turns)


def _turn(
    record: Mapping[str, Any], position_id: str, taken: Mapping[str, str], history_id: str, findings: Findings
) -> tuple[Turn, str]:
    """A turn and its text as evidence: without the caption, which the benchmark added, unless nothing else was said."""
    turn_id = str(record.get("dia_id") or "").strip()
    if not turn_id or turn_id in taken:
        findings.note(
            "turn id missing or repeated, replaced by position", history_id, f"turn {position_id}, dia_id", turn_id
        )
        turn_id = position_id if position_id not in taken else f"{position_id}#{len(taken)}"
    where = f"turn {position_id}"
    text, caption, speaker = (
        findings.text(record.get(key), what, history_id, f"{where}, {key}").strip()
        for key, what in (("text", "turn text"), ("blip_caption", "caption"), ("speaker", "speaker"))
    )
    shown = f"{text} [image: {caption}]".strip() if caption else text
    if not shown:
        findings.note("turn without text kept", history_id, f"{where}, text", record.get("text"))
    return Turn(turn_id, speaker, shown), text or shown


def _check_observations(history_id: str, observation: Any, findings: Findings) -> None:
    """Report evidence of observations that is no single id; observations themselves are shown to nobody."""
    for key, by_speaker in observation.items() if isinstance(observation, dict) else ():
        for speaker, items in by_speaker.items() if isinstance(by_speaker, dict) else ():
            records = items if isinstance(items, list) else []
            cited = [item[1] for item in records if isinstance(item, list) and len(item) == 2]
            lists = [value for value in cited if isinstance(value, list)]
            if lists:
                findings.note("observation with a list of ids, not used", f"{history_id} {key}", speaker, lists)
            for value in cited:
                if isinstance(value, str) and len(_ID_SEPARATORS.split(value.strip())) > 1:
                    findings.note("observation with joined ids, not used", f"{history_id} {key}", speaker, value)


def _tasks(history_id: str, questions: Any, evidence_texts: Mapping[str, str], findings: Findings) -> Iterator[Task]:
    asked: dict[str, str] = {}
    if questions == []:
        findings.note("conversation without questions", history_id, "qa")
    if not isinstance(questions, list):
        findings.note("questions that are no list left out", history_id, "qa", questions)
        return
    for position, record in enumerate(questions):
        task_id = f"{history_id}/q{position:03d}"
        if not isinstance(record, dict):
            findings.note("question that is no object left out", task_id, "", record)
            continue
        category = record.get("category")
        if isinstance(category, str) and category.strip() in map(str, LOCOMO_CATEGORIES):
            findings.note("category that is text read as a number", task_id, "category", category)
            category = int(category)
        native = LOCOMO_CATEGORIES.get(category) if type(category) is int else None
        question = _clean(record.get("question"), "question", task_id, findings)
        if native is None or not question:
            field, found = ("category", category) if question else ("question", record)
            findings.note("question without text or known category left out", task_id, field, found)
            continue
        if question in asked:
            findings.note(
                "question text repeated in its conversation, both kept", task_id, "question", f"as in {asked[question]}"
            )
        asked.setdefault(question, task_id)
        ids = evidence_ids(record.get("evidence"), evidence_texts, task_id, findings)
        if not ids:
            findings.note("question without evidence", task_id, "evidence", record.get("evidence"))
        primary = LOCOMO[native]
        yield Task(
            id=task_id,
            history_id=history_id,
            question=question,
            reference=_reference(record, primary, task_id, findings),
            evidence=tuple(evidence_texts[turn_id] for turn_id in ids),
            native_type=native,
            primary=primary,
            metric=_METRICS.get(native, "f1"),
            evidence_ids=ids,
            benchmark="locomo",
        )


def _reference(record: Mapping[str, Any], primary: Capability, task_id: str, findings: Findings) -> str:
    if primary is Capability.ADVERSARIAL:
        if "answer" in record:
            findings.note("answer of an adversarial question ignored", task_id, "answer", record["answer"])
        return ""
    reference = _clean(record.get("answer"), "answer", task_id, findings)
    if not reference:
        findings.note("answer missing", task_id, "answer")
    return reference


def _clean(value: Any, field: str, task_id: str, findings: Findings) -> str:
    """The text of a field: numbers spelled out, outer blanks gone, both reported."""
    whole = findings.text(value, field, task_id, field)
    text = whole.strip()
    if text != whole:
        article = "an" if field == "answer" else "a"
        findings.note(f"blanks around {article} {field} removed", task_id, field, repr(whole))
    return text


def evidence_ids(value: Any, turns: Mapping[str, str], task_id: str, findings: Findings) -> tuple[str, ...]:
    """The ids of turns that an evidence list names, distinct and in order.

    A list may be nested or lack its brackets. Several ids in one string are split at `;`, `,` and blanks, leading zeros
    dropped (`D30:05`) and a stray colon mended (`D:11:26`); what still names no turn is dropped. Each repair is
    reported.
    """
    items = value if isinstance(value, list) else [] if value is None else [value]
    if value is not None and not isinstance(value, list):
        findings.note("evidence that is no list read as one", task_id, "evidence", value)
    if any(isinstance(item, list) for item in items):
        findings.note("nested evidence ids flattened", task_id, "evidence", value)
    found: dict[str, None] = {}
    for item in leaves(items):
        if not isinstance(item, str) or not item.strip():
            findings.note("evidence id that names no turn dropped", task_id, "evidence", item)
            continue
        parts = [part for part in _ID_SEPARATORS.split(item) if part]
        if len(parts) > 1:
            findings.note("several evidence ids in one string split", task_id, "evidence", item)
        for part in parts:
            turn_id = part
            if turn_id not in turns and (m := _TURN_ID.fullmatch(part)) and f"D{m[1]}:{m[2]}" in turns:
                turn_id = f"D{m[1]}:{m[2]}"
                findings.note("misspelt evidence id mended", task_id, "evidence", part)
            if turn_id in turns:
                found[turn_id] = None
            else:
                findings.note("evidence id that names no turn dropped", task_id, "evidence", part)
    return tuple(found)
