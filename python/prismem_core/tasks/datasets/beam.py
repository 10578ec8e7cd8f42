"""BEAM: long chats of a user and an assistant with ten kinds of probing questions (Tavakoli et al. 2025)."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prismem_core.errors import DataError
from prismem_core.tasks.datasets.source import Source, require
from prismem_core.tasks.datasets.splits import BEAM_100K_SPLIT, default_split
from prismem_core.tasks.datasets.twins import with_twins
from prismem_core.tasks.history import History, Session, Turn
from prismem_core.tasks.native_types import BEAM
from prismem_core.tasks.task import Dataset, Task

REPLY_WORDS = 80

_SIZE = re.compile(r"\d+(?:\.\d+)?[KM]", re.IGNORECASE)
_ANCHOR = re.compile(r"([A-Za-z]+)-0?(\d{1,2})-(\d{4})")
_MARKER = "->->"
_MAX_LITERAL_CHARS = 5_000_000

# The field with the reference answer; `answer` for every other type.
_REFERENCE_FIELDS = {
    "abstention": "ideal_response",
    "contradiction_resolution": "ideal_answer",
    "instruction_following": "expected_compliance",
    "preference_following": "expected_compliance",
    "summarization": "ideal_summary",
}


def chat_folders(root: Path) -> list[Path]:
    """The chat folders below `root`: itself, those of one size or of all sizes; numbers in order."""
    if _chat_file(root):
        return [root]
    for pattern in ("*", "*/*", "chats/*/*"):
        found = [path for path in root.glob(pattern) if path.is_dir() and _chat_file(path)]
        if found:
            return sorted(found, key=lambda path: [_natural(part) for part in path.relative_to(root).parts])
    return []


def is_beam_table(value: Any) -> bool:
    """Whether parsed JSON is the tabular release: rows (a list, one row, or `{"rows": ...}`) of chat and questions."""
    rows = _rows(value)
    return bool(rows) and all(isinstance(row, dict) and {"chat", "probing_questions"} <= set(row) for row in rows[:3])


def load_beam_folder(folders: Sequence[Path], source: Source) -> Dataset:
    """The data set of chat folders: `chat.json` and `probing_questions/probing_questions.json`, packed or not."""
    chats = []
    repairs: Counter[str] = Counter()
    for folder in folders:
        chat_file = _chat_file(folder)
        require(chat_file is not None, f"{folder} has no chat.json or chat.json.gz")
        chat = source.json(chat_file) if chat_file else None
        question_files = [folder / "probing_questions" / f"probing_questions.json{end}" for end in ("", ".gz")]
        present = [path for path in question_files if path.exists()]
        if not present:
            repairs["chat without probing questions"] += 1
        chats.append((_history_id(folder), chat, source.json(present[0]) if present else {}))
    sizes = {history_id.split("/")[0] for history_id, _, _ in chats if "/" in history_id}
    name = f"beam-{sizes.pop()}" if len(sizes) == 1 else "beam"
    return _dataset(name, chats, source, repairs)


def load_beam_table(value: Any, path: Path, source: Source) -> Dataset:
    """The data set of the tabular release: one row a chat, `probing_questions` a string with a Python literal."""
    words = re.split(r"[^\w.]|_", path.name.split(".")[0])
    size = next((part for part in reversed(words) if _SIZE.fullmatch(part)), "")
    chats = []
    for position, row in enumerate(_rows(value)):
        key = row.get("conversation_id")
        number = str(key if key is not None else position + 1)
        where = f"{path}, row {position}"
        questions = _literal(row["probing_questions"], f"{where}, `probing_questions`")
        chats.append((f"{size}/{number}" if size else number, _literal(row["chat"], f"{where}, `chat`"), questions))
    return _dataset(f"beam-{size}" if size else "beam", chats, source, Counter())


def _dataset(name: str, chats: Sequence[tuple[str, Any, Any]], source: Source, repairs: Counter[str]) -> Dataset:
    histories: dict[str, History] = {}
    tasks: list[Task] = []
    for history_id, chat, questions in chats:
        require(history_id not in histories, f"BEAM chat {history_id!r} is there twice")
        history = _history(history_id, chat, repairs)
        histories[history_id] = history
        tasks += _tasks(history, questions, repairs)
    return Dataset(
        name=name,
        histories=histories,
        tasks=with_twins(tasks),
        digest=source.digest,
        default_split=default_split(histories, BEAM_100K_SPLIT),
        reply_words=REPLY_WORDS,
        repairs=dict(sorted(repairs.items())),
    )


def _history(history_id: str, chat: Any, repairs: Counter[str]) -> History:
    """One session a batch; a batch without a date of its own stands under the last one before it."""
    require(isinstance(chat, list), f"BEAM chat {history_id!r} is {type(chat).__name__}; expected a list of batches")
    sessions: list[Session] = []
    date = ""
    taken: set[str] = set()
    for position, batch in enumerate(chat, 1):
        messages = list(_messages(batch))
        own = batch.get("time_anchor") if isinstance(batch, dict) else None
        anchors = [a for a in (own, *(m.get("time_anchor") for m in messages)) if isinstance(a, str) and a.strip()]
        if anchors:
            date = _date(anchors[0].strip(), repairs)
        else:
            repairs["batch without a date, last one carried over"] += 1
        turns: list[Turn] = []
        for message in messages:
            turn_id = str(message.get("id", ""))
            if not turn_id or turn_id in taken:
                repairs["message id missing or repeated, replaced by position"] += 1
                turn_id = f"{position}.{len(turns)}"
            taken.add(turn_id)
            text, marker, _ = str(message["content"]).partition(_MARKER)
            if marker:
                repairs["generation marker cut from a message"] += 1
                text = text.rstrip()
            turns.append(Turn(turn_id, str(message.get("role", "")), text))
        if not turns:
            repairs["batch without messages ignored"] += 1
            continue
        number = batch.get("batch_number") if isinstance(batch, dict) else None
        session_id = str(number if isinstance(number, int) else position)
        if any(session.id == session_id for session in sessions):
            repairs["repeated batch number replaced by position"] += 1
            session_id = f"{session_id}.{position}"
        sessions.append(Session(session_id, date, tuple(turns)))
    require(bool(sessions), f"BEAM chat {history_id!r} has no messages")
    return History(history_id, tuple(sessions))


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


def _date(anchor: str, repairs: Counter[str]) -> str:
    """`March-15-2024` as `March 15, 2024`; another spelling is kept as it is and counted."""
    match = _ANCHOR.fullmatch(anchor)
    if match is None:
        repairs["date of another form kept as text"] += 1
        return anchor
    return f"{match[1]} {match[2]}, {match[3]}"


def _tasks(history: History, questions: Any, repairs: Counter[str]) -> Iterator[Task]:
    require(isinstance(questions, dict), f"BEAM chat {history.id!r}: probing questions are no object of question types")
    texts = {turn.id: turn.text for session in history.sessions for turn in session.turns}
    for native, records in questions.items():
        primary = BEAM.get(native)
        if primary is None:
            repairs["questions of an unknown type left out"] += len(records) if isinstance(records, list) else 1
            continue
        for position, record in enumerate(records if isinstance(records, list) else [records]):
            if not isinstance(record, dict) or not str(record.get("question") or "").strip():
                repairs["question without text left out"] += 1
                continue
            reference = str(record.get(_REFERENCE_FIELDS.get(native, "answer")) or "").strip()
            if not reference:
                repairs["answer missing"] += 1
            ids = _evidence_ids(record, native, texts, repairs)
            rubric = _rubric(record, repairs)
            if native == "event_ordering" and record.get("total_mentions") not in (None, len(rubric)):
                repairs["number of mentions differs from the rubric, rubric kept"] += 1
            yield Task(
                id=f"{history.id}/{native}-{position}",
                history_id=history.id,
                question=str(record["question"]).strip(),
                reference=reference,
                evidence=tuple(texts[turn_id] for turn_id in ids),
                native_type=native,
                primary=primary,
                metric="abstention" if native == "abstention" else "rubric",
                rubric=rubric,
                evidence_ids=ids,
            )


def _rubric(record: Mapping[str, Any], repairs: Counter[str]) -> tuple[str, ...]:
    rubric = record.get("rubric")
    items = rubric if isinstance(rubric, list) else [rubric]
    kept = tuple(str(item).strip() for item in items if item is not None and str(item).strip())
    if not kept:
        repairs["rubric missing"] += 1
    return kept


def _evidence_ids(
    record: Mapping[str, Any], native: str, texts: Mapping[str, str], repairs: Counter[str]
) -> tuple[str, ...]:
    """Ids of the cited messages, distinct and in order, whatever the nesting; what names no message is dropped."""
    if "source_chat_ids" not in record:
        if native != "abstention":
            repairs["evidence ids missing"] += 1
        return ()
    value = record["source_chat_ids"]
    lists = list(value.values()) if isinstance(value, dict) else [value]
    if any(isinstance(item, list) for part in lists if isinstance(part, list) for item in part):
        repairs["nested evidence ids flattened"] += 1
    if any(part == [] for part in lists):
        repairs["empty list of evidence ids"] += 1
    found: dict[str, None] = {}
    for item in _leaves(lists):
        turn_id = str(item).strip()
        if turn_id in texts:
            found[turn_id] = None
        else:
            repairs["evidence id that names no message dropped"] += 1
    return tuple(found)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif value is not None:
        yield value


def _literal(value: Any, where: str) -> Any:
    """A JSON text or Python literal as a value, never evaluated; anything but a string is returned as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (json.JSONDecodeError, RecursionError):
        pass
    require(len(value) <= _MAX_LITERAL_CHARS, f"{where}: the literal is longer than {_MAX_LITERAL_CHARS} characters")
    try:
        return ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        kind = type(error).__name__
        raise DataError(f"{where} is neither JSON nor a Python literal ({kind}); expected lists and objects") from error


def _rows(value: Any) -> list[Any]:
    """Rows of the table; the paging form `{"rows": [{"row": {...}}]}` is unwrapped."""
    if isinstance(value, dict) and isinstance(value.get("rows"), list):
        value = value["rows"]
    rows = value if isinstance(value, list) else [value]
    return [row["row"] if isinstance(row, dict) and isinstance(row.get("row"), dict) else row for row in rows]


def _chat_file(folder: Path) -> Path | None:
    return next((path for end in ("", ".gz") if (path := folder / f"chat.json{end}").is_file()), None)


def _history_id(folder: Path) -> str:
    """`100K/1` for a chat in a folder of its size, else the folder's name."""
    resolved = folder.resolve()
    size = resolved.parent.name
    return f"{size}/{resolved.name}" if _SIZE.fullmatch(size) else resolved.name


def _natural(name: str) -> tuple[float, str]:
    """Sort key: `2` before `11`, `100K` before `1M`; other names after the numbers, by text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KM]?)", name, re.IGNORECASE)
    if match is None:
        return (float("inf"), name)
    return (float(match[1]) * {"": 1, "K": 1e3, "M": 1e6}[match[2].upper()], name)
