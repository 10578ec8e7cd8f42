"""`import prismem_core` is cheap: no other module, no numpy, no thread, no socket; a bench measures the time."""

from __future__ import annotations

import json
import os
import subprocess
import sys

SCRIPT = """
import sys
{before}
before = set(sys.modules)
import prismem_core
added = sorted(set(sys.modules) - before)
import json, os
tasks = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
links = []
for fd in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []:
    if os.path.lexists(f"/proc/self/fd/{{fd}}"):
        links.append(os.readlink(f"/proc/self/fd/{{fd}}"))
print(json.dumps([added, tasks, [link for link in links if link.startswith("socket:")]]))
"""


def imported(before: str = "") -> tuple[set[str], int, list[str]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(before=before)],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    added, tasks, sockets = json.loads(done.stdout)
    return set(added), tasks, sockets


def test_importing_the_package_adds_itself_alone() -> None:
    # An installed tree may be found through importlib.machinery, a plain one through sys.path.
    added, tasks, sockets = imported()
    assert {name for name in added if name.partition(".")[0] not in sys.stdlib_module_names} == {"prismem_core"}
    assert tasks == 1
    assert sockets == []


def test_numpy_comes_with_the_first_name_that_needs_it() -> None:
    added, _, _ = imported()
    assert "numpy" not in added
    script = "import sys, prismem_core; prismem_core.ops; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
