"""Data sets: one loader a format, chosen by what the file holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from prismem_core.errors import DataError
from prismem_core.tasks.datasets.beam import chat_folders, load_beam_folder
from prismem_core.tasks.datasets.beam_table import is_beam_table, is_parquet, load_beam_parquet, load_beam_table
from prismem_core.tasks.datasets.json_items import LARGE_BYTES
from prismem_core.tasks.datasets.jsonl import TYPES, load_jsonl, write_jsonl
from prismem_core.tasks.datasets.labels import annotate, secondary_labels
from prismem_core.tasks.datasets.lists import apply_lists
from prismem_core.tasks.datasets.locations import check_known
from prismem_core.tasks.datasets.locomo import is_locomo, load_locomo
from prismem_core.tasks.datasets.longmemeval import (
    is_longmemeval,
    is_question_index,
    load_longmemeval,
    question_index_error,
)
from prismem_core.tasks.datasets.named_splits import named_split, read_split
from prismem_core.tasks.datasets.perltqa import is_perltqa_memory, is_perltqa_questions, load_perltqa
from prismem_core.tasks.datasets.sample import load_sample
from prismem_core.tasks.datasets.source import Source, parse_json
from prismem_core.tasks.datasets.summary import summary
from prismem_core.tasks.history import History
from prismem_core.tasks.task import Dataset

__all__ = [
    "annotate",
    "load",
    "load_histories",
    "named_split",
    "read_split",
    "secondary_labels",
    "summary",
    "write_jsonl",
]

_LOOKED_FOR = (
    "LoCoMo (a list of objects with `conversation` and `qa`), BEAM (folders with chat.json, or rows with `chat` and "
    "`probing_questions`, JSON or parquet), LongMemEval (a list of objects with `haystack_sessions`), PerLTQA (its "
    "memory and its question file in one folder) and JSON Lines with `type` conversation or question (docs/data.md)"
)
_JSON_NAMES = (".json", ".json.gz")


def load(source: str | Path, *, exclude: Path | None = None, corrections: Path | None = None) -> Dataset:
    """The data set "sample", or that of a path: LoCoMo, BEAM, LongMemEval, PerLTQA or JSON Lines, a file or a folder.

    The format is told by content, gzip included. `exclude` and `corrections` are the user's own lists (docs/data.md).
    A file that bears the name of a public one is compared with its pinned hash: what is found stands in `notes`.
    Raises DataError, one line, for a missing or broken file, a format that is none of these, and a data set without
    conversations or questions.
    """
    dataset = _read(source)
    if not dataset.histories or not dataset.tasks:
        lacks = "questions" if dataset.histories else "conversations"
        found = ", ".join(dict.fromkeys(item.kind for item in dataset.irregularities))
        raise DataError(f"data set {source} is empty: it has no {lacks}{f' ({found})' if found else ''}")
    return apply_lists(dataset, exclude, corrections)


def load_histories(source: str | Path) -> dict[str, History]:
    """The conversations of a data set by id; it may do without questions. Raises DataError as `load` does."""
    dataset = _read(source)
    if not dataset.histories:
        raise DataError(f"{source} has no conversation; expected at least one (docs/data.md)")
    return dict(dataset.histories)


def _read(source: str | Path) -> Dataset:
    if str(source) == "sample":
        return load_sample()
    path = Path(source)
    if not path.exists():
        raise DataError(f'no data set at {path}: give "sample" or the path of a file or folder')
    files = Source(path if path.is_dir() else path.parent)
    dataset = _load_folder(path, files) if path.is_dir() else _load_file(path, files)
    known = check_known(files.files)
    return replace(dataset, notes={**dataset.notes, "public_files": known}) if known else dataset


def _load_folder(folder: Path, source: Source) -> Dataset:
    chats = chat_folders(folder)
    if chats:
        return load_beam_folder(chats, source)
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    lines = [path for path in files if path.name.endswith((".jsonl", ".jsonl.gz"))]
    if lines:
        return load_jsonl([(path, source.text(path)) for path in lines], folder.resolve().name, source)
    tables = [path for path in files if path.suffix == ".parquet"]
    if tables:
        return load_beam_parquet(tables, source)
    single = [path for path in files if path.name.endswith(_JSON_NAMES)]
    if len(single) == 1:
        return _load_file(single[0], source)
    pair = perltqa_pair(single)
    if pair is not None:
        return load_perltqa(*pair, source)
    several = f" ({len(single)} JSON files: name one of them)" if len(single) > 1 else ""
    raise DataError(f"{folder} holds no data set{several}; looked for {_LOOKED_FOR}")


def _load_file(path: Path, source: Source) -> Dataset:
    name = path.name.split(".")[0]
    if is_parquet(path):
        return load_beam_parquet([path], source)
    if path.stat().st_size > LARGE_BYTES and not path.name.endswith((".jsonl", ".jsonl.gz")):
        items = source.items(path)
        try:
            first = next(items, None)
        except DataError:  # no list: read at once below, which says what is wrong with it
            first = None
        if is_longmemeval(first):
            return load_longmemeval(chain([first], items), name, source, source.name(path))
    text = source.text(path)
    first = _first_line(text)
    if isinstance(first, dict) and first.get("type") in TYPES:
        return load_jsonl([(path, text)], name, source)
    several = isinstance(first, dict) and len(text.strip().split("\n", 1)) > 1
    if several and is_beam_table(first):
        rows = [parse_json(line, path, number) for number, line in _numbered_lines(text)]
        return load_beam_table(rows, path, source)
    if several and is_longmemeval(first):
        instances = (parse_json(line, path, number) for number, line in _numbered_lines(text))
        return load_longmemeval(instances, name, source, source.name(path))
    value = parse_json(text, path)
    if is_locomo(value):
        return load_locomo(value, source, source.name(path))
    if is_beam_table(value):
        return load_beam_table(value, path, source)
    if is_longmemeval(value):
        return load_longmemeval(value if isinstance(value, list) else [value], name, source, source.name(path))
    if is_question_index(value):
        raise question_index_error(value, path)
    if is_perltqa_memory(value) or is_perltqa_questions(value):
        return _load_beside(path, is_memory=is_perltqa_memory(value))
    raise DataError(f"{path} is of no known format: it holds {_description(value)}; looked for {_LOOKED_FOR}")


def perltqa_pair(paths: list[Path]) -> tuple[Path, Path] | None:
    """(memory, questions) if that is what the files are, None otherwise."""
    if len(paths) != 2 or any(path.stat().st_size > LARGE_BYTES for path in paths):
        return None
    reader = Source(paths[0].parent)
    values = [reader.json(path) for path in paths]
    for memory, questions in ((0, 1), (1, 0)):
        if is_perltqa_memory(values[memory]) and is_perltqa_questions(values[questions]):
            return paths[memory], paths[questions]
    return None


def _load_beside(path: Path, *, is_memory: bool) -> Dataset:
    """PerLTQA by one of its two files; the other one lies beside it, under the name that goes with it."""
    here, there = ("perltmem", "perltqa") if is_memory else ("perltqa", "perltmem")
    others = [
        other
        for other in sorted(path.parent.iterdir())
        if other != path and other.is_file() and other.name.endswith(_JSON_NAMES) and there in other.name.lower()
    ]
    named = [other for other in others if other.name.lower() == path.name.lower().replace(here, there)] or others
    if len(named) != 1:
        kind, missing = ("memory", "question") if is_memory else ("question", "memory")
        raise DataError(
            f"{path} is the {kind} file of PerLTQA; its {missing} file (a name with `{there}`) must lie beside it, "
            f"found {len(named)}"
        )
    pair = (path, named[0]) if is_memory else (named[0], path)
    return load_perltqa(*pair, Source(path.parent))


def _first_line(text: str) -> Any:
    """The first non-blank line as JSON, None where it is none by itself (a pretty-printed file)."""
    for _, line in _numbered_lines(text):
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            return None
    return None


def _numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line


def _description(value: Any) -> str:
    """A few words on what a file holds, for the message that refuses it."""
    if isinstance(value, list):
        return f"a list whose first item is {_description(value[0])}" if value else "an empty list"
    if isinstance(value, dict):
        keys = ", ".join(map(repr, list(value)[:6]))
        return f"an object with the keys {keys}" if value else "an empty object"
    return {str: "a text", bool: "true or false", type(None): "null"}.get(type(value), "a number")
