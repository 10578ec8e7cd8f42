"""Lists of the user's own: questions or conversations to leave out, and corrections of questions."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prismem_core.digests import digest
from prismem_core.errors import DataError
from prismem_core.tasks.datasets.source import Source, parse_json
from prismem_core.tasks.datasets.twins import with_twins
from prismem_core.tasks.task import Dataset, Task

_CORRECTABLE = ("question", "answer", "rubric", "evidence")

Entry = dict[str, Any]


def apply_lists(dataset: Dataset, exclude: Path | None, corrections: Path | None) -> Dataset:
    """The data set without what `exclude` names and with what `corrections` change; both stand in its notes.

    Corrections are made first, so that a list may hold questions that another one leaves out. The digest changes with
    the lists. Raises DataError for a list that is out of form, names an unknown id or leaves no question.
    """
    digests = []
    notes: dict[str, Any] = {}
    if corrections is not None:
        entries, sha256 = read_list(corrections, "correct")
        dataset = _corrected(dataset, entries, corrections)
        notes["corrected"] = _note(corrections, sha256, entries)
        digests.append(["corrections", sha256])
    if exclude is not None:
        entries, sha256 = read_list(exclude, "exclude")
        before = dataset.histories
        dataset = _without(dataset, entries, exclude)
        lost = [history_id for history_id in before if history_id not in dataset.histories]
        notes["excluded"] = {**_note(exclude, sha256, entries), "conversations": lost}
        digests.append(["exclude", sha256])
    if not digests:
        return dataset
    return replace(dataset, digest=digest("listed", dataset.digest, digests), notes={**dataset.notes, **notes})


def read_list(path: Path, table: str) -> tuple[list[Entry], str]:
    """The entries of a list and the SHA-256 of its file; each has an `id`, other keys are for the caller to check.

    A list is JSON (a list, or an object with the key `table`), JSON Lines, or TOML with `[[table]]` entries. An entry
    is an object with `id`, or the id alone.
    """
    source = Source(path.parent)
    text = source.text(path)
    if path.suffix == ".toml":
        try:
            value: Any = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise DataError(f"{path} is not valid TOML: {error}") from error
    elif path.name.endswith((".jsonl", ".jsonl.gz")):
        value = [parse_json(line, path, n) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    else:
        value = parse_json(text, path)
    if isinstance(value, dict):
        unknown = [key for key in value if key != table]
        if unknown or table not in value:
            raise DataError(
                f"{path}: expected the one key {table!r} with a list, found {', '.join(value) or 'nothing'}"
            )
        value = value[table]
    if not isinstance(value, list) or not value:
        raise DataError(f"{path} lists nothing; expected entries with an `id` each")
    entries: list[Entry] = []
    for position, item in enumerate(value):
        entry = {"id": item} if isinstance(item, str) else item
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str) or not entry["id"]:
            raise DataError(
                f"{path}, entry {position}: expected an id or an object with `id`, not {json.dumps(item)[:60]}"
            )
        entries.append(entry)
    repeated = [entry["id"] for n, entry in enumerate(entries) if entry["id"] in {e["id"] for e in entries[:n]}]
    if repeated:
        raise DataError(f"{path} names {repeated[0]!r} twice")
    return entries, source.digest


def _check_keys(entry: Entry, allowed: Sequence[str], path: Path) -> None:
    unknown = [key for key in entry if key not in ("id", "reason", *allowed)]
    if unknown:
        known = ", ".join(("id", *allowed, "reason"))
        raise DataError(f"{path}, {entry['id']}: unknown key {unknown[0]!r}; expected {known}")
    if not isinstance(entry.get("reason", ""), str):
        raise DataError(f"{path}, {entry['id']}: 'reason' must be a string")


def _note(path: Path, sha256: str, entries: Sequence[Entry]) -> dict[str, Any]:
    """What the header of a result says of a list."""
    changed = [
        {
            "id": entry["id"],
            **({"reason": entry["reason"]} if entry.get("reason") else {}),
            **({"fields": fields} if (fields := [key for key in _CORRECTABLE if key in entry]) else {}),
        }
        for entry in entries
    ]
    return {"list": path.name, "sha256": sha256, "entries": changed}


def _without(dataset: Dataset, entries: Sequence[Entry], path: Path) -> Dataset:
    tasks = {task.id for task in dataset.tasks}
    gone: set[str] = set()
    for entry in entries:
        _check_keys(entry, (), path)
        wanted = entry["id"]
        if wanted in tasks:
            gone.add(wanted)
        elif wanted in dataset.histories:
            gone.update(task.id for task in dataset.tasks if task.history_id == wanted)
        else:
            raise DataError(f"{path}: data set {dataset.name!r} has no question or conversation {wanted!r}")
    kept = [
        task if task.twin not in gone else replace(task, twin=None) for task in dataset.tasks if task.id not in gone
    ]
    if not kept:
        raise DataError(f"{path} leaves data set {dataset.name!r} without any question")
    # A conversation that has lost all its questions goes too, one that never had any stays.
    lost = {task.history_id for task in dataset.tasks} - {task.history_id for task in kept}
    lost |= {entry["id"] for entry in entries if entry["id"] in dataset.histories and entry["id"] not in tasks}
    return replace(
        dataset,
        tasks=with_twins(kept),
        histories={key: history for key, history in dataset.histories.items() if key not in lost},
        default_split={
            part: tuple(key for key in ids if key not in lost) for part, ids in dataset.default_split.items()
        },
    )


def _corrected(dataset: Dataset, entries: Sequence[Entry], path: Path) -> Dataset:
    tasks = {task.id: task for task in dataset.tasks}
    for entry in entries:
        _check_keys(entry, _CORRECTABLE, path)
        if entry["id"] not in tasks:
            raise DataError(f"{path}: data set {dataset.name!r} has no question {entry['id']!r}")
        if not any(key in entry for key in _CORRECTABLE):
            raise DataError(f"{path}, {entry['id']}: nothing is corrected; give one of {', '.join(_CORRECTABLE)}")
        tasks[entry["id"]] = _correct(tasks[entry["id"]], entry, dataset, path)
    return replace(dataset, tasks=tuple(tasks.values()))


def _correct(task: Task, entry: Entry, dataset: Dataset, path: Path) -> Task:
    where = f"{path}, {task.id}"
    changes: dict[str, Any] = {}
    for key, name in (("question", "question"), ("answer", "reference")):
        if key in entry:
            if not isinstance(entry[key], str) or not entry[key].strip():
                raise DataError(f"{where}: {key!r} must be a text")
            changes[name] = entry[key].strip()
    if "rubric" in entry:
        changes["rubric"] = _texts(entry["rubric"], f"{where}: 'rubric'")
    if "evidence" in entry:
        texts = _turn_texts(dataset, task.history_id)
        ids = _texts(entry["evidence"], f"{where}: 'evidence'")
        unknown = [turn_id for turn_id in ids if turn_id not in texts]
        if unknown:
            raise DataError(f"{where}: no turn {unknown[0]!r} in conversation {task.history_id!r}")
        changes |= {"evidence_ids": ids, "evidence": tuple(texts[turn_id] for turn_id in ids)}
    return replace(task, **changes)


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
        raise DataError(f"{where} must be a list of texts")
    return tuple(dict.fromkeys(item.strip() for item in value))


def _turn_texts(dataset: Dataset, history_id: str) -> Mapping[str, str]:
    history = dataset.histories[history_id]
    return {turn.id: turn.text for session in history.sessions for turn in session.turns}
