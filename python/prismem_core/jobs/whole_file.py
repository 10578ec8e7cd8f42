"""Files that are whole or not there: written beside their place, brought to the disk, then renamed."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def whole_file(path: Path, *, replace: bool) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` at the end of the block, if nothing was raised in it.

    A kill leaves `path` as it was, and beside it at most a hidden file `.NAME.XXXXXXXX.tmp`. Raises FileExistsError
    where `replace` is False and `path` is there by the end, OSError where it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)  # which, other than a rename, takes the place of nothing
            temporary.unlink()
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
