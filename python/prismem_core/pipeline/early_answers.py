"""Answers that are asked for while other questions are still being searched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Protocol

from prismem_core.pipeline.answer import Reply, answer
from prismem_core.pipeline.structured import CompletesWithSalt
from prismem_core.pipeline.trace import Trace
from prismem_core.program.interface import ProgramInterface

PORTION = 64
_THREADS = 32


class AnswerSettings(Protocol):
    """What the pipeline's settings say of answers."""

    @property
    def max_tokens(self) -> int: ...

    @property
    def output_retries(self) -> int: ...


class EarlyAnswers:
    """Asks for the answers of searched questions in portions, side by side, so that a model's slots are not empty
    while the engine searches; a context manager that ends what it began.

    With `early` False nothing is asked before `collect`, which then takes all as one batch: for a model that makes the
    most of whole stages. `give_up` is called where an error ends it, so that no further call begins.
    """

    def __init__(
        self,
        chat: CompletesWithSalt,
        interface: ProgramInterface,
        settings: AnswerSettings,
        salt: str,
        early: bool,
        give_up: Callable[[BaseException], None],
    ) -> None:
        self._chat = chat
        self._interface = interface
        self._settings = settings
        self._salt = salt
        self._give_up = give_up
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="prismem-answer") if early else None
        self._portions: list[tuple[Sequence[int], Future[Sequence[Reply]]]] = []
        self._asked: set[int] = set()

    def searched(self, positions: Sequence[int], traces: Sequence[Trace]) -> None:
        """These questions can be answered; from any thread, each position once."""
        if self._pool is not None and positions:
            self._asked.update(positions)
            self._portions.append((positions, self._pool.submit(self._ask, list(traces))))

    def collect(self, traces: Sequence[Trace]) -> dict[int, Reply]:
        """The answers to all `traces` without a failure, by position."""
        replies: dict[int, Reply] = {}
        for positions, portion in self._portions:
            replies.update(zip(positions, portion.result(), strict=True))
        rest = [i for i, trace in enumerate(traces) if trace.failure is None and i not in self._asked]
        if rest:
            replies.update(zip(rest, self._ask([traces[i] for i in rest]), strict=True))
        return replies

    def _ask(self, traces: Sequence[Trace]) -> list[Reply]:
        return answer(
            self._chat,
            self._interface,
            [trace.question for trace in traces],
            [trace.retrieved for trace in traces],
            max_tokens=self._settings.max_tokens,
            retries=self._settings.output_retries,
            salt=self._salt,
        )

    def __enter__(self) -> EarlyAnswers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._pool is None:
            return
        if error is not None:
            self._give_up(error)
        self._pool.shutdown(wait=True, cancel_futures=error is not None)
