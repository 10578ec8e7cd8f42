"""The lock of a fetch: a file beside the data that notes where each file came from and what its bytes were."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prismem_core.errors import DataError

LOCK_NAME = ".prismem-data.lock"


def read_lock(folder: Path) -> dict[str, dict[str, Any]]:
    """The entries by file name: `name` of the data set, `url`, `revision`, `sha256`, `bytes`, `pinned`; {} without one.

    Raises DataError for a file of another form.
    """
    path = folder / LOCK_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        files = json.loads(text)["files"]
        if not all(isinstance(name, str) and isinstance(entry["sha256"], str) for name, entry in files.items()):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is damaged; remove it and fetch again") from error
    return dict(files)


def write_lock(folder: Path, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace the lock in one step."""
    path = folder / LOCK_NAME
    draft = path.with_name(f"{LOCK_NAME}.{os.getpid()}")
    text = json.dumps({"version": 1, "files": entries}, indent=1, sort_keys=True) + "\n"
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
