"""Parts of a study on disk, so that one that was stopped goes on and a larger one begins with what is there."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import prismem_core
from prismem_core.digests import digest

from .search import Found

Results = dict[str, list[Found]]
"""What each strategy came to, in the order of the seeds."""


class Kept:
    """Finished parts under `directory`, one file each; nothing is kept without one.

    A file's name is a digest of what was simulated and of the code of engine and model, so that a result of other code
    is never read.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            self._code = digest(*(path.read_text(encoding="utf-8") for path in _sources()))

    def read(self, setting: object, seeds: Sequence[int]) -> Results | None:
        """The part with these seeds, or None where it is not there or cannot be read."""
        if self._directory is None:
            return None
        try:
            stored = json.loads(self._file(setting, seeds).read_text(encoding="utf-8"))
            return {strategy: [Found(**run) for run in runs] for strategy, runs in stored.items()}
        except (OSError, ValueError, TypeError, RecursionError):
            return None

    def write(self, setting: object, seeds: Sequence[int], results: Results) -> None:
        """Keep a finished part."""
        if self._directory is not None:
            file = self._file(setting, seeds)
            beside = file.with_suffix(f".{os.getpid()}")
            plain = {strategy: [asdict(run) for run in runs] for strategy, runs in results.items()}
            beside.write_text(json.dumps(plain), encoding="utf-8")
            os.replace(beside, file)

    def _file(self, setting: object, seeds: Sequence[int]) -> Path:
        if self._directory is None:
            raise ValueError("nothing is kept without a directory")
        return self._directory / f"{digest(self._code, repr(setting), list(seeds))[:32]}.json"


def _sources() -> list[Path]:
    package, model = Path(prismem_core.__file__).parent, Path(__file__).parent
    engine = [*(package / "evolution").glob("*.py"), package / "runs" / "events.py", package / "program" / "patch.py"]
    return [*sorted(engine), model / "world.py", model / "search.py"]
