"""What `prismem data doctor` finds: every data set below some paths, its irregular records, and files that changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from prismem_core.errors import DataError, PrismemError
from prismem_core.jobs.data_lock import read_lock
from prismem_core.tasks.datasets import load, perltqa_pair
from prismem_core.tasks.datasets.beam import chat_folders
from prismem_core.tasks.datasets.locations import LOCATIONS
from prismem_core.tasks.datasets.longmemeval import is_question_index
from prismem_core.tasks.datasets.source import Source
from prismem_core.tasks.irregularity import Irregularity
from prismem_core.tasks.task import Dataset

MANIFEST = "MANIFEST.json"

_JSON = (".json", ".json.gz")
_DATA = (*_JSON, ".jsonl", ".jsonl.gz", ".parquet")
_ALIASES = {alias for place in LOCATIONS.values() for file in place.files for alias in file.aliases}


@dataclass(frozen=True)
class Examined:
    """One data set that loads."""

    path: str
    name: str
    conversations: int
    sessions: int
    turns: int
    questions: int
    sha256: str
    mended: Mapping[str, int]
    irregular: tuple[Irregularity, ...]
    variants: tuple[Irregularity, ...]
    public_files: Sequence[Mapping[str, Any]]
    changed: tuple[str, ...]


@dataclass
class Diagnosis:
    """What was found; `refused` holds (path, reason) of what does not load or may not, `indexes` (path, what it is)."""

    examined: list[Examined] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    indexes: list[tuple[str, str]] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """3 if something was refused, 1 if all loads and some record is irregular, 0 otherwise."""
        if self.refused:
            return DataError.exit_code
        return int(any(source.irregular for source in self.examined))

    def as_json(self) -> dict[str, Any]:
        """All of it for `--json`."""
        sources = [asdict(source) for source in self.examined]
        return {
            "sources": sources,
            "irregular": sum(len(source.irregular) for source in self.examined),
            "variants": sum(len(source.variants) for source in self.examined),
            "refused": [{"path": path, "reason": reason} for path, reason in self.refused],
            "without_histories": [{"path": path, "what": what} for path, what in self.indexes],
        }


def examine_data(paths: Iterable[Path], *, accept_changed: bool = False) -> Diagnosis:
    """Load every data set at or below the paths.

    Files that MANIFEST.json or the lock of a fetch lists, or that bear the name of a public file, are compared with the
    hash noted there: what differs is refused, or with `accept_changed` loaded and named. Raises DataError for a path
    that is not there and for paths without any data set.
    """
    diagnosis = Diagnosis()
    for path in paths:
        if not path.exists():
            raise DataError(f"no data at {path}; give the path of a file or folder")
        before = len(diagnosis.examined) + len(diagnosis.refused) + len(diagnosis.indexes)
        changed, missing = _compare(path)
        diagnosis.refused += missing
        for source in _sources(path):
            _examine(source, changed, accept_changed, diagnosis)
        if len(diagnosis.examined) + len(diagnosis.refused) + len(diagnosis.indexes) == before:
            raise DataError(f"{path} holds no data set that any loader knows (docs/data.md)")
    return diagnosis


def _examine(path: Path, changed: Mapping[Path, str], accept_changed: bool, diagnosis: Diagnosis) -> None:
    touched = [reason for file, reason in changed.items() if file == path or path in file.parents]
    if touched and not accept_changed:
        diagnosis.refused += [(str(path), reason) for reason in touched]
        return
    try:
        dataset = load(path)
    except PrismemError as error:
        if _is_index(path):
            diagnosis.indexes.append((str(path), str(error)))
        else:
            diagnosis.refused.append((str(path), str(error)))
        return
    public = dataset.notes.get("public_files", [])
    differing = [file for file in public if not file["as_pinned"]]
    if differing and not accept_changed:
        file = differing[0]
        diagnosis.refused.append(
            (
                str(path),
                f"{file['file']} bears the name of a file of {file['name']}, but its SHA-256 {file['sha256'][:16]} is "
                f"not the pinned {file['pinned_sha256'][:16]}; fetch it again, or look at it with --accept-changed",
            )
        )
        return
    names = [f"{file['file']} is not the pinned file of {file['name']}" for file in differing]
    diagnosis.examined.append(_examined(path, dataset, (*touched, *names)))


def _examined(path: Path, dataset: Dataset, changed: tuple[str, ...]) -> Examined:
    sessions = [session for history in dataset.histories.values() for session in history.sessions]
    kinds = {item.kind for item in dataset.irregularities}
    return Examined(
        path=str(path),
        name=dataset.name,
        conversations=len(dataset.histories),
        sessions=len(sessions),
        turns=sum(len(session.turns) for session in sessions),
        questions=len(dataset.tasks),
        sha256=dataset.digest,
        mended={kind: count for kind, count in dataset.repairs.items() if kind not in kinds},
        irregular=tuple(item for item in dataset.irregularities if not item.variant),
        variants=tuple(item for item in dataset.irregularities if item.variant),
        public_files=dataset.notes.get("public_files", []),
        changed=changed,
    )


def _sources(path: Path) -> Iterator[Path]:
    """What can be loaded by itself: a file, a folder that is one data set, else what lies in its folders."""
    if not path.is_dir():
        yield path
        return
    if chat_folders(path):
        yield path
        return
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    files = [entry for entry in entries if entry.is_file() and entry.name != MANIFEST]
    data = [file for file in files if file.name.endswith(_DATA) or file.name in _ALIASES]
    if (
        any(file.name.endswith((".jsonl", ".jsonl.gz")) for file in data)
        or _is_pair(data)
        or (data and all(file.suffix == ".parquet" for file in data))
    ):
        yield path
    else:
        yield from data
    for entry in entries:
        if entry.is_dir():
            yield from _sources(entry)


def _is_pair(files: Sequence[Path]) -> bool:
    try:
        return perltqa_pair([file for file in files if file.name.endswith(_JSON)]) is not None
    except DataError:
        return False


def _is_index(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        return is_question_index(Source(path.parent).json(path))
    except DataError:
        return False


def _compare(path: Path) -> tuple[dict[Path, str], list[tuple[str, str]]]:
    """Files whose hash is not the one noted for them, with the reason; and those that are noted and missing."""
    changed: dict[Path, str] = {}
    missing: list[tuple[str, str]] = []
    folders = (
        [path, *(entry for entry in sorted(path.rglob("*")) if entry.is_dir())] if path.is_dir() else [path.parent]
    )
    for folder in folders:
        for name, sha256, noted_in in (*_manifest(folder), *_locked(folder)):
            file = folder / name
            if not path.is_dir() and file != path:
                continue
            if not file.is_file():
                missing.append((str(file), f"{noted_in} lists it and it is missing; fetch it again"))
            elif (found := file_sha256(file)) != sha256:
                changed[file] = (
                    f"{file.name} changed: its SHA-256 is {found[:16]}, {noted_in} notes {sha256[:16]}; fetch it "
                    "again, or look at it with --accept-changed"
                )
    return changed, missing


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _manifest(folder: Path) -> list[tuple[str, str, str]]:
    """(name below the folder, SHA-256, file that notes it) of a MANIFEST.json; none where it is of another form."""
    try:
        entries = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    return [
        (entry["path"], entry["sha256"], MANIFEST)
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("path"), str) and isinstance(entry.get("sha256"), str)
    ]


def _locked(folder: Path) -> list[tuple[str, str, str]]:
    return [(name, entry["sha256"], "the lock of its fetch") for name, entry in read_lock(folder).items()]
