"""JSON Lines: the documented format for one's own conversations and questions (docs/data.md), read and written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prismem_core.errors import DataError
from prismem_core.tasks.capability import CAPABILITIES, Capability
from prismem_core.tasks.datasets.source import Source, parse_json
from prismem_core.tasks.datasets.splits import PARTS, default_split
from prismem_core.tasks.datasets.twins import with_twins
from prismem_core.tasks.history import History, Session, Turn
from prismem_core.tasks.irregularity import Findings
from prismem_core.tasks.task import Dataset, Task
from prismem_core.tasks.text import normal_form

TYPES = ("dataset", "conversation", "question")

# Whose rules a model judges by (docs/judges.md); left out, the general ones.
BENCHMARKS = ("locomo", "longmemeval", "beam", "perltqa")

_METRICS = ("f1", "f1_multi", "f1_first", "abstention", "rubric")
_CAPABILITIES: Mapping[str, Capability] = {c.value: c for c in CAPABILITIES} | {c.letter: c for c in CAPABILITIES}
# Multi-session answers are lists, which the multi-hop rule compares item by item; the rest is plain F1.
_DEFAULT_METRICS = {Capability.MULTI_SESSION_SYNTHESIS: "f1_multi"}


@dataclass
class _Draft:
    """What the lines read so far add up to."""

    source: Source
    name: str = ""
    reply_words: int = 32
    split: dict[str, tuple[str, ...]] | None = None
    histories: dict[str, History] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)
    task_ids: set[str] = field(default_factory=set)
    findings: Findings = field(default_factory=Findings)


class _Record:
    """One line's object with its place, so that every complaint names file and line."""

    def __init__(self, value: Any, where: str) -> None:
        self.where = where
        if not isinstance(value, dict):
            raise self.error(f"{type(value).__name__} in place of an object")
        self.value: dict[str, Any] = value

    def error(self, message: str) -> DataError:
        return DataError(f"{self.where}: {message}")

    def keys(self, required: Iterable[str], optional: Iterable[str] = ()) -> None:
        required = tuple(required)
        known = (*required, *optional)
        for key in self.value:
            if key not in known:
                raise self.error(f"unknown key {key!r}; expected {', '.join(known)}")
        for key in required:
            if key not in self.value:
                raise self.error(f"key {key!r} is missing")

    def text(self, key: str, default: str | None = None, *, blank: bool = False) -> str:
        value = self.value.get(key, default)
        if not isinstance(value, str):
            raise self.error(f"{key!r} must be a string, not {json.dumps(value)[:60]}")
        if not blank and not value.strip() and value != default:
            raise self.error(f"{key!r} is blank")
        return value

    def identifier(self, key: str, default: str) -> str:
        value = self.value.get(key, default)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        return self.text(key, default)

    def records(self, key: str) -> list[_Record]:
        value = self.value.get(key)
        if not isinstance(value, list) or not value:
            raise self.error(f"{key!r} must be a non-empty list of objects")
        return [_Record(item, f"{self.where}, {key}[{index}]") for index, item in enumerate(value)]

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.value.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(f"{key!r} must be a list of strings")
        return tuple(value)


def load_jsonl(paths: Iterable[tuple[Path, str]], name: str, source: Source) -> Dataset:
    """The data set of JSON Lines files, given as (path, text); anything out of form is refused with file and line.

    Conversations may stand after their questions and in another file. Raises DataError.
    """
    draft = _Draft(source, name)
    questions: list[tuple[str, _Record]] = []
    for path, text in paths:
        draft.findings.file = source.name(path)
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            record = _Record(parse_json(line, path, number), f"{path}, line {number}")
            kind = record.value.get("type")
            if kind == "conversation":
                _add_conversation(record, draft)
            elif kind == "question":
                questions.append((source.name(path), record))
            elif kind == "dataset":
                _add_settings(record, draft)
            else:
                raise record.error(f"type {json.dumps(kind)[:40]} is unknown; expected {', '.join(TYPES)}")
    turns = {key: _turns(history) for key, history in draft.histories.items()}
    counts: Counter[str] = Counter()
    for draft.findings.file, record in questions:
        _add_question(record, draft, turns, counts)
    dataset = Dataset(
        name=draft.name,
        histories=draft.histories,
        tasks=with_twins(draft.tasks),
        digest=source.digest,
        default_split=draft.split or default_split(draft.histories),
        reply_words=draft.reply_words,
        repairs=draft.findings.repairs,
        irregularities=tuple(draft.findings.irregularities),
    )
    if draft.split:
        dataset.split()  # a split that names unknown or repeated conversations is the file's mistake: say so on load
    return dataset


