"""Passes of a stage through the engine and without it, in turns, and what they say side by side."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prismem_core.roles.ledger import Usage
from prismem_core.roles.meter import Meter, Reading

from .limits import Limit
from .raw import Shot
from .workload import Outcome, Stage


@dataclass(frozen=True)
class _Pass:
    seconds: float
    outcome: Outcome
    meter: Reading
    prefix: tuple[float, float] | None
    counted: tuple[float, float] | None


def measured(
    stage: Stage, limit: Limit, meter: Meter, rounds: int, tell: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """The record of a stage: a first pass that finds caches cold, then `rounds` of engine and limit in turns.

    `limit_share` is the tokens a second of the engine over those of the limit, each the median of its rounds. `faults`
    lists what is wrong with the result: tokens that the model did not count, calls that were not answered.
    """
    tell(f"{stage.name}: first pass, {stage.calls} calls")
    first = _pass(stage, limit, meter)
    ours: list[_Pass] = []
    raw: list[Shot] = []
    for number in range(rounds):
        tell(f"{stage.name}: round {number + 1} of {rounds}")
        # The first round also notes the calls, with all that the client has learnt of the server by then.
        ours.append(limit.listen(lambda: _pass(stage, limit, meter)) if number == 0 else _pass(stage, limit, meter))
        raw.append(limit.fire())
    return {
        "stage": stage.name,
        "calls": stage.calls,
        "rounds": rounds,
        "slots": meter.slots,
        "usable": min(one.outcome.usable for one in [first, *ours]),
        "asked": first.outcome.asked,
        "first": {"seconds": first.seconds, "prefix_hits": _share(first.prefix)},
        "engine": _engine(ours, meter),
        "limit": {"name": limit.name, **_rates([(shot.seconds, shot.usage) for shot in raw])},
        "limit_share": _rate(ours, raw),
        "faults": _faults(stage, [first, *ours], raw),
    }


def _pass(stage: Stage, limit: Limit, meter: Meter) -> _Pass:
    before, reading, started = limit.counters(), meter.read(), time.monotonic()
    outcome = stage.run()
    seconds = time.monotonic() - started
    passed, after = meter.read().since(reading), limit.counters()
    if before is None or after is None:
        return _Pass(seconds, outcome, passed, None, None)
    grown = {name: after[name] - before.get(name, 0.0) for name in after}
    prefix = (grown["prefix_found"], grown["prefix_asked"]) if "prefix_asked" in grown else None
    return _Pass(seconds, outcome, passed, prefix, (grown["input"], grown["output"]))


def _engine(passes: list[_Pass], meter: Meter) -> dict[str, Any]:
    slots = meter.slots
    return {
        **_rates([(one.seconds, one.outcome.usage) for one in passes]),
        "occupancy": statistics.median(one.meter.slot_seconds / (slots * one.seconds) for one in passes),
        "own_share": statistics.median(1 - one.meter.busy_seconds / one.seconds for one in passes),
        "prefix_hits": _share(passes[-1].prefix),
    }


def _rates(passes: list[tuple[float, Usage]]) -> dict[str, float]:
    seconds = [second for second, _ in passes]
    middle = statistics.median(seconds)
    tokens = [usage.input_tokens + usage.output_tokens for _, usage in passes]
    return {
        "seconds": middle,
        "spread": (max(seconds) - min(seconds)) / middle,
        "prompts_per_second": statistics.median(usage.calls / second for second, usage in passes),
        "tokens_per_second": statistics.median(n / second for n, second in zip(tokens, seconds, strict=True)),
        "output_tokens_per_second": statistics.median(usage.output_tokens / second for second, usage in passes),
        "input_tokens": statistics.median(usage.input_tokens for _, usage in passes),
        "output_tokens": statistics.median(usage.output_tokens for _, usage in passes),
    }


def _rate(ours: list[_Pass], raw: list[Shot]) -> float:
    def speed(seconds: float, usage: Usage) -> float:
        return (usage.input_tokens + usage.output_tokens) / seconds

    limit = statistics.median(speed(shot.seconds, shot.usage) for shot in raw)
    return statistics.median(speed(one.seconds, one.outcome.usage) for one in ours) / limit if limit else 0.0


def _share(prefix: tuple[float, float] | None) -> float | None:
    return prefix[0] / prefix[1] if prefix and prefix[1] else None


def _faults(stage: Stage, passes: list[_Pass], raw: list[Shot]) -> list[str]:
    found = []
    for one in passes[1:]:
        paid = (float(one.outcome.usage.input_tokens), float(one.outcome.usage.output_tokens))
        if one.counted is not None and one.counted != paid:
            found.append(f"{stage.name}: the engine counts {paid} tokens, the server {one.counted}")
    read = {one.outcome.usage.input_tokens for one in passes[1:]} | {shot.usage.input_tokens for shot in raw}
    if len(read) > 1:
        found.append(f"{stage.name}: passes of the same calls read {sorted(read)} tokens")
    if any(one.outcome.usage.calls == 0 for one in passes):
        found.append(f"{stage.name}: a pass made no call")
    return found
