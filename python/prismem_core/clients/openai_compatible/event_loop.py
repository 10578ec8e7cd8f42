"""One event loop in a thread of its own, started by the first call."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable

from prismem_core.errors import RoleError

CLOSE_SECONDS = 5.0


class EventLoop:
    """A loop that other threads hand work to; no thread exists before `start` and none after `close`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    def start(self) -> asyncio.AbstractEventLoop:
        """The running loop; RoleError in a process that was forked from the one it runs in."""
        with self._lock:
            if self._loop is None:
                self._process = os.getpid()
                self._loop = asyncio.new_event_loop()
                # A daemon: an interpreter that ends must not wait for calls that nobody waits for.
                self._thread = threading.Thread(target=self._run, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            elif self._process != os.getpid():
                raise RoleError(
                    "this client belongs to the process that this one was forked from; make a client of its own here"
                )
            return self._loop

    def tell(self, what: Callable[[], object]) -> None:
        """Have `what` done in the loop, if there is one."""
        with self._lock:
            if self._loop is not None and self._process == os.getpid():
                self._loop.call_soon_threadsafe(what)

    def close(self, first: Callable[[], None], last: Callable[[], Awaitable[None]]) -> None:
        """Call `first` in the loop, end every task, await `last` and end the thread."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None or self._process != os.getpid():
            return

        async def end() -> None:
            first()
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await last()
                    await loop.shutdown_default_executor()
            finally:
                loop.stop()

        loop.call_soon_threadsafe(lambda: loop.create_task(end()))
        thread.join(2 * CLOSE_SECONDS)

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()
