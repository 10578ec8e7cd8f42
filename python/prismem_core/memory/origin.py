"""What a memory begins with: a program by name, text or file, or what a saved memory holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prismem_core.errors import ArgumentError, DataError, SavedMemoryError
from prismem_core.jobs.evolution_job import start_source
from prismem_core.memory.saved import is_saved_memory, read_saved
from prismem_core.program import library
from prismem_core.program.manifest import split_manifest
from prismem_core.program.program import Program
from prismem_core.program.validation import gate
from prismem_core.tasks.history import Session

_ZIP = b"PK"


@dataclass(frozen=True)
class Origin:
    """The program's text with its manifest if it has one, the settings that go with it, and what was there before.

    `roles` are the identities that made it, `models` those of them beyond the embedded default, by role.
    """

    name: str
    text: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    sessions: tuple[Session, ...] = ()
    saved: bool = False

    @property
    def program(self) -> Program:
        """The program without its manifest."""
        return Program(split_manifest(self.text)[1])


def origin_of_program(program: str | Path | Program) -> Origin:
    """A program of the library by name, that of a file, or one given as it is; raises DataError for a file that is
    none.
    """
    if isinstance(program, Program):
        return _of_text("the program", program.source)
    if not isinstance(program, (str, Path)):
        raise ArgumentError(
            f"the program is of type {type(program).__name__}; expected a name ({', '.join(library.names())}), the "
            "path of a file or a Program"
        )
    path = Path(program)
    if path.is_file() and _begins_as_archive(path):
        saved = is_saved_memory(path)
        raise DataError(f"{path} is a saved memory; use Memory.load" if saved else f"{path} is an archive, no program")
    return _of_text(str(program), start_source(str(program)))


def origin_of_file(path: str | Path, cache: Path) -> Origin:
    """What a file holds, a saved memory or a program; the former's cache goes into the folder `cache`.

    Raises SavedMemoryError for a file that is missing, damaged or neither of them, ArgumentError for no path.
    """
    if not isinstance(path, (str, Path)):
        raise ArgumentError(f"the path is of type {type(path).__name__}; expected that of a saved memory or a program")
    path = Path(path)
    try:
        if is_saved_memory(path):
            saved = read_saved(path, cache)
            _of_text(str(path), saved.program)
            return Origin(str(path), saved.program, saved.settings, saved.roles, saved.models, saved.sessions, True)
        archive = _begins_as_archive(path)
    except FileNotFoundError:
        raise SavedMemoryError(
            f"there is no file {path}; give a saved memory or a program (Memory(NAME) takes one of the library: "
            f"{', '.join(library.names())})"
        ) from None
    except OSError as error:
        raise SavedMemoryError(f"cannot read {path}: {error.strerror or error}") from error
    except DataError as error:
        raise SavedMemoryError(f"{path} is a damaged saved memory ({error}); restore it from a copy") from None
    if archive:
        raise SavedMemoryError(f"{path} is an archive of something else, or a damaged saved memory; no memory is in it")
    try:
        origin = _of_text(str(path), start_source(str(path)))
    except DataError as error:
        raise SavedMemoryError(str(error)) from None
    report = gate(origin.program.source, "engine")
    if report.outcome == "reject":
        line = f", line {report.line}" if report.line else ""
        raise SavedMemoryError(
            f"{path} is neither a saved memory nor a memory program ({report.code}{line}: {report.message}); give a "
            "file that `Memory.save` or `prismem export` wrote, or a program"
        )
    return origin


def _of_text(name: str, text: str) -> Origin:
    try:
        manifest, _ = split_manifest(text)
        if manifest is None:
            return Origin(name, text)
        settings, roles = manifest["settings"], manifest["roles"]
        if not isinstance(settings, dict) or not isinstance(roles, dict):
            raise DataError("its manifest has no settings or roles; export it again")
    except KeyError as error:
        raise DataError(f"{name}: its manifest lacks {error}; export it again") from None
    except DataError as error:
        raise DataError(f"{name}: {error}") from None
    return Origin(name, text, settings, roles)


def _begins_as_archive(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_ZIP)) == _ZIP
