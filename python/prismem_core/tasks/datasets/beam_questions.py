"""BEAM's probing questions: ten types, each with its own field for the reference and its own form of evidence ids."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from prismem_core.tasks.history import History
from prismem_core.tasks.irregularity import Findings, leaves
from prismem_core.tasks.native_types import BEAM
from prismem_core.tasks.task import Task

# The field with the reference answer; `answer` for every other type.
_REFERENCE_FIELDS = {
    "abstention": "ideal_response",
    "contradiction_resolution": "ideal_answer",
    "instruction_following": "expected_compliance",
    "preference_following": "expected_compliance",
    "summarization": "ideal_summary",
}

# One id or several, as text, with or without the brackets of a list.
_TEXT_IDS = re.compile(r"[\[(]?\s*\d{1,9}(?:[\s,;]+\d{1,9})*\s*[\])]?", re.ASCII)
_LENGTH = re.compile(r"\b(\d+)[ -](day|week|month|year)s?\b", re.IGNORECASE)


def beam_tasks(history: History, questions: Any, findings: Findings) -> Iterator[Task]:
    """The tasks of one chat; questions of an unknown type and without text are left out, all else is kept."""
    if not isinstance(questions, dict):
        findings.note("questions that are no object of types left out", history.id, "probing_questions", questions)
        return
    if not questions:
        findings.note("chat without probing questions", history.id, "probing_questions")
        return
    for native in BEAM:
        if not questions.get(native):
            findings.note("no questions of a type", history.id, native, questions.get(native, ""))
    texts = {turn.id: turn.text for session in history.sessions for turn in session.turns}
    for native, records in questions.items():
        primary = BEAM.get(native)
        if primary is None:
            for position, _ in enumerate(records if isinstance(records, list) else [records]):
                findings.note("questions of an unknown type left out", f"{history.id}/{native}-{position}", native)
            continue
        if records and not isinstance(records, list):
            findings.note("questions of a type that are no list read as one", history.id, native, records)
        for position, record in enumerate(records if isinstance(records, list) else [records] if records else []):
            task_id = f"{history.id}/{native}-{position}"
            if not isinstance(record, dict) or not str(record.get("question") or "").strip():
                findings.note("question without text left out", task_id, "question", record)
                continue
            field = _REFERENCE_FIELDS.get(native, "answer")
            reference = findings.text(record.get(field), "answer", task_id, field).strip()
            if not reference:
                findings.note("answer missing", task_id, field)
            ids = _evidence_ids(record, native, texts, task_id, findings)
            rubric = _rubric(record, task_id, findings)
            _compare(record, native, reference, rubric, task_id, findings)
            yield Task(
                id=task_id,
                history_id=history.id,
                question=findings.text(record["question"], "question", task_id, "question").strip(),
                reference=reference,
                evidence=tuple(texts[turn_id] for turn_id in ids),
                native_type=native,
                primary=primary,
                metric="abstention" if native == "abstention" else "rubric",
                rubric=rubric,
                evidence_ids=ids,
                benchmark="beam",
            )


def _rubric(record: Mapping[str, Any], task_id: str, findings: Findings) -> tuple[str, ...]:
    rubric = record.get("rubric")
    if rubric is not None and not isinstance(rubric, list):
        findings.note("rubric that is no list read as one point", task_id, "rubric", rubric)
    kept: list[str] = []
    items = rubric if isinstance(rubric, list) else [] if rubric is None else [rubric]
    for item in items:
        point = "" if item is None else str(item).strip()
        if not point:
            findings.note("empty point of a rubric left out", task_id, "rubric", item)
            continue
        if not isinstance(item, str):
            findings.note("point of a rubric that is no text read as text", task_id, "rubric", item)
        kept.append(point)
    if not kept:
        findings.note("rubric missing", task_id, "rubric")
    return tuple(kept)


def _compare(
    record: Mapping[str, Any], native: str, reference: str, rubric: tuple[str, ...], task_id: str, findings: Findings
) -> None:
    """Report where the record contradicts itself; the rubric is what is scored.

    Of a question about times, the lengths of time that reference and rubric name in the same unit must meet.
    """
    total = record.get("total_mentions")
    if native == "event_ordering" and total not in (None, len(rubric)):
        findings.note(
            "number of mentions differs from the rubric, rubric kept",
            task_id,
            "total_mentions",
            f"{total} mentions, {len(rubric)} points",
        )
    if native != "temporal_reasoning":
        return
    said, scored = _lengths(reference), _lengths(" ".join(rubric))
    apart = [unit for unit in said if unit in scored and not said[unit] & scored[unit]]
    if apart:
        unit = apart[0]
        answer, points = ("/".join(map(str, sorted(lengths[unit]))) for lengths in (said, scored))
        findings.note(
            "rubric contradicts the reference, rubric kept",
            task_id,
            "rubric",
            f"reference {answer} {unit}s, rubric {points} {unit}s",
        )


def _lengths(text: str) -> dict[str, set[int]]:
    """The lengths of time that a text names, by unit."""
    found: dict[str, set[int]] = {}
    for number, unit in _LENGTH.findall(text):
        found.setdefault(unit.lower(), set()).add(int(number) if len(number) < 10 else -1)
    return found


def _evidence_ids(
    record: Mapping[str, Any], native: str, texts: Mapping[str, str], task_id: str, findings: Findings
) -> tuple[str, ...]:
    """Ids of the cited messages, distinct and in order, whatever the nesting; what names no message is dropped."""
    value = record.get("source_chat_ids")
    if value is None:
        if native != "abstention":
            findings.note("evidence ids missing", task_id, "source_chat_ids")
        return ()
    named = value if isinstance(value, dict) else {"": value}
    lists = list(named.values())
    if any(isinstance(item, list) for part in lists if isinstance(part, list) for item in part):
        findings.note("nested evidence ids flattened", task_id, "source_chat_ids", value)
    found: dict[str, None] = {}
    for key, part in named.items():
        field = f"source_chat_ids.{key}" if key else "source_chat_ids"
        if part is None:
            findings.note("evidence ids missing", task_id, field)
            continue
        if part == []:
            findings.note("empty list of evidence ids", task_id, field)
        elif not isinstance(part, list):
            findings.note("evidence ids that are no list read as one", task_id, field, part)
        for item in leaves(part):
            ids = [item]
            if isinstance(item, str) and _TEXT_IDS.fullmatch(item):
                ids = re.findall(r"\d+", item)
                findings.note("evidence id that is text read as a number", task_id, field, item)
            for turn_id in map(str, ids):
                if turn_id in texts and not isinstance(item, bool | None):
                    found[turn_id] = None
                else:
                    dropped = item if item is None else turn_id
                    findings.note("evidence id that names no message dropped", task_id, field, dropped)
    return tuple(found)
