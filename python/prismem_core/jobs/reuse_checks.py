"""What `verify_reuse` has compared in a run, over all its sessions: a file of the run directory."""

from __future__ import annotations

import json
import os
from pathlib import Path

from prismem_core.errors import RunError
from prismem_core.pipeline.reuse_check import ReuseCounts

REUSE_CHECKS = "reuse-checks.json"


def read_reuse_checks(directory: Path) -> ReuseCounts | None:
    """The counts of a run, None where nothing was compared; RunError for a damaged file."""
    path = directory / REUSE_CHECKS
    try:
        return ReuseCounts(**{name: int(count) for name, count in json.loads(path.read_bytes()).items()})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{path} cannot be read: {error}; delete it, it only counts what was compared") from error


def add_reuse_checks(directory: Path, session: ReuseCounts) -> None:
    """Count what a session has compared, where it has compared anything."""
    if not session.memories:
        return
    before = read_reuse_checks(directory) or ReuseCounts()
    total = {name: count + session.to_dict()[name] for name, count in before.to_dict().items()}
    path = directory / REUSE_CHECKS
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_text(json.dumps(total) + "\n", encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}; free some space and resume the run") from error
