"""PerLTQA: profiles, relationships, events and dialogues of invented characters (Du et al. 2024)."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prismem_core.errors import DataError
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.datasets.perltqa_memory import Memory, character_memory
from prismem_core.tasks.datasets.source import Source, first_items
from prismem_core.tasks.datasets.splits import default_split
from prismem_core.tasks.history import History
from prismem_core.tasks.irregularity import Findings
from prismem_core.tasks.native_types import PERLTQA
from prismem_core.tasks.task import Dataset, Task

REPLY_WORDS = 64

_MAX_LITERAL_CHARS = 100_000
_MEMORY_KEYS = {"profile", "profile_description", "social_relationship", "events", "dialogues"}
_NAME_KEYS = ("Protagonist", "protagonist", "主角", "姓名", "name")
_ENTITY = re.compile(r"&(?:#\d+|[a-z]+);")


def is_perltqa_memory(value: Any) -> bool:
    """Whether parsed JSON is the memory file: name -> record, or (earlier releases) a list of records."""
    return any(
        isinstance(record, dict)
        and len(_MEMORY_KEYS & set(record)) > 1
        and (isinstance(record.get("profile"), dict) or "profile_description" in record or _all_objects(record))
        for record in first_items(list(value.values()) if isinstance(value, dict) else value)
    )


def is_perltqa_questions(value: Any) -> bool:
    """Whether parsed JSON is the question file: a list of one-key objects name -> groups, or one object of them."""
    if is_perltqa_memory(value):
        return False
    characters = [item for item in first_items(value) if isinstance(item, dict)]
    groups = [entry for item in characters for entry in first_items(list(item.values())) if isinstance(entry, dict)]
    return any(set(PERLTQA) & set(entry) and not isinstance(entry.get("profile"), dict) for entry in groups)


def _all_objects(record: Mapping[str, Any]) -> bool:
    """Whether events or dialogues are objects of objects, as memories are and questions are not."""
    return any(
        isinstance(group := record.get(key), dict) and bool(group) and all(isinstance(v, dict) for v in group.values())
        for key in ("events", "dialogues")
    )


def load_perltqa(memory_file: Path, question_file: Path, source: Source) -> Dataset:
    """The data set of a memory file and its question file: one history and its questions a character.

    Characters without questions keep their history and stand in no part of the default split. Raises DataError for
    files of another form; irregular records are mended and reported.
    """
    memories, questions = source.json(memory_file), source.json(question_file)
    if not is_perltqa_memory(memories) or not is_perltqa_questions(questions):
        raise DataError(f"{memory_file} and {question_file} are not the memory and the questions of PerLTQA")
    findings = Findings(source.name(memory_file))
    characters: dict[str, Memory] = {}
    for name, record in _records(memories, findings):
        memory = character_memory(name, record, findings)
        if memory is None:
            findings.note("character without any memory left out", name)
        elif name in characters:
            findings.note("second record of a character left out", name)
        else:
            characters[name] = memory
    findings.file = source.name(question_file)
    tasks: list[Task] = []
    # One a character, as a file may name a character twice: the numbers of its questions go on.
    askers = {name: _Asker(memory, findings) for name, memory in characters.items()}
    for name, groups in _by_character(questions, findings):
        if name not in characters:
            findings.note("questions about a character without a memory left out", name)
            continue
        tasks += askers[name].tasks(groups)
    asked = dict.fromkeys(task.history_id for task in tasks)
    return Dataset(
        name="perltqa",
        histories={memory.history.id: memory.history for memory in characters.values()},
        tasks=tuple(tasks),
        digest=source.digest,
        default_split=default_split(asked),
        reply_words=REPLY_WORDS,
        repairs=findings.repairs,
        irregularities=tuple(findings.irregularities),
    )


def _records(value: Any, findings: Findings) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(name, record) of each character, whichever the release."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, record in entries:
        if not isinstance(record, dict):
            findings.note("character that is no object left out", str(key), "", record)
            continue
        if isinstance(key, str):
            yield key, record
            continue
        profile = record.get("profile")
        named = profile if isinstance(profile, dict) else {}
        yield next((str(named[k]).strip() for k in _NAME_KEYS if named.get(k)), f"character-{key + 1}"), record


def _by_character(value: Any, findings: Findings) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(name, groups) of each character; a list of one-key objects or one object."""
    for entry in value if isinstance(value, list) else [value]:
        if not isinstance(entry, dict):
            findings.note("questions that are no object left out", "", "", entry)
            continue
        for name, groups in entry.items():
            if isinstance(groups, dict):
                yield str(name).strip(), groups
            else:
                findings.note("questions that are no groups left out", str(name), "", groups)


