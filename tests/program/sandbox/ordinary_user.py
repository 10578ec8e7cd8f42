"""Runs a command as an ordinary user although root starts it: `python ordinary_user.py UID FOLDER... -- COMMAND...`.

The folders that the command reads may lie where only root may enter. In a mount namespace of its own each place that
is closed to others is covered by an empty folder that holds, at the same path, only what the command needs. Ends with
REFUSED and one line on standard error where this is not possible.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from pathlib import Path
from typing import NoReturn

REFUSED = 77
"""Exit status that says: no ordinary user can be made here; the reason is on standard error."""

_NEW_MOUNTS = 0x20000
_BIND, _REC, _PRIVATE = 0x1000, 0x4000, 1 << 18


def main(arguments: list[str]) -> NoReturn:
    split = arguments.index("--")
    uid, folders, command = int(arguments[0]), arguments[1:split], arguments[split + 1 :]
    try:
        _open_up({Path(os.path.abspath(folder)) for folder in folders})
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        os.chdir("/")
        os.execv(command[0], command)
    except OSError as error:
        print(f"no ordinary user can be made here: {error}", file=sys.stderr)
    os._exit(REFUSED)


def _open_up(folders: set[Path]) -> None:
    """Let every user enter `folders`, in a mount namespace that only this process and its children see."""
    # A path may lead through links into another closed place.
    folders |= {Path(os.path.realpath(folder)) for folder in folders}
    closed: dict[Path, list[Path]] = {}
    for folder in sorted(folders):
        place = _closed_ancestor(folder)
        if place is not None:
            closed.setdefault(place, []).append(folder)
    if not closed:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.unshare(_NEW_MOUNTS), "unshare")
    _mount(libc, "none", "/", None, _REC | _PRIVATE)
    for place, needed in closed.items():
        held = [(folder, os.open(folder, os.O_PATH)) for folder in needed]
        _mount(libc, "tmpfs", str(place), "tmpfs", 0, "mode=0755")
        for folder, descriptor in held:
            folder.mkdir(parents=True, exist_ok=True)
            _mount(libc, f"/proc/self/fd/{descriptor}", str(folder), None, _BIND | _REC)
            os.close(descriptor)


def _closed_ancestor(folder: Path) -> Path | None:
    """The outermost folder on the way to `folder` that other users may not enter; None if all is open to them."""
    for place in (*reversed(folder.parents), folder):
        mode = place.stat().st_mode
        if not mode & stat.S_IXOTH:
            if place == folder:
                raise PermissionError(f"only its owner may enter {folder}")
            return place
    return None


def _mount(libc: ctypes.CDLL, source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    _checked(
        libc.mount(
            source.encode(),
            target.encode(),
            kind.encode() if kind else None,
            ctypes.c_ulong(flags),
            data.encode() or None,
        ),
        f"mount of {target}",
    )


def _checked(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    main(sys.argv[1:])
