"""One run of the checks: its deadline, what it found, and where that is written."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class NotHere(Exception):
    """Something that a step needs is not on this machine; the message says what."""


class Session:
    """Runs steps until the deadline, one record a step: JSON Lines in `output` and a line on the terminal.

    A record has `part`, `name`, `status` ("ok", "failed", "missing", "skipped") and what the step returned.
    """

    def __init__(self, output: Path, seconds: float, common: Mapping[str, Any], quiet: bool = False) -> None:
        self.records: list[dict[str, Any]] = []
        self._output = output
        self._end = time.monotonic() + seconds
        self.common = dict(common)
        self._quiet = quiet
        output.parent.mkdir(parents=True, exist_ok=True)

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self._end - time.monotonic()

    def step(self, part: str, name: str, needed: float, work: Callable[[], Mapping[str, Any] | None]) -> bool:
        """Do one step if `needed` seconds are left; False where it was not done or failed.

        A mapping that the step returns joins the record; its entry "complaint", if it is not None, makes it a failure.
        """
        if self.left < needed:
            self.add(
                part, name, "skipped", reason=f"{max(self.left, 0):.0f} s left of the time, about {needed:.0f} s needed"
            )
            return False
        start = time.perf_counter()
        try:
            found = dict(work() or {})
        except NotHere as missing:
            self.add(part, name, "missing", reason=str(missing))
            return False
        except Exception as error:  # a step that fails must not keep the others from running
            where = traceback.extract_tb(error.__traceback__)[-1]
            reason = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            self.add(part, name, "failed", reason=reason[:2000], seconds=time.perf_counter() - start)
            return False
        complaint = found.pop("complaint", None)
        status = "ok" if complaint is None else "failed"
        more = {} if complaint is None else {"reason": complaint}
        self.add(part, name, status, seconds=time.perf_counter() - start, **more, **found)
        return complaint is None

    def add(self, part: str, name: str, status: str, **more: Any) -> None:
        """Write one record."""
        self.keep({"part": part, "name": name, "status": status, **self.common, **more})

    def keep(self, record: dict[str, Any]) -> None:
        """Write a record that is whole."""
        self.records.append(record)
        with self._output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, allow_nan=False, default=str) + "\n")
        if not self._quiet and record["status"] != "ok":
            print(f"{record['status']:8s}{record['part']}: {record['name']}: {record.get('reason', '')}", flush=True)

    def count(self, status: str, part: str | None = None) -> int:
        """Records with this status, of one part or of all."""
        return sum(record["status"] == status and part in (None, record["part"]) for record in self.records)
