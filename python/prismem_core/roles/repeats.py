"""Whether a model that is asked the same twice answers the same: told once where it does not."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict

from prismem_core.digests import digest_bytes

_LOGGER = logging.getLogger("prismem_core")
_KEPT = 50_000


class Repeats:
    """Remembers the last answers by a digest of what was asked; thread-safe.

    Only what was really asked twice is compared: with `reuse="off"` a program's calls are made anew though an equal
    call was made before, and a reply that was cut is asked for again by the next process.
    """

    def __init__(self, identity: str, kept: int = _KEPT) -> None:
        self._identity = identity
        self._kept = kept
        self._lock = threading.Lock()
        self._answers: OrderedDict[str, str] = OrderedDict()
        self._told = False

    def note(self, asked: str, answer: bytes) -> None:
        """Take note of an answer; a warning, once, where an earlier one to the same differs."""
        found = digest_bytes(answer)
        with self._lock:
            before = self._answers.setdefault(asked, found)
            while len(self._answers) > self._kept:
                self._answers.popitem(last=False)
            if before == found or self._told:
                return
            self._told = True
        _LOGGER.warning(
            "%s answered the same request twice differently: it is not deterministic, so a run that asks it anew may "
            "have another history (what is stored stays what it was)",
            self._identity,
        )
