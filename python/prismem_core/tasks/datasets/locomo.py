"""LoCoMo: conversations of two named people with image captions and five question categories (Maharana et al. 2024)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from prismem_core.tasks.capability import Capability
from prismem_core.tasks.datasets.source import Source, require
from prismem_core.tasks.datasets.splits import LOCOMO_SPLIT, default_split
from prismem_core.tasks.datasets.twins import with_twins
from prismem_core.tasks.history import History, Session, Turn
from prismem_core.tasks.native_types import LOCOMO, LOCOMO_CATEGORIES
from prismem_core.tasks.task import Dataset, Task

REPLY_WORDS = 32

_SESSION_KEY = re.compile(r"session_(\d+)")
_DATE_KEY = re.compile(r"session_(\d+)_date_time")
_ID_SEPARATORS = re.compile(r"[;,\s]+")
_TURN_ID = re.compile(r"D:?0*(\d+):0*(\d+)")
_METRICS = {"adversarial": "abstention", "multi_hop": "f1_multi", "open_domain": "f1_first"}


def is_locomo(value: Any) -> bool:
    """Whether parsed JSON is a LoCoMo file: a list of (or one) object with `conversation` and `qa`."""
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and "conversation" in first and "qa" in first


def load_locomo(value: Any, source: Source) -> Dataset:
    """The data set of a parsed LoCoMo file; irregular records are mended and counted in `repairs`, never refused.

    Only `conversation` and `qa` are read: summaries, observations and event lists are annotations, and the wrong
    answers of adversarial questions go nowhere.
    """
    repairs: Counter[str] = Counter()
    histories: dict[str, History] = {}
    tasks: list[Task] = []
    for position, sample in enumerate(value if isinstance(value, list) else [value]):
        require(is_locomo(sample), f"LoCoMo sample {position} lacks `conversation` or `qa`")
        conversation, questions = sample["conversation"], sample["qa"]
        require(
            isinstance(conversation, dict) and isinstance(questions, list),
            f"LoCoMo sample {position}: `conversation` must be an object and `qa` a list",
        )
        history_id = str(sample.get("sample_id") or f"conv-{position + 1}")
        if history_id in histories:
            repairs["repeated conversation id renamed"] += 1
            history_id = f"{history_id}#{position}"
        evidence_texts: dict[str, str] = {}
        histories[history_id] = _history(history_id, conversation, evidence_texts, repairs)
        tasks += _tasks(history_id, questions, evidence_texts, repairs)
    return Dataset(
        name="locomo",
        histories=histories,
        tasks=with_twins(tasks),
        digest=source.digest,
        default_split=default_split(histories, LOCOMO_SPLIT),
        reply_words=REPLY_WORDS,
        repairs=dict(sorted(repairs.items())),
    )


def _history(
    history_id: str, conversation: Mapping[str, Any], evidence_texts: dict[str, str], repairs: Counter[str]
) -> History:
    """Sessions by number; `evidence_texts` is filled with the text each turn id stands for as evidence."""
    numbers = {int(m[1]): key for key in conversation if (m := _SESSION_KEY.fullmatch(key))}
    for key in conversation:
        if (m := _DATE_KEY.fullmatch(key)) and int(m[1]) not in numbers:
            repairs["session date without a session ignored"] += 1
    sessions = []
    for number, key in sorted(numbers.items()):
        records = conversation[key]
        if not isinstance(records, list) or not records:
            repairs["session without turns ignored"] += 1
            continue
        date = conversation.get(f"{key}_date_time")
        if not isinstance(date, str) or not date.strip():
            repairs["session without a date"] += 1
            date = ""
        turns = []
        for index, record in enumerate(records, 1):
            turn, evidence = _turn(record, f"D{number}:{index}", evidence_texts, repairs)
            evidence_texts[turn.id] = evidence
            turns.append(turn)
        sessions.append(Session(str(number), date.strip(), tuple(turns)))
    require(bool(sessions), f"LoCoMo conversation {history_id!r} has no session with turns")
    return History(history_id, tuple(sessions))


def _turn(record: Any, position_id: str, taken: Mapping[str, str], repairs: Counter[str]) -> tuple[Turn, str]:
    """A turn and its text as evidence: without the caption, which the benchmark added, unless nothing else was said."""
    require(isinstance(record, dict), f"LoCoMo turn {position_id} is {type(record).__name__}; expected an object")
    turn_id = str(record.get("dia_id") or "").strip()
    if not turn_id or turn_id in taken:
        repairs["turn id missing or repeated, replaced by position"] += 1
        turn_id = position_id if position_id not in taken else f"{position_id}#{len(taken)}"
    text = str(record.get("text") or "").strip()
    caption = str(record.get("blip_caption") or "").strip()
    shown = f"{text} [image: {caption}]".strip() if caption else text
    return Turn(turn_id, str(record.get("speaker") or "").strip(), shown), text or shown


def _tasks(
    history_id: str, questions: Sequence[Any], evidence_texts: Mapping[str, str], repairs: Counter[str]
) -> list[Task]:
    tasks = []
    asked: set[str] = set()
    for position, record in enumerate(questions):
        require(isinstance(record, dict), f"LoCoMo question {history_id} {position} is not an object")
        category = record.get("category")
        native = LOCOMO_CATEGORIES.get(category) if isinstance(category, int) else None
        question = _clean(record.get("question"), "question", repairs)
        if native is None or not question:
            repairs["question without text or known category left out"] += 1
            continue
        if question in asked:
            repairs["question text repeated in its conversation, both kept"] += 1
        asked.add(question)
        ids = evidence_ids(record.get("evidence"), evidence_texts, repairs)
        if not ids:
            repairs["question without evidence"] += 1
        primary = LOCOMO[native]
        tasks.append(
            Task(
                id=f"{history_id}/q{position:03d}",
                history_id=history_id,
                question=question,
                reference=_reference(record, primary, repairs),
                evidence=tuple(evidence_texts[turn_id] for turn_id in ids),
                native_type=native,
                primary=primary,
                metric=_METRICS.get(native, "f1"),
                evidence_ids=ids,
            )
        )
    return tasks


def _reference(record: Mapping[str, Any], primary: Capability, repairs: Counter[str]) -> str:
    if primary is Capability.ADVERSARIAL:
        if "answer" in record:
            repairs["answer of an adversarial question ignored"] += 1
        return ""
    if record.get("answer") is None:
        repairs["answer missing"] += 1
        return ""
    return _clean(record["answer"], "answer", repairs)


def _clean(value: Any, field: str, repairs: Counter[str]) -> str:
    """The text of a field: numbers spelled out, outer blanks gone, both counted."""
    if value is None:
        return ""
    if not isinstance(value, str):
        repairs[f"{field} that is no text read as text"] += 1
        value = str(value)
    text: str = value.strip()
    if text != value:
        repairs[f"blanks around {'an' if field == 'answer' else 'a'} {field} removed"] += 1
    return text


def evidence_ids(value: Any, turns: Mapping[str, str], repairs: Counter[str]) -> tuple[str, ...]:
    """The ids of turns that an evidence list names, distinct and in order.

    Several ids in one string are split at `;`, `,` and blanks, leading zeros dropped (`D30:05`) and a stray colon
    mended (`D:11:26`); what still names no turn is dropped. Each kind of repair is counted.
    """
    items = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    found: dict[str, None] = {}
    for item in items:
        parts = [part for part in _ID_SEPARATORS.split(str(item)) if part]
        if len(parts) > 1:
            repairs["several evidence ids in one string split"] += 1
        for part in parts:
            turn_id = part
            if turn_id not in turns and (m := _TURN_ID.fullmatch(part)) and f"D{m[1]}:{m[2]}" in turns:
                turn_id = f"D{m[1]}:{m[2]}"
                repairs["misspelt evidence id mended"] += 1
            if turn_id in turns:
                found[turn_id] = None
            else:
                repairs["evidence id that names no turn dropped"] += 1
    return tuple(found)
