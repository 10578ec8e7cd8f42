"""The tabular release of BEAM: rows of JSON or parquet with `chat` and `probing_questions`, some of them literals."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from prismem_core.errors import DataError, SettingsError
from prismem_core.tasks.datasets.beam import SIZE, Chat, beam_dataset
from prismem_core.tasks.datasets.source import Source
from prismem_core.tasks.irregularity import Findings
from prismem_core.tasks.task import Dataset

_COLUMNS = ("conversation_id", "chat", "probing_questions")
_MAX_LITERAL_CHARS = 20_000_000
_PARQUET_MAGIC = b"PAR1"


def is_beam_table(value: Any) -> bool:
    """Whether parsed JSON is the tabular release: rows (a list, one row, or `{"rows": ...}`) of chat and questions."""
    rows = _rows(value)
    return bool(rows) and all(isinstance(row, dict) and {"chat", "probing_questions"} <= set(row) for row in rows[:3])


def is_parquet(path: Path) -> bool:
    """Whether the file begins as parquet does."""
    try:
        with path.open("rb") as file:
            return file.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC
    except OSError:
        return False


def load_beam_table(value: Any, path: Path, source: Source) -> Dataset:
    """The data set of the tabular release as JSON: one row a chat, `probing_questions` a string with a literal."""
    findings = Findings(source.name(path))
    return beam_dataset(_chats(_rows(value), path, source, findings), source, findings)


def load_beam_parquet(paths: Sequence[Path], source: Source) -> Dataset:
    """The data set of parquet files, the shards of one size or several sizes; one row is in memory at a time.

    The size is told by the file's name (`100K-00000-of-00001.parquet`). Needs the extra `parquet`; raises
    SettingsError without it, DataError for a file without the columns.
    """
    findings = Findings()

    def chats() -> Iterator[Chat]:
        for path in paths:
            yield from _chats(_parquet_rows(path), path, source, findings)
            source.add(path, _sha256(path))

    return beam_dataset(chats(), source, findings)


def _chats(rows: Iterable[Any], path: Path, source: Source, findings: Findings) -> Iterator[Chat]:
    words = re.split(r"[^\w.]|_", path.name.split(".")[0])
    size = next((part for part in reversed(words) if SIZE.fullmatch(part)), "").upper()
    name = source.name(path)
    for position, row in enumerate(rows):
        findings.file = name
        where = f"row {position}"
        if not isinstance(row, dict) or "chat" not in row:
            findings.note("row without a chat left out", where, "chat", row)
            continue
        key = row.get("conversation_id")
        number = str(key if key is not None else position + 1)
        history_id = f"{size}/{number}" if size else number
        values = {}
        for column in ("chat", "probing_questions"):
            try:
                values[column] = _literal(row.get(column))
            except ValueError as error:
                kind = f"`{column}` that is neither JSON nor a Python literal left out"
                findings.note(kind, f"{where}, {history_id}", column, f"{error}")
        if "chat" in values:
            yield history_id, name, values["chat"], name, values.get("probing_questions", {})


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        # Without types of its own: what comes from it is checked by hand.
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise SettingsError(f"{path} is parquet, which needs pyarrow: pip install 'prismem-core[parquet]'") from None
    try:
        with parquet.ParquetFile(path) as file:
            present = set(file.schema_arrow.names)
            if not {"chat", "probing_questions"} <= present:
                has = ", ".join(sorted(present)) or "none"
                raise DataError(
                    f"{path} is no BEAM table: columns `chat` and `probing_questions` expected, found {has}"
                )
            columns = [name for name in _COLUMNS if name in present]
            for batch in file.iter_batches(batch_size=1, columns=columns):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} is damaged parquet ({str(error).splitlines()[0]}); fetch it again") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _literal(value: Any) -> Any:
    """A JSON text or Python literal as a value, never evaluated; anything but a string is returned as it is.

    Raises ValueError with the reason.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        pass
    if len(value) > _MAX_LITERAL_CHARS:
        raise ValueError(f"longer than {_MAX_LITERAL_CHARS} characters")
    try:
        return ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(type(error).__name__) from error


def _rows(value: Any) -> list[Any]:
    """Rows of the table; the paging form `{"rows": [{"row": {...}}]}` is unwrapped."""
    if isinstance(value, dict) and isinstance(value.get("rows"), list):
        value = value["rows"]
    rows = value if isinstance(value, list) else [value]
    return [row["row"] if isinstance(row, dict) and isinstance(row.get("row"), dict) else row for row in rows]
