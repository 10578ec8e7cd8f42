"""What the server received and what it counted: a log in memory and on disk, counters, calls under way."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

COUNTS = (
    "requests",
    "replies",
    "prompt_tokens",
    "completion_tokens",
    "delivered_prompt_tokens",
    "delivered_completion_tokens",
)


class Record:
    """Requests in the order of arrival. `path` is a JSON Lines file that outlives the process and gets one line for
    each request that has ended; with `keep_bodies` off no request is kept, for runs of many thousands.
    """

    def __init__(self, path: Path | None, keep_bodies: bool = True) -> None:
        self._file = path.open("a", encoding="utf-8") if path else None
        self.keep_bodies = keep_bodies
        self.entries: list[dict[str, Any]] = []
        self.counters: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
        self.arrived = self.under_way = self.peak = 0
        self.changed = asyncio.Event()

    def arrive(self, entry: dict[str, Any]) -> dict[str, Any]:
        """A request has come."""
        self.arrived += 1
        self.under_way += 1
        self.peak = max(self.peak, self.under_way)
        entry |= {"number": self.arrived, "under_way": self.under_way, "status": None, "delivered": False}
        entry |= {"prompt_tokens": 0, "completion_tokens": 0}
        self.counters[f"{entry['endpoint']} {entry['model']}"]["requests"] += 1
        if self.keep_bodies:
            self.entries.append(entry)
        self._notify()
        return entry

    def generate(self, entry: dict[str, Any], prompt: int, completion: int) -> None:
        """The model has done its work for a request, whether its reply arrives or not."""
        entry |= {"prompt_tokens": prompt, "completion_tokens": completion}
        self._add(entry, replies=1, prompt_tokens=prompt, completion_tokens=completion)

    def deliver(self, entry: dict[str, Any]) -> None:
        """The whole reply is being handed to the connection."""
        entry["delivered"] = True
        self._write(entry)
        self._add(
            entry,
            delivered_prompt_tokens=entry["prompt_tokens"],
            delivered_completion_tokens=entry["completion_tokens"],
        )

    def leave(self, entry: dict[str, Any]) -> None:
        """A request has ended."""
        self.under_way -= 1
        if not entry["delivered"]:
            self._write(entry)
        self._notify()

    def clear(self) -> None:
        """Forget what was received and counted; what is on disk stays."""
        self.entries.clear()
        self.counters.clear()
        self.arrived, self.peak = 0, self.under_way

    def state(self) -> dict[str, Any]:
        """Counters and calls under way, as JSON data."""
        state = {"totals": self.totals(), "counters": self.counters}
        return state | {"arrived": self.arrived, "under_way": self.under_way, "peak": self.peak}

    def totals(self) -> dict[str, int]:
        """The counters of all models and endpoints together."""
        return {name: sum(counts[name] for counts in self.counters.values()) for name in COUNTS}

    async def wait(self, arrived: int, under_way: int) -> None:
        """Return when so many requests have come and at least so many are under way."""
        while self.arrived < arrived or self.under_way < under_way:
            event = self.changed
            await event.wait()

    def _write(self, entry: dict[str, Any]) -> None:
        if self._file and self.keep_bodies:
            self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")
            self._file.flush()

    def _add(self, entry: dict[str, Any], **counts: int) -> None:
        counters = self.counters[f"{entry['endpoint']} {entry['model']}"]
        for name, count in counts.items():
            counters[name] += count

    def _notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()
