"""Runs Python code in a new process in which some libraries are not installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import prismem_core

PRELUDE = """
import sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {names!r} else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
"""


def installed(name: str) -> bool:
    """Whether this interpreter has a library."""
    return importlib.util.find_spec(name) is not None


def run_without(names: tuple[str, ...], script: str, **environment: str) -> str:
    """What the script printed; fails with its error text when it fails."""
    path = str(Path(prismem_core.__file__).parent.parent)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")]), **environment}
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE.format(names=set(names)) + script],
        capture_output=True,
        text=True,
        env=variables,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
