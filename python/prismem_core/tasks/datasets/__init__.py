"""Data sets: one loader a format, chosen by what the file holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prismem_core.errors import DataError
from prismem_core.tasks.datasets.beam import chat_folders, is_beam_table, load_beam_folder, load_beam_table
from prismem_core.tasks.datasets.jsonl import TYPES, load_jsonl, write_jsonl
from prismem_core.tasks.datasets.labels import annotate, secondary_labels
from prismem_core.tasks.datasets.locomo import is_locomo, load_locomo
from prismem_core.tasks.datasets.sample import load_sample
from prismem_core.tasks.datasets.source import Source, parse_json
from prismem_core.tasks.datasets.splits import read_split
from prismem_core.tasks.datasets.summary import summary
from prismem_core.tasks.task import Dataset

__all__ = ["annotate", "load", "read_split", "secondary_labels", "summary", "write_jsonl"]

_LOOKED_FOR = (
    "LoCoMo (a list of objects with `conversation` and `qa`), BEAM (folders with chat.json, or rows with `chat` and "
    "`probing_questions`) and JSON Lines with `type` conversation or question (docs/data.md)"
)


def load(source: str | Path) -> Dataset:
    """The data set "sample", or that of a path: a LoCoMo file, a BEAM folder or table, JSON Lines (file or folder).

    The format is told by content, gzip included. Raises DataError, one line, for a missing or broken file, a format
    that is none of these, and a data set without conversations or questions.
    """
    if str(source) == "sample":
        dataset = load_sample()
    else:
        path = Path(source)
        if not path.exists():
            raise DataError(f'no data set at {path}: give "sample" or the path of a file or folder')
        dataset = _load_folder(path) if path.is_dir() else _load_file(path, Source(path.parent))
    if not dataset.histories or not dataset.tasks:
        lacks = "questions" if dataset.histories else "conversations"
        raise DataError(f"data set {source} is empty: it has no {lacks}")
    return dataset


def _load_folder(folder: Path) -> Dataset:
    source = Source(folder)
    chats = chat_folders(folder)
    if chats:
        return load_beam_folder(chats, source)
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    lines = [path for path in files if path.name.endswith((".jsonl", ".jsonl.gz"))]
    if lines:
        return load_jsonl([(path, source.text(path)) for path in lines], folder.resolve().name, source)
    single = [path for path in files if path.name.endswith((".json", ".json.gz"))]
    if len(single) == 1:
        return _load_file(single[0], source)
    raise DataError(f"{folder} holds no data set; looked for {_LOOKED_FOR}")


def _load_file(path: Path, source: Source) -> Dataset:
    text = source.text(path)
    name = path.name.split(".")[0]
    first = _first_line(text)
    if isinstance(first, dict) and first.get("type") in TYPES:
        return load_jsonl([(path, text)], name, source)
    if isinstance(first, dict) and is_beam_table(first) and len(text.strip().split("\n", 1)) > 1:
        rows = [parse_json(line, path, number) for number, line in _numbered_lines(text)]
        return load_beam_table(rows, path, source)
    value = parse_json(text, path)
    if is_locomo(value):
        return load_locomo(value, source)
    if is_beam_table(value):
        return load_beam_table(value, path, source)
    raise DataError(f"{path} is of no known format: it holds {_description(value)}; looked for {_LOOKED_FOR}")


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
