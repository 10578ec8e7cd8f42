"""What is simulated: the main study, the null world, the sweeps and the calibration, in several processes."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from prismem_core.evolution.archive import Archive
from prismem_core.evolution.rounding import q

from .kept import Kept, Results
from .search import Budget, SimulatedLaboratory, found, search
from .world import Rates, World, skills_of

PRISMEM = "prismem"
OTHERS = ("holistic", "round-robin", "random-case", "no-integration")
STRATEGIES = (PRISMEM, *OTHERS)
PAPER_ORDER = ("holistic", "random-case", "no-integration", "round-robin", PRISMEM)
"""P Table 4, the worst first."""
CALIBRATED_SHARE = 0.805
"""P Fig. 1b: revisions without an overall gain that still improve a capability."""
CALIBRATION_SEEDS = range(1_000_000, 1_000_200)
CHUNK = 10


@dataclass(frozen=True)
class Setting:
    """One point of the study."""

    rates: Rates = field(default_factory=Rates)
    budget: Budget = field(default_factory=Budget)


MAIN = Setting()
ALIKE = Setting(replace(MAIN.rates, seed_deviation=0.5, tradeoffs=0.78))
"""The start is about as good at one capability as at another; the share of trade-offs is the one calibrated there."""
SIDE_EFFECTS = Setting(replace(ALIKE.rates, interference=0.3))
"""A merge takes over a share of what a specialist gave up for its gain."""
GENERAL = Setting(replace(ALIKE.rates, general=1.0, plain_share=0.2))
"""A revision without a trade-off helps all capabilities, by as many points in all as an aimed one helps one."""
FIRST = Setting(replace(SIDE_EFFECTS.rates, general=1.0))
"""The world of the first model, as it was written down before the first run (docs/simulation.md, "Changes")."""
WORLDS: Mapping[str, Setting] = {
    "main": MAIN,
    "capabilities alike": ALIKE,
    "alike, merges with side effects": SIDE_EFFECTS,
    "alike, general revisions": GENERAL,
    "first model": FIRST,
}
_NULL = replace(MAIN.rates, tradeoffs=0.0, general=1.0, secondaries=(1.0, 0.0, 0.0), seed_deviation=0.0)
NULL_WORLDS: Mapping[str, Setting] = {
    "noise 0.1, T3 = 3": Setting(_NULL),
    "noise 0.1, T3 = 0": Setting(_NULL, Budget(T3=0)),
    "no noise, T3 = 3": Setting(replace(_NULL, noise=0.0)),
    "no noise, T3 = 0": Setting(replace(_NULL, noise=0.0), Budget(T3=0)),
}


def sweeps() -> dict[str, dict[str, Setting]]:
    """Each parameter by itself, the others as in the main study: settings by axis and value."""
    axes: dict[str, tuple[str, Sequence[float]]] = {
        "share of trade-offs": ("tradeoffs", (0.0, 0.25, 0.5, MAIN.rates.tradeoffs, 0.9, 1.0)),
        "spread of the start's skills": ("seed_deviation", (0.0, 0.5, 1.0, MAIN.rates.seed_deviation, 2.0)),
        "noise": ("noise", (0.0, 0.05, 0.1, 0.2, 0.4, 1.0)),
        "label noise": ("label_noise", (0.0, 0.1, 0.25, 0.5, 1.0)),
        "share of general revisions": ("general", (0.0, 0.25, 0.5, 1.0)),
        "chance of success": ("success", (0.25, 0.5, 0.75)),
        "misreading": ("misreading", (0.0, 0.2, 0.8)),
        "least fidelity": ("least_fidelity", (0.0, 0.5, 1.0)),
        "interference": ("interference", (0.0, 0.15, 0.3, 0.6)),
    }
    main: dict[str, Any] = vars(MAIN.rates)
    found: dict[str, dict[str, Setting]] = {
        axis: {f"{value:g}": Setting(Rates(**{**main, name: value})) for value in values}
        for axis, (name, values) in axes.items()
    }
    found["budget T"] = {
        str(b.T1 + b.T2 + b.T3): Setting(MAIN.rates, b)
        for b in (Budget(2, 6, 2), Budget(), Budget(10, 24, 6), Budget(20, 48, 12))
    }
    found["secondaries none/one/two"] = {
        "/".join(f"{share:g}" for share in shares): Setting(replace(MAIN.rates, secondaries=shares))
        for shares in ((1.0, 0.0, 0.0), MAIN.rates.secondaries, (0.0, 0.5, 0.5))
    }
    return found


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes that are spawned; what has not begun is dropped when the caller leaves with an error."""
    # Ctrl-C reaches every process of the terminal; the workers leave it to the one that reports.
    pool = ProcessPoolExecutor(
        count,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.kill()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def simulate(
    pool: ProcessPoolExecutor,
    wanted: Mapping[Setting, int],
    progress: Callable[[int, int], None] = lambda done, total: None,
    kept: Kept | None = None,
) -> dict[Setting, Results]:
    """Every strategy in the first seeds of each setting, as many as `wanted` says; the same whatever the processes.

    What `kept` holds is not simulated again.
    """
    kept = kept or Kept(None)
    parts: dict[tuple[Setting, int], Results] = {}
    jobs: dict[Future[Results], tuple[Setting, range]] = {}
    for setting, count in wanted.items():
        for first in range(0, count, CHUNK):
            seeds = range(first, min(first + CHUNK, count))
            stored = kept.read(setting, seeds)
            if stored is None:
                jobs[pool.submit(_chunk, setting, seeds)] = (setting, seeds)
            else:
                parts[setting, first] = stored
    total, open_jobs = len(parts) + len(jobs), set(jobs)
    while open_jobs:
        done, open_jobs = wait(open_jobs, return_when=FIRST_COMPLETED)
        for job in done:
            setting, seeds = jobs[job]
            parts[setting, seeds.start] = job.result()
            kept.write(setting, seeds, job.result())
        progress(len(parts), total)
    merged: dict[Setting, Results] = {}
    for setting, count in wanted.items():
        rows = [parts[setting, first] for first in range(0, count, CHUNK)]
        merged[setting] = {strategy: [f for row in rows for f in row[strategy]] for strategy in STRATEGIES}
    return merged


def _chunk(setting: Setting, seeds: Sequence[int]) -> Results:
    results: Results = {strategy: [] for strategy in STRATEGIES}
    for seed in seeds:
        world = World(setting.rates, seed)
        for strategy in STRATEGIES:
            results[strategy].append(found(world, search(world, strategy, setting.budget)))
    return results


@dataclass(frozen=True)
class Revisions:
    """Counts over proposals: all, those without an overall gain, and those of them that improve a capability.

    First by expected scores over the population, then by observed validation scores.
    """

    all: int = 0
    idle: int = 0
    idle_helpful: int = 0
    observed_idle: int = 0
    observed_idle_helpful: int = 0

    @property
    def share(self) -> float:
        """Of the revisions without an overall gain, how many still improve a capability, by expected scores."""
        return self.idle_helpful / self.idle if self.idle else 0.0

    @property
    def observed_share(self) -> float:
        """The same by observed validation scores."""
        return self.observed_idle_helpful / self.observed_idle if self.observed_idle else 0.0

    def to_json(self) -> dict[str, Any]:
        """Counts and shares."""
        return {**vars(self), "share": self.share, "observed_share": self.observed_share}


def count_revisions(pool: ProcessPoolExecutor, rates: Rates, seeds: Sequence[int]) -> Revisions:
    """The counts over all revisions of `holistic` runs with these seeds."""
    chunks = [seeds[first : first + CHUNK] for first in range(0, len(seeds), CHUNK)]
    rows = [
        [getattr(row, name) for name in vars(Revisions())]
        for row in pool.map(_revisions, [rates] * len(chunks), chunks)
    ]
    return Revisions(*(sum(column) for column in zip(*rows, strict=True)))


def _revisions(rates: Rates, seeds: Sequence[int]) -> Revisions:
    counts = [0] * len(vars(Revisions()))
    for seed in seeds:
        world = World(rates, seed)
        archive = search(world, "holistic", Budget()).archive
        for program in archive.programs.values():
            if program.parent is not None:
                row = _judged(world, archive, program.source, archive.program(program.parent).source)
                counts = [a + b for a, b in zip(counts, row, strict=True)]
    return Revisions(*counts)


def _judged(world: World, archive: Archive, source: str, parent: str) -> tuple[int, ...]:
    """A revision's row of the counts."""
    after, before = skills_of(source), skills_of(parent)
    idle = q(world.worth(after)) <= q(world.worth(before))
    helpful = any(q(a) > q(b) for a, b in zip(world.profile(after), world.profile(before), strict=True))
    laboratory = SimulatedLaboratory(world)
    seen, known = laboratory.scores(source), laboratory.scores(parent)
    rises = {
        name: q(sum(seen[t] for t in tasks) / len(tasks)) > q(sum(known[t] for t in tasks) / len(tasks))
        for name, tasks in {"": archive.valid_ids, **archive.valid_by_capability()}.items()
    }
    observed_idle = not rises.pop("")
    return (1, idle, idle and helpful, observed_idle, observed_idle and any(rises.values()))


def calibrate(pool: ProcessPoolExecutor, seeds: Sequence[int] = CALIBRATION_SEEDS) -> tuple[float, Revisions]:
    """The multiple of 0.01 of trade-offs at which the share comes nearest to the paper's, with the counts there.

    The share grows with the trade-offs, so that halving the range finds the neighbours of the paper's value.
    """
    known: dict[int, Revisions] = {}

    def counts(percent: int) -> Revisions:
        if percent not in known:
            known[percent] = count_revisions(pool, replace(MAIN.rates, tradeoffs=percent / 100), seeds)
        return known[percent]

    low, high = 0, 100
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if counts(middle).share < CALIBRATED_SHARE else (low, middle)
    best = min((low, high), key=lambda percent: abs(counts(percent).share - CALIBRATED_SHARE))
    return best / 100, counts(best)
