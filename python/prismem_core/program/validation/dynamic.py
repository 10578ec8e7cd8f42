"""The steps of validation that run the program: a smoke run and a probe at scale, in workers (steps 11-12)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from prismem_core.errors import CandidateError, ProgramError
from prismem_core.program.failure_words import explained
from prismem_core.program.interface import Interface, ProgramInterface
from prismem_core.program.sandbox import (
    CallReport,
    CollectionLimits,
    InvalidResult,
    Limits,
    MemoryWorker,
    Sandbox,
)
from prismem_core.program.validation.stub_backend import OutOfTime, StubBackend
from prismem_core.program.validation.synthetic import SyntheticSessions

Result = TypeVar("Result")

# Far above what the probe permits, so that a call too many is told as such and not as a refused call.
_MANY_ASKS = 1_000
_MANY_TEXTS = 200_000
_MANY_CHARS = 200_000_000
_CODES = {"limit:cpu": "too_slow", "limit:wall": "too_slow", "limit:calls": "backend_calls"}
_INVALID_ORDER = ("retrieve_type", "retrieve_length")


@dataclass(frozen=True)
class ValidationLimits:
    """What the dynamic steps allow; `cpu_seconds` is the program's own processor time in the probe.

    `timeout_seconds` bounds the smoke run and the probe, each by itself, the stand-in backend's time left out.
    """

    cpu_seconds: float = 10.0
    timeout_seconds: float = 25.0
    memory_bytes: int = 2 << 30
    sessions: int = 100
    units_per_session: int = 20
    dimension: int = 4096
    index_ask_calls: int = 2
    index_embed_calls: int = 4
    retrieve_ask_calls: int = 4
    retrieve_embed_calls: int = 16
    index_collection_calls: int = 8
    retrieve_collection_calls: int = 16

    def worker(self) -> Limits:
        """Limits of the worker that runs the steps."""
        return Limits(
            index_cpu_seconds=self.cpu_seconds,
            index_wall_seconds=self.timeout_seconds,
            retrieve_cpu_seconds=self.cpu_seconds,
            retrieve_wall_seconds=self.timeout_seconds,
            memory_bytes=self.memory_bytes,
            index_ask_calls=_MANY_ASKS,
            retrieve_ask_calls=_MANY_ASKS,
            index_ask_chars=_MANY_CHARS,
            retrieve_ask_chars=_MANY_CHARS,
            index_embed_texts=_MANY_TEXTS,
            retrieve_embed_texts=_MANY_TEXTS,
            index_embed_chars=_MANY_CHARS,
            retrieve_embed_chars=_MANY_CHARS,
        )


def check_dynamic(
    source: str, shown: ProgramInterface, sandbox: Sandbox, limits: ValidationLimits, interface: Interface = "paper"
) -> None:
    """Smoke run, then probe; raises ProgramError with the code of the first failing check."""
    collections = CollectionLimits() if interface == "engine" else None
    trial = _Trial(source, shown, sandbox, limits, collections, SyntheticSessions(source))
    # Another dimension than the probe's, so that a program that counts on one is found out.
    _smoke(trial, StubBackend(trial.sessions.smoke_dimension, limits.timeout_seconds))
    _probe(trial, StubBackend(limits.dimension, limits.timeout_seconds))


@dataclass(frozen=True)
class _Trial:
    """A program with all that its two runs share."""

    source: str
    interface: ProgramInterface
    sandbox: Sandbox
    limits: ValidationLimits
    collections: CollectionLimits | None
    sessions: SyntheticSessions

    def open(self, backend: StubBackend) -> MemoryWorker:
        """A worker that has loaded the program."""
        limits = self.limits.worker()
        return self.run(
            "Memory(backend)", backend, partial(self.sandbox.open, self.source, backend, limits, self.collections)
        )

    def run(self, what: str, backend: StubBackend, call: Callable[[], Result]) -> Result:
        """The result of a call of the program; its failure as ProgramError with the code of the failing check."""
        try:
            result = call()
            backend.check_time()
        except CandidateError as error:
            words = explained(error.kind, str(error), self.limits.worker())
            code = error.code if isinstance(error, InvalidResult) else _CODES.get(error.kind, "smoke_error")
            raise ProgramError(code, f"{what}: {words}", error.line) from None
        except OutOfTime:
            raise ProgramError("too_slow", f"{what}: the time for all trial calls together is over") from None
        return result


def _smoke(trial: _Trial, backend: StubBackend) -> None:
    interface, sessions = trial.interface, trial.sessions
    turns = sessions.smoke_turns
    with trial.open(backend) as worker:
        units = [sessions.object(interface.unit, number) for number in range(2)]
        trial.run("index() of two units", backend, partial(worker.index, units, sessions.raw_text(0, range(turns))))
        text = sessions.raw_text(1, range(turns, 2 * turns))
        trial.run("index() of an empty list", backend, partial(worker.index, [], text))
        first, second = sessions.queries[:2]
        queries = [sessions.object(interface.query, number) for number in (first, second, first)]
        texts: list[str] = []
        broken: list[ProgramError] = []
        for number, query in enumerate(queries, 1):
            what = f"retrieve() number {number}"
            try:
                # In the worker itself: only there can one query be seen to change the next.
                texts.append(trial.run(what, backend, partial(worker.retrieve, query, in_place=True))[0])
            except ProgramError as error:
                if error.code not in _INVALID_ORDER:
                    raise
                broken.append(error)
        if broken:
            raise min(broken, key=lambda error: _INVALID_ORDER.index(error.code))
        if texts[0] != texts[2]:
            raise ProgramError(
                "retrieve_stateful",
                "retrieve() gave the same query another result after a different query; it must not change the memory",
            )


def _probe(trial: _Trial, backend: StubBackend) -> None:
    interface, limits, sessions = trial.interface, trial.limits, trial.sessions
    cpu_seconds = 0.0
    size = limits.units_per_session
    with trial.open(backend) as worker:
        for session in range(limits.sessions):
            numbers = range(session * size, (session + 1) * size)
            units = [sessions.object(interface.unit, number) for number in numbers]
            text = sessions.raw_text(session, numbers)
            what = f"index() of session {session + 1} of {limits.sessions}"
            report = trial.run(what, backend, partial(worker.index, units, text))
            _count(what, report, limits.index_ask_calls, limits.index_embed_calls, limits.index_collection_calls)
            cpu_seconds += report.cpu_seconds
        for number, chosen in enumerate(sessions.queries[2:], 1):
            query = sessions.object(interface.query, chosen)
            what = f"retrieve() number {number} over {limits.sessions * size} units"
            _, report = trial.run(what, backend, partial(worker.retrieve, query, in_place=True))
            _count(
                what,
                report,
                limits.retrieve_ask_calls,
                limits.retrieve_embed_calls,
                limits.retrieve_collection_calls,
            )
            cpu_seconds += report.cpu_seconds
    if cpu_seconds > limits.cpu_seconds:
        raise ProgramError(
            "too_slow",
            f"the program used {cpu_seconds:.1f} s of processor time for {limits.sessions} sessions of {size} units "
            f"and two retrievals; at most {limits.cpu_seconds:g} s are allowed",
        )


def _count(what: str, report: CallReport, asks: int, embeds: int, collections: int) -> None:
    if report.collection_calls > collections:
        raise ProgramError(
            "backend_calls",
            f"{what} made {report.collection_calls} calls of collections; at most {collections} are allowed: add or "
            "look for many texts in one call",
        )
    if report.ask_calls > asks or report.embed_calls > embeds:
        raise ProgramError(
            "backend_calls",
            f"{what} made {report.ask_calls} ask and {report.embed_calls} embed calls; at most {asks} and {embeds} are "
            "allowed: embed many texts in one call",
        )