def _add_settings(record: _Record, draft: _Draft) -> None:
    record.keys(("type",), ("name", "reply_words", "split"))
    draft.name = record.text("name", draft.name)
    words = record.value.get("reply_words", draft.reply_words)
    if not isinstance(words, int) or isinstance(words, bool) or words < 1:
        raise record.error("'reply_words' must be a whole number of at least 1")
    draft.reply_words = words
    if "split" in record.value:
        if draft.split is not None:
            raise record.error("a second 'split'; one line may give it")
        parts = _Record(record.value["split"], f"{record.where}, split")
        parts.keys((), PARTS)
        draft.split = {part: parts.texts(part) for part in PARTS}


def _add_conversation(record: _Record, draft: _Draft) -> None:
    record.keys(("type", "id", "sessions"))
    history_id = record.identifier("id", "")
    if not history_id:
        raise record.error("'id' is blank")
    if history_id in draft.histories:
        raise record.error(f"conversation {history_id!r} is there twice")
    sessions: list[Session] = []
    session_ids: set[str] = set()
    turn_ids: set[str] = set()
    for position, item in enumerate(record.records("sessions"), 1):
        item.keys(("turns",), ("id", "time"))
        session_id = item.identifier("id", str(position))
        if session_id in session_ids:
            raise item.error(f"session {session_id!r} is there twice")
        session_ids.add(session_id)
        turns = []
        for index, part in enumerate(item.records("turns"), 1):
            part.keys(("speaker", "text"), ("id",))
            turn_id = part.identifier("id", f"{session_id}:{index}")
            if turn_id in turn_ids:
                raise part.error(f"turn {turn_id!r} is there twice in conversation {history_id!r}")
            turn_ids.add(turn_id)
            turns.append(Turn(turn_id, part.text("speaker"), part.text("text", blank=True)))
        time = item.text("time", "", blank=True)
        if not time:
            draft.findings.note("session without a time", history_id, f"session {session_id}")
        sessions.append(Session(session_id, time, tuple(turns)))
    draft.histories[history_id] = History(history_id, tuple(sessions))


def _add_question(record: _Record, draft: _Draft, turns: Mapping[str, Mapping[str, str]], counts: Counter[str]) -> None:
    record.keys(
        ("type", "conversation", "question"),
        (
            *("id", "answer", "capability", "secondary", "evidence", "answerable", "native_type", "metric", "rubric"),
            *("benchmark", "asked_at"),
        ),
    )
    history_id = record.identifier("conversation", "")
    if history_id not in turns:
        raise record.error(f"conversation {history_id!r} is not in the data set")
    task_id = record.identifier("id", f"{history_id}/q{counts[history_id]:03d}")
    counts[history_id] += 1
    if task_id in draft.task_ids:
        raise record.error(f"question {task_id!r} is there twice")
    draft.task_ids.add(task_id)
    primary, answerable, reference = _answer(record)
    secondary = _secondary(record, primary)
    pieces = [_evidence(record, item, turns[history_id]) for item in _list(record, "evidence")]
    distinct = list(dict.fromkeys(pieces))
    if not distinct:
        draft.findings.note("question without evidence", task_id, "evidence")
    default_metric = _DEFAULT_METRICS.get(primary, "f1") if answerable else "abstention"
    metric = record.text("metric", default_metric)
    if metric not in _METRICS or (metric == "abstention") == answerable:
        allowed = [name for name in _METRICS if (name == "abstention") != answerable]
        raise record.error(f"metric {metric!r} does not fit; expected {', '.join(allowed)}")
    benchmark = record.text("benchmark", "")
    if benchmark and benchmark not in BENCHMARKS:
        raise record.error(f"benchmark {benchmark!r} is unknown; expected {', '.join(BENCHMARKS)}")
    draft.tasks.append(
        Task(
            id=task_id,
            history_id=history_id,
            question=record.text("question").strip(),
            reference=reference,
            evidence=tuple(text for _, text in distinct),
            native_type=record.text("native_type", primary.value),
            primary=primary,
            secondary=secondary,
            metric=metric,
            rubric=record.texts("rubric"),
            evidence_ids=tuple(turn_id for turn_id, _ in distinct),
            labelled="secondary" in record.value,
            benchmark=benchmark,
            asked_at=record.text("asked_at", "").strip(),
        )
    )


