"""Meters and the clock of stages: slot-seconds, waiting, the engine's own time."""

from __future__ import annotations

import pytest

from prismem_core.pipeline import stage_clock
from prismem_core.pipeline.stage_clock import StageClock
from prismem_core.roles import meter as meters
from prismem_core.roles.meter import Meter


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(meters, "time", made)
    monkeypatch.setattr(stage_clock, "time", made)
    return made


def test_slots_count_while_calls_are_under_way(clock: Clock) -> None:
    meter = Meter(4)
    before = meter.read()
    meter.enter()
    clock.now += 1.0
    meter.enter(2)
    clock.now += 2.0
    assert meter.under_way == 3
    meter.leave(3)
    clock.now += 5.0
    passed = meter.read().since(before)
    assert (passed.at, passed.slot_seconds, passed.busy_seconds, passed.calls) == (8.0, 7.0, 3.0, 3)


def test_a_stage_tells_waiting_from_its_own_time(clock: Clock) -> None:
    meter = Meter(2)
    stages = StageClock([meter])
    with stages.stage("answer"):
        clock.now += 1.0
        meter.enter(2)
        clock.now += 3.0
        meter.leave(2)
    with stages.stage("retrieve"):
        clock.now += 4.0
    report = stages.report()
    assert report["stages"]["answer"] == {
        "wall_seconds": 4.0,
        "waiting_seconds": 3.0,
        "own_seconds": 1.0,
        "calls": 2,
        "occupancy": 0.75,
    }
    assert report["stages"]["retrieve"]["occupancy"] is None
    assert report["total"] == {
        "wall_seconds": 8.0,
        "waiting_seconds": 3.0,
        "own_seconds": 5.0,
        "own_share": 0.625,
        "calls": 2,
        # Of the stages that call a model alone.
        "occupancy": 0.75,
    }


def test_stages_add_up_over_programs_and_idle_meters_do_not_count(clock: Clock) -> None:
    busy, idle = Meter(1), Meter(64)
    stages = StageClock()
    stages.watch(busy)
    stages.watch(idle)
    stages.watch(busy)
    stages.watch(None)
    for seconds in (1.0, 3.0):
        with pytest.raises(ZeroDivisionError), stages.stage("answer"):
            busy.enter()
            clock.now += seconds
            busy.leave()
            raise ZeroDivisionError
    row = stages.report()["stages"]["answer"]
    assert (row["wall_seconds"], row["calls"], row["occupancy"]) == (4.0, 2, 1.0)


def test_without_a_call_there_is_no_occupancy(clock: Clock) -> None:
    stages = StageClock([Meter(2)])
    with stages.stage("retrieve"):
        clock.now += 1.0
    assert stages.report()["total"]["occupancy"] is None
    assert StageClock().report()["total"]["own_share"] == 0.0


def test_waiting_is_the_time_in_which_any_model_is_at_work(clock: Clock) -> None:
    chat, embedder = Meter(2), Meter(4)
    stages = StageClock([chat, embedder])
    with stages.stage("retrieve"):
        chat.enter()
        clock.now += 1.0
        embedder.enter(4)
        clock.now += 1.0
        chat.leave()
        clock.now += 1.0
        embedder.leave(4)
        clock.now += 1.0
    row = stages.report()["stages"]["retrieve"]
    assert (row["waiting_seconds"], row["own_seconds"], row["calls"]) == (3.0, 1.0, 5)
    # The busiest model's share: four slots for two of four seconds.
    assert row["occupancy"] == 0.5
