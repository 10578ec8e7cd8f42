"""Places to write to, tried out before the work whose results go there."""

from __future__ import annotations

from pathlib import Path

from prismem_core.errors import ArgumentError


def check_folder(path: Path, option: str) -> None:
    """Make a folder with those above it; ArgumentError names the option where it cannot be one to write in."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".prismem-write-test"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ArgumentError(
            f"{option}: cannot write in {path}: {error.strerror}; name a folder that you may write in"
        ) from None


def check_file(path: Path, option: str) -> None:
    """The same for a file: its folder is made, and what the file holds stays as it is."""
    check_folder(path.parent, option)
    if path.is_dir():
        raise ArgumentError(f"{option}: {path} is a folder; name a file")