def _answer(record: _Record) -> tuple[Capability, bool, str]:
    """Capability, whether there is an answer, and the answer; only unanswerable questions may leave the answer out."""
    name = record.value.get("capability")
    primary = _CAPABILITIES.get(name) if isinstance(name, str) else None
    has_answer = "answer" in record.value
    answerable = record.value.get("answerable", has_answer or primary is not Capability.ADVERSARIAL)
    if not isinstance(answerable, bool):
        raise record.error("'answerable' must be true or false")
    if primary is None and (name is not None or answerable):
        raise record.error(
            f"capability {json.dumps(name)[:40]} is unknown; expected {', '.join(Capability)} (or F T P M A)"
        )
    if not answerable:
        # A reference that says "not mentioned" in the benchmark's own words is allowed (BEAM has them).
        return primary or Capability.ADVERSARIAL, False, record.text("answer", "", blank=True)
    if not has_answer:
        raise record.error("key 'answer' is missing; a question without an answer says \"answerable\": false")
    return primary or Capability.ADVERSARIAL, True, record.text("answer").strip()


def _secondary(record: _Record, primary: Capability) -> tuple[Capability, ...]:
    names = record.texts("secondary")
    unknown = [name for name in names if name not in _CAPABILITIES]
    chosen = {_CAPABILITIES[name] for name in names if name in _CAPABILITIES}
    if unknown or len(names) > 2 or len(chosen) < len(names) or primary in chosen:
        given = json.dumps(list(names))[:80]
        raise record.error(f"'secondary' is {given}; expected at most two different capabilities other than {primary}")
    return tuple(c for c in CAPABILITIES if c in chosen)


def _evidence(record: _Record, item: Any, turns: Mapping[str, str]) -> tuple[str, str]:
    """(turn id, text) of one piece: a turn's id, a text that occurs in a turn, or both as {"turn", "text"}."""
    if isinstance(item, dict):
        both = _Record(item, f"{record.where}, evidence")
        both.keys(("turn", "text"))
        turn_id, text = both.identifier("turn", ""), both.text("text", blank=True)
        if turn_id not in turns:
            raise both.error(f"no turn {turn_id!r} in the conversation")
        return turn_id, text
    text = str(item) if isinstance(item, int) and not isinstance(item, bool) else item
    if not isinstance(text, str) or not text.strip():
        raise record.error(f"evidence {json.dumps(item)[:60]} is neither a turn's id nor a text")
    if text in turns:
        return text, turns[text]
    form = normal_form(text)
    for turn_id, said in turns.items():
        if form in normal_form(said):
            return turn_id, text
    raise record.error(
        f"evidence {json.dumps(text)[:80]} is neither the id of a turn nor text of one in its conversation"
    )


def _list(record: _Record, key: str) -> list[Any]:
    value = record.value.get(key, [])
    if not isinstance(value, list):
        raise record.error(f"{key!r} must be a list")
    return value


def _turns(history: History) -> dict[str, str]:
    return {turn.id: turn.text for session in history.sessions for turn in session.turns}


def write_jsonl(dataset: Dataset, path: str | Path) -> None:
    """Write a data set so that reading it gives the same histories, tasks, split and reply length."""
    lines: list[dict[str, Any]] = [{"type": "dataset", "name": dataset.name, "reply_words": dataset.reply_words}]
    if dataset.default_split:
        lines[0]["split"] = {part: list(dataset.default_split.get(part, ())) for part in PARTS}
    for history in dataset.histories.values():
        sessions = [
            {
                "id": session.id,
                "time": session.timestamp,
                "turns": [{"id": turn.id, "speaker": turn.speaker, "text": turn.text} for turn in session.turns],
            }
            for session in history.sessions
        ]
        lines.append({"type": "conversation", "id": history.id, "sessions": sessions})
    turns = {history.id: _turns(history) for history in dataset.histories.values()}
    lines += [_question_line(task, turns[task.history_id]) for task in dataset.tasks]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    Path(path).write_text(text, encoding="utf-8", newline="\n")


def _question_line(task: Task, turns: Mapping[str, str]) -> dict[str, Any]:
    line: dict[str, Any] = {
        "type": "question",
        "conversation": task.history_id,
        "id": task.id,
        "question": task.question,
        "answer": task.reference,
        "capability": task.primary.value,
    }
    if task.labelled or task.secondary:
        line["secondary"] = [c.value for c in task.secondary]
    ids = task.evidence_ids or (None,) * len(task.evidence)
    line["evidence"] = [
        text if turn_id is None else turn_id if turns[turn_id] == text else {"turn": turn_id, "text": text}
        for turn_id, text in zip(ids, task.evidence, strict=True)
    ]
    if task.expects_abstention:
        line["answerable"] = False
        if not task.reference:
            del line["answer"]
    elif task.metric != _DEFAULT_METRICS.get(task.primary, "f1"):
        line["metric"] = task.metric
    if task.native_type != task.primary.value:
        line["native_type"] = task.native_type
    if task.rubric:
        line["rubric"] = list(task.rubric)
    line |= {key: value for key in ("benchmark", "asked_at") if (value := getattr(task, key))}
    return line