@dataclass
class _Asker:
    """Makes the tasks of one character."""

    memory: Memory
    findings: Findings
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def history(self) -> History:
        return self.memory.history

    def tasks(self, groups: Mapping[str, Any]) -> Iterator[Task]:
        for group, content in groups.items():
            primary = PERLTQA.get(group)
            if primary is None:
                self.findings.note("questions of an unknown group left out", self.history.id, group, content)
                continue
            for place, record in self._questions(group, content):
                task = self._task(group, primary, place, record)
                if task is not None:
                    yield task

    def _questions(self, group: str, content: Any) -> Iterator[tuple[str, Any]]:
        """(id that groups them, question) in order: a plain list, a list of one-key objects, or one object."""
        for item in content if isinstance(content, list) else [content]:
            if isinstance(item, dict) and not {"Question", "question"} & set(item):
                for place, records in item.items():
                    for record in records if isinstance(records, list) else [records]:
                        yield str(place), record
            else:
                yield "", item

    def _task(self, group: str, primary: Capability, place: str, record: Any) -> Task | None:
        number = self.counts[group] = self.counts.get(group, -1) + 1
        task_id = f"{self.history.id}/{group}-{number:03d}"
        question = self.findings.text(_get(record, "Question"), "question", task_id, "Question").strip()
        if not question:
            self.findings.note("question without text left out", task_id, "Question", record)
            return None
        reference = self.findings.text(_get(record, "Answer"), "answer", task_id, "Answer").strip()
        if not reference:
            self.findings.note("answer missing", task_id, "Answer")
        self._check_anchors(_get(record, "Memory Anchors"), task_id)
        ids = self._evidence_ids(group, place, _get(record, "Reference Memory"), task_id)
        return Task(
            id=task_id,
            history_id=self.history.id,
            question=question,
            reference=reference,
            evidence=tuple(self.memory.texts[turn_id] for turn_id in ids),
            native_type=group,
            primary=primary,
            metric="f1",
            evidence_ids=ids,
            benchmark="perltqa",
        )

    def _check_anchors(self, anchors: Any, task_id: str) -> None:
        """Anchors are not used: their offsets index the Chinese text; report those with HTML entities."""
        for anchor in anchors if isinstance(anchors, list) else []:
            for text in anchor if isinstance(anchor, dict) else []:
                if _ENTITY.search(str(text)):
                    self.findings.note(
                        "memory anchor with HTML entities, not used", task_id, "Memory Anchors", text, variant=True
                    )

    def _evidence_ids(self, group: str, place: str, reference: Any, task_id: str) -> tuple[str, ...]:
        """Turn ids of the referenced memory: a profile field or the records that a list (also as a literal) names."""
        found: dict[str, None] = {}
        for key in _references(reference):
            if key is None:
                self.findings.note("reference that names no memory dropped", task_id, "Reference Memory", reference)
                continue
            places = self.memory.places.get((group, key)) or self.memory.anywhere(key)
            if places:
                found.update(dict.fromkeys(places))
            else:
                self.findings.note("reference that names no memory dropped", task_id, "Reference Memory", key)
        if not found and place:
            places = self.memory.places.get((group, place)) or self.memory.anywhere(place)
            if places:
                self.findings.note("memory of the group taken as evidence", task_id, "Reference Memory", reference)
                found.update(dict.fromkeys(places))
        if not found:
            self.findings.note("question without evidence", task_id, "Reference Memory", reference)
        return tuple(found)


def _get(record: Any, key: str) -> Any:
    """A field by its name in any case, blanks and underscores alike."""
    if not isinstance(record, dict):
        return None
    if key in record:
        return record[key]
    wanted = key.casefold().replace(" ", "_")
    return next((v for k, v in record.items() if str(k).casefold().replace(" ", "_") == wanted), None)


def _references(value: Any) -> list[str | None]:
    """The keys that a reference names, None for an entry of a list that is none.

    A string may hold a JSON or Python list, which is parsed, never evaluated.
    """
    if isinstance(value, str) and value.strip().startswith("[") and len(value) <= _MAX_LITERAL_CHARS:
        for parse in (json.loads, ast.literal_eval):
            try:
                value = parse(value.strip())
                break
            except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
                continue
    if not isinstance(value, list | tuple):
        return [] if value is None or not str(value).strip() else [str(value).strip()]
    return [str(item).strip() or None if item is not None else None for item in value]
