"""What `import prismem_core` adds to a Python that does nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from ..contest import OURS, Competitor, Contest, Finding, Goal, Job, Run, Work

IMPORT = "python -c 'import prismem_core'"
NOTHING = "python -c pass"
ALLOWED = "python -c pass, and 50 ms"

_WORK = "import time; end = time.process_time() + 0.05\nwhile time.process_time() < end: pass"
"""Keeps the processor busy: what is measured is its time."""


def _python(code: str) -> Run:
    return lambda: subprocess.run([sys.executable, "-c", code], capture_output=True).returncode


def _prepare(quick: bool) -> Contest:
    def check(_: Competitor, code: Any) -> Finding:
        return Finding("" if code == 0 else f"exit code {code}")

    return Contest(
        "fresh processes of this Python",
        {"processes": 1},
        [
            Competitor(IMPORT, OURS, lambda: _python("import prismem_core")),
            Competitor(NOTHING, "python", lambda: _python("pass")),
            Competitor(ALLOWED, "python", lambda: _python(_WORK)),
        ],
        check,
        Work(),
    )


JOBS: Sequence[Job] = (
    Job(
        "import/package",
        "what importing the package adds to a Python that does nothing; at most 50 ms",
        _prepare,
        (Goal(IMPORT, ALLOWED, 1.0),),
    ),
)
