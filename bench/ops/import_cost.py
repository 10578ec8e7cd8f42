"""What `import prismem_core` adds to a Python that does nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from ..contest import OURS, Competitor, Contest, Finding, Goal, Job, Run, Work

IMPORT = "python -c 'import prismem_core'"
NOTHING = "python -c pass"
ALLOWED = "python -c pass, and 50 ms"


def _python(code: str, pause_seconds: float = 0.0) -> Run:
    def run() -> int:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True)
        time.sleep(pause_seconds)
        return done.returncode

    return run


def _prepare(quick: bool) -> Contest:
    def check(_: Competitor, code: Any) -> Finding:
        return Finding("" if code == 0 else f"exit code {code}")

    return Contest(
        "fresh processes of this Python",
        {"processes": 1},
        [
            Competitor(IMPORT, OURS, lambda: _python("import prismem_core")),
            Competitor(NOTHING, "python", lambda: _python("pass")),
            Competitor(ALLOWED, "python", lambda: _python("pass", 0.05)),
        ],
        check,
        Work(),
    )


JOBS: Sequence[Job] = (
    # Wall time, as the time of other processes is not that of this one.
    Job(
        "import/package",
        "what importing the package adds to a Python that does nothing; at most 50 ms",
        _prepare,
        (Goal(IMPORT, ALLOWED, 1.0),),
        threads=2,
    ),
)
