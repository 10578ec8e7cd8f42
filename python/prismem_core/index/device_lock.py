"""The lock of an index on a device: many readers or one writer, and never a forked child."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from prismem_core.errors import VectorIndexError


class SharedLock:
    """Neither side starves: all pass one gate as they come, and who waits to write keeps it closed."""

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._changed = threading.Condition(threading.Lock())
        self._readers = 0
        self._process = os.getpid()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """With others that read."""
        self._refuse_child()
        with self._gate, self._changed:
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Alone."""
        self._refuse_child()
        with self._gate:
            with self._changed:
                self._changed.wait_for(lambda: self._readers == 0)
            yield

    def _refuse_child(self) -> None:
        if os.getpid() != self._process:
            raise VectorIndexError(
                "the rows of this index lie on a device, whose memory a forked child cannot use; "
                "start the process by spawning it and load the index there"
            )
