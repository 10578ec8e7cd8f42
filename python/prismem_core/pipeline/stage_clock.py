"""Where the time of an evaluation goes: wall time by stage, the models' part of it, how full their slots were."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from prismem_core.roles.meter import Meter, Reading


@dataclass
class _Stage:
    wall: float = 0.0
    readings: dict[int, Reading] = field(default_factory=dict)


class StageClock:
    """Times stages and reads the meters of the models that have slots.

    A stage's `own_seconds` are those in which no call of a model was under way: the engine's own time. Stages must not
    overlap.
    """

    def __init__(self, meters: Sequence[Meter] = ()) -> None:
        self._meters = [Meter(1)]  # the first one follows the others: is any model at work?
        for meter in meters:
            self.watch(meter)
        self._stages: dict[str, _Stage] = {}
        self._lock = threading.Lock()

    def watch(self, meter: Meter | None) -> None:
        """Read this meter, too, from now on."""
        if meter is not None and all(known is not meter for known in self._meters):
            self._meters.append(meter)
            meter.followers.append(self._meters[0])

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what passes inside to the stage `name`."""
        started = time.monotonic()
        before = [meter.read() for meter in self._meters]
        try:
            yield
        finally:
            wall = time.monotonic() - started
            with self._lock:
                stage = self._stages.setdefault(name, _Stage())
                stage.wall += wall
                for i, (meter, earlier) in enumerate(zip(self._meters, before, strict=False)):
                    passed = meter.read().since(earlier)
                    known = stage.readings.get(i, Reading(0.0, 0.0, 0.0, 0))
                    stage.readings[i] = Reading(
                        known.at + passed.at,
                        known.slot_seconds + passed.slot_seconds,
                        known.busy_seconds + passed.busy_seconds,
                        known.calls + passed.calls,
                    )

    def report(self) -> dict[str, Any]:
        """By stage and in total: `wall_seconds`, `waiting_seconds` (a call under way), `own_seconds`, `calls`, and
        `occupancy`: the share of its slots that the busiest model's calls took (None where no model was called).

        The occupancy of the whole is that of the stages that call a model, weighted by their time.
        """
        with self._lock:
            stages = {name: self._row(stage) for name, stage in self._stages.items()}
        calling = [row for row in stages.values() if row["calls"]]
        wall = sum(row["wall_seconds"] for row in stages.values())
        waiting = sum(row["waiting_seconds"] for row in stages.values())
        weight = sum(row["wall_seconds"] for row in calling)
        occupancy = sum(row["occupancy"] * row["wall_seconds"] for row in calling) / weight if weight else None
        total = {
            "wall_seconds": wall,
            "waiting_seconds": waiting,
            "own_seconds": wall - waiting,
            "own_share": (wall - waiting) / wall if wall else 0.0,
            "calls": sum(row["calls"] for row in stages.values()),
            "occupancy": occupancy,
        }
        return {"stages": stages, "total": total}

    def _row(self, stage: _Stage) -> dict[str, Any]:
        whole = stage.readings.get(0, Reading(0.0, 0.0, 0.0, 0))
        waiting = whole.busy_seconds
        used = {i: reading for i, reading in stage.readings.items() if i and (reading.calls or reading.slot_seconds)}
        taken = max((reading.slot_seconds / self._meters[i].slots for i, reading in used.items()), default=None)
        return {
            "wall_seconds": stage.wall,
            "waiting_seconds": min(waiting, stage.wall),
            "own_seconds": max(0.0, stage.wall - waiting),
            "calls": whole.calls,
            "occupancy": taken / stage.wall if taken is not None and stage.wall else None,
        }
