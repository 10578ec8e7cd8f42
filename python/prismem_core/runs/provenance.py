"""Which code made a number: the commit of the checkout, and a digest of the code itself."""

from __future__ import annotations

import hashlib
import subprocess
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_KINDS = (".py", ".md")
# An installed package holds what stands beside it in a checkout; neither takes part in a run's results.
_BESIDE = ("bench", "kernels")


def commit() -> str:
    """The commit of the checkout that holds this package, with "+" where files differ from it.

    "" for an installed package, also where its environment lies inside somebody else's repository.
    """
    if not _git("ls-files", "--error-unmatch", "errors.py"):
        return ""
    found = _git("rev-parse", "--short=12", "HEAD")
    return found + ("+" if found and _git("status", "--porcelain", "--untracked-files=no") else "")


@cache
def code_digest() -> str:
    """The SHA-256, shortened to 16 characters, of the Python code and the prompts of this package."""
    found = hashlib.sha256()
    names = {path.relative_to(_PACKAGE): path for path in _PACKAGE.rglob("*") if path.suffix in _KINDS}
    for name in sorted(name for name in names if name.parts[0] not in _BESIDE):
        data = names[name].read_bytes()
        found.update(f"{name.as_posix()}\0{len(data)}\0".encode())
        found.update(data)
    return found.hexdigest()[:16]


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(_PACKAGE), *words], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
