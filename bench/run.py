"""Runs jobs: builds the competitors, checks each result, times those that are right, and makes one record a job."""

from __future__ import annotations

import difflib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prismem_core.errors import ArgumentError, PrismemError
from prismem_core.runs.provenance import commit

from . import machine
from .contest import OURS, Competitor, Contest, Finding, Job, PeerMissing, Run, Work
from .limits import DRAM_BYTES, QUICK_DRAM_BYTES, Limits, Probes
from .ops import JOBS
from .timing import Timing, clock_for, interleaved, library_threads, pinned, with_others
from .verdict import judged

FORMAT_VERSION = 1

_TOLERANCE = 1.1
"""A rate above the limit by more than this part of it is a fault: the limit itself is measured to a few percent."""


@dataclass(frozen=True)
class Settings:
    """How to measure; `threads` is the least number of every job, None leaves each its own."""

    rounds: int = 9
    threads: int | None = None
    quick: bool = False
    budget_seconds: float = 45.0


def select(ops: Sequence[str], jobs: Sequence[str]) -> list[Job]:
    """The jobs of these ops and of these names, in the order of the table; all without either."""
    known_ops = list(dict.fromkeys(job.op for job in JOBS.values()))
    for name in ops:
        if name not in known_ops:
            raise ArgumentError(f"{name!r} is no op that is measured; there is {', '.join(known_ops)}")
    for name in jobs:
        if name not in JOBS:
            close = difflib.get_close_matches(name, JOBS, n=1)
            hint = f"did you mean {close[0]}?" if close else "see `prismem bench --list`"
            raise ArgumentError(f"{name!r} is no job; {hint}")
    if not ops and not jobs:
        return list(JOBS.values())
    return [job for job in JOBS.values() if job.op in ops or job.name in jobs]


