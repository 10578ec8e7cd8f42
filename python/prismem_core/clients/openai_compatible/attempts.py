"""Tries of a call: exponential waits with a ceiling and jitter, the server's hint, a deadline over all."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from prismem_core.clients.model_settings import ModelSettings
from prismem_core.clients.openai_compatible.batches import Stopped
from prismem_core.clients.openai_compatible.failures import PassingFailure
from prismem_core.clients.openai_compatible.pace import Pace
from prismem_core.errors import RoleError

if TYPE_CHECKING:
    from tenacity import RetryCallState

_LOGGER = logging.getLogger("prismem_core")
T = TypeVar("T")
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 60.0
FEW_TRIES = 3
# A failure that passes sooner, or that is final sooner, is told in one line: that of the error, or none.
SILENT_SECONDS = 5.0


class Attempts:
    """How often and when calls of one client are tried again; used in the loop's thread alone.

    A wait that the server asked for holds for all calls of the client. Jitter comes from a generator of its own, so
    that no other random numbers move.
    """

    def __init__(self, settings: ModelSettings) -> None:
        from aiolimiter import AsyncLimiter

        self._retries = settings.retries
        self._deadline = settings.deadline_seconds
        self._timeout = settings.timeout_seconds
        self._random = random.Random()
        self._wait_until = 0.0
        self._pace = Pace()
        self._warned = False
        self._answers = 0
        self._limiter: AsyncLimiter | None = None
        if settings.requests_per_minute is not None:
            # One at a time, evenly: a bucket of a whole minute would let all of them start at once.
            self._limiter = AsyncLimiter(1, 60.0 / settings.requests_per_minute)

    async def run(self, once: Callable[[float], Awaitable[T]], stopped: asyncio.Event) -> T:
        """The result of `once(seconds)`, which is tried again while it raises PassingFailure.

        `seconds` is what a try may take. RoleError after the last one; Stopped once `stopped` is set.
        """
        from tenacity import AsyncRetrying, retry_if_exception_type

        begun = time.monotonic()
        # Tries refused for the rate while others were answered: the server is there, so that waiting is enough.
        spared, answers = 0, self._answers

        async def attempt() -> T:
            nonlocal spared, answers
            await self._turn(stopped, begun)
            started = time.monotonic()
            left = self._deadline - (started - begun)
            try:
                result = await once(max(0.001, min(self._timeout, left)))
            except PassingFailure as failure:
                if failure.rate:
                    self._pace.refused(started)
                    spared += self._answers > answers
                    answers = self._answers
                raise
            self._answers += 1
            self._pace.answered()
            return result

        async def nap(seconds: float) -> None:
            await _nap(seconds, stopped)

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(PassingFailure),
            wait=lambda state: self._wait(state, state.attempt_number - spared),
            stop=lambda state: self._is_last(state, state.attempt_number - spared),
            before_sleep=self._tell,
            sleep=nap,
            reraise=True,
        )
        try:
            return await retrying(attempt)
        except PassingFailure as failure:
            tries = retrying.statistics.get("attempt_number", 1)
            raise self._final(failure, tries, time.monotonic() - begun) from None

    async def _turn(self, stopped: asyncio.Event, begun: float) -> None:
        """Wait until a try may begin."""
        if self._limiter is not None:
            await self._limiter.acquire()
        pause = self._wait_until - time.monotonic()
        if pause > 0:
            pause *= self._random.uniform(1.0, 1.1)
            left = self._deadline - (time.monotonic() - begun)
            if pause > left:
                raise RoleError(
                    f"the server asks to wait {pause:.0f} s more, longer than deadline_seconds leaves; resume later or "
                    "raise it"
                )
            await _nap(pause, stopped)
        turn = self._pace.turn()
        if turn > 0:
            await _nap(turn, stopped)
        if stopped.is_set():
            raise Stopped

    def _wait(self, state: RetryCallState, counted: int) -> float:
        failure = _failure_of(state)
        exponential = FIRST_WAIT_SECONDS * 2.0 ** min(20, max(0, counted - 1))
        own = min(LONGEST_WAIT_SECONDS, exponential) * self._random.uniform(0.5, 1.0)
        if failure.hint is None:
            return own
        self._wait_until = max(self._wait_until, time.monotonic() + failure.hint)
        # A server that asks for no wait, or for a short one, again and again must not use up the tries.
        return max(own, failure.hint + min(own, 0.1 * failure.hint + 0.05))

    def _tell(self, state: RetryCallState) -> None:
        """Say once that calls are tried again, when it takes long enough for somebody to wonder."""
        begun = state.seconds_since_start or 0.0
        if not self._warned and begun + state.upcoming_sleep >= SILENT_SECONDS:
            self._warned = True
            _LOGGER.warning("%s; such calls are tried again", _failure_of(state).what)

    def _is_last(self, state: RetryCallState, counted: int) -> bool:
        failure = _failure_of(state)
        tries = min(FEW_TRIES, self._retries + 1) if failure.few else self._retries + 1
        passed = state.seconds_since_start or 0.0
        return counted >= tries or passed + state.upcoming_sleep > self._deadline

    def _final(self, failure: PassingFailure, tries: int, seconds: float) -> RoleError:
        tried = f"tried {tries} times in {seconds:.0f} s" if tries > 1 else "tried once"
        waits = ""
        if failure.hint is not None and seconds + failure.hint > self._deadline:
            waits = f"; it asks to wait {failure.hint:.0f} s, longer than deadline_seconds leaves"
        advice = f"; {failure.advice}, then resume" if failure.advice else ""
        return RoleError(f"{failure.what} ({tried}){waits}{advice}")


def _failure_of(state: RetryCallState) -> PassingFailure:
    failure = state.outcome.exception() if state.outcome is not None else None
    return failure if isinstance(failure, PassingFailure) else PassingFailure("")


async def _nap(seconds: float, stopped: asyncio.Event) -> None:
    """Sleep, but not after the batch has failed."""
    try:
        async with asyncio.timeout(seconds):
            await stopped.wait()
    except TimeoutError:
        return
    raise Stopped