def measured(jobs: Sequence[Job], settings: Settings, tell: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """The record of each job, as it is finished; `tell` hears what is being done."""
    about = {"machine": machine.describe(), "commit": commit()}
    for job in jobs:
        yield _Measurement(job, settings, tell).record(about)
        gc.collect()


@dataclass
class _Entry:
    competitor: Competitor
    run: Run
    build_seconds: float
    finding: Finding


class _Measurement:
    """One job on its way to a record."""

    def __init__(self, job: Job, settings: Settings, tell: Callable[[str], None]) -> None:
        self._job, self._settings, self._tell = job, settings, tell
        self._threads = max(settings.threads or 1, job.threads)
        self._clock = clock_for(self._threads)
        self._absent: list[dict[str, str]] = []
        self._faults: list[str] = []

    def record(self, about: dict[str, Any]) -> dict[str, Any]:
        """Measure now."""
        job, started, load_before = self._job, time.time(), machine.load()
        self._tell(f"{job.name}: making data")
        contest = job.prepare(self._settings.quick)
        if self._threads == 1:
            self._clock = with_others(self._clock, contest.other_seconds)
        try:
            entries, timings, probes = self._timed(contest)
        finally:
            contest.finish()
        limits, best_limits = probes.limits(timings, best=False), probes.limits(timings, best=True)
        results = [
            self._result(entry, timings[entry.competitor.name], contest, limits, best_limits) for entry in entries
        ]
        return {
            "format": "prismem-bench",
            "format_version": FORMAT_VERSION,
            "job": job.name,
            "op": job.op,
            "summary": job.summary,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
            "wall_seconds": round(time.time() - started, 3),
            **about,
            "versions": machine.versions({c.library for c in contest.competitors}),
            "load": [load_before, machine.load()],
            "settings": {
                **asdict(self._settings),
                "threads": self._threads,
                "clock": self._clock.name,
                "instruction_set": limits.isa,
            },
            "data": contest.data,
            "shape": contest.shape,
            "state": "warm: each competitor has run once, then A B C A B C; short calls are repeated back to back",
            "limits": limits.as_dict(),
            "float32_seconds": limits.seconds(contest.fp32.bytes_read, contest.fp32.flops),
            "float32_work": asdict(contest.fp32),
            "results": results,
            "absent": self._absent,
            "faults": self._faults,
            "goals": [] if self._settings.quick else judged(job.goals, results, contest, limits),
        }

    def _timed(self, contest: Contest) -> tuple[list[_Entry], dict[str, Timing], Probes]:
        """The competitors that are right, and what they and the limits of the machine took in turns."""
        with pinned(self._threads):
            with library_threads(self._threads):
                entries = self._built(contest)
            # Libraries that were loaded meanwhile have pools of their own.
            with library_threads(self._threads):
                entries = [entry for entry in entries if self._right(contest, entry)]
                probes = Probes(self._threads, dram_bytes=QUICK_DRAM_BYTES if self._settings.quick else DRAM_BYTES)
                self._tell(f"{self._job.name}: timing {len(entries)} competitors")
                timings = interleaved(
                    {**{entry.competitor.name: entry.run for entry in entries}, **probes.calls()},
                    self._clock,
                    rounds=self._settings.rounds,
                    budget_seconds=self._settings.budget_seconds,
                )
        return entries, timings, probes

    def _built(self, contest: Contest) -> list[_Entry]:
        entries = []
        for competitor in contest.competitors:
            self._tell(f"{self._job.name}: building {competitor.name}")
            started = self._clock.now()
            try:
                run = competitor.make()
            except PeerMissing as missing:
                self._leave_out(competitor, str(missing))
                continue
            except Exception as error:  # a peer may fail in any way, and the others go on
                self._failed(competitor, error)
                continue
            entries.append(_Entry(competitor, run, self._clock.now() - started, Finding()))
        return entries

    def _right(self, contest: Contest, entry: _Entry) -> bool:
        self._tell(f"{self._job.name}: checking {entry.competitor.name}")
        try:
            entry.finding = contest.check(entry.competitor, entry.run())
        except Exception as error:  # as above
            self._failed(entry.competitor, error)
            return False
        if entry.finding.complaint and entry.competitor.accuracy == "exact":
            self._leave_out(entry.competitor, f"wrong result: {entry.finding.complaint}")
            if entry.competitor.ours:
                self._faults.append(f"{entry.competitor.name}: {entry.finding.complaint}")
            return False
        return True

    def _rates_mean_something(self) -> bool:
        """Whether limits and competitors had the cores to themselves: by the wall, others count as well."""
        return self._threads == 1 or machine.load() <= machine.usable_cores() + 1

    def _failed(self, competitor: Competitor, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        self._leave_out(competitor, " ".join(text.split())[:200])
        if competitor.ours:
            self._faults.append(f"{competitor.name}: {text}")

    def _leave_out(self, competitor: Competitor, reason: str) -> None:
        self._absent.append({"name": competitor.name, "library": competitor.library, "reason": reason})

    def _result(
        self, entry: _Entry, timing: Timing, contest: Contest, limits: Limits, best_limits: Limits
    ) -> dict[str, Any]:
        competitor = entry.competitor
        least = _least_seconds(competitor.work, best_limits)
        if self._rates_mean_something() and least > timing.best * _TOLERANCE:
            self._faults.append(
                f"{competitor.name}: {timing.best * 1e3:.4g} ms is less than the {least * 1e3:.4g} ms that the limits "
                "allow for the bytes and operations it cannot do without; what it does, or the limit, is stated wrongly"
            )
        work = competitor.work
        return {
            "name": competitor.name,
            "library": competitor.library,
            "ours": competitor.library == OURS,
            "accuracy": competitor.accuracy,
            **({"complaint": entry.finding.complaint} if entry.finding.complaint else {}),
            **entry.finding.figures,
            **({"costs": entry.finding.costs} if entry.finding.costs else {}),
            "seconds": asdict(timing),
            "build_seconds": round(entry.build_seconds, 6),
            "work": None if work is None else asdict(work),
            "bytes_per_second": None if work is None else work.bytes_read / timing.median,
            "flops_per_second": None if work is None else work.flops / timing.median,
            "float32_limit": limits.seconds(contest.fp32.bytes_read, contest.fp32.flops) / timing.median,
        }


def _least_seconds(work: Work | None, limits: Limits) -> float:
    """The least time that the limits allow for this work; what the third-level cache may hold is not counted."""
    if work is None:
        return 0.0
    uncached = max(0.0, work.bytes_read - machine.cache_bytes("L3"))
    products = work.products / limits.products if limits.products else 0.0
    return max(uncached / limits.dram, work.flops / limits.flops, products)


def failures(records: Sequence[dict[str, Any]]) -> list[str]:
    """Every fault of the records: a wrong result of ours, or a rate that cannot be."""
    return [f"{record['job']}: {fault}" for record in records for fault in record["faults"]]


class BenchmarkFault(PrismemError):
    """A result is wrong, or a rate is above what the machine can do."""

    exit_code = 9
