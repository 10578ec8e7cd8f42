"""What a client tells as it goes: calls it wants to make, what they used, and calls that answer no request."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prismem_core.digests import digest
from prismem_core.roles.budget import Budget
from prismem_core.roles.ledger import Ledger


class Account:
    """One role's side of the budget and the ledger; thread-safe.

    A client asks `admit` before each call it sends and calls `settle` as soon as the call's tokens are known. The
    ledger's line of an ordinary reply is written by the cached role, which knows its key; a call that answers no
    request (a probe, a check, a reply that was thrown away) is written here, by `overhead`, which settles it too.
    """

    def __init__(self, role: str, ledger: Ledger | None = None, budget: Budget | None = None) -> None:
        self.role = role
        self._ledger = ledger or Ledger()
        self._budget = budget or Budget()

    def admit(self) -> None:
        """BudgetError if no further call may be made."""
        self._budget.admit(self.role)

    def settle(self, input_tokens: int, output_tokens: int, calls: int = 1) -> None:
        """Count a call that was made, or `calls` that were sent as one, as the texts of an embedder are."""
        self._budget.settle(self.role, input_tokens, output_tokens, calls)

    def compute(self, gpu_seconds: float) -> None:
        """Count and record time on GPUs."""
        self._budget.compute(self.role, gpu_seconds)
        self._ledger.record_gpu(self.role, gpu_seconds)

    @contextmanager
    def on_gpu(self) -> Iterator[None]:
        """Work of the engine's own on one GPU, measured from here to its end; BudgetError if no time is left for it."""
        self._budget.admit_on_gpu(self.role)
        began = time.perf_counter()
        try:
            yield
        finally:
            self.compute(time.perf_counter() - began)

    def overhead(self, stage: str, input_tokens: int, output_tokens: int) -> None:
        """Count and record a call that answers no request, under a stage such as `probe`."""
        self.settle(input_tokens, output_tokens)
        self._ledger.record(self.role, stage, digest("overhead", stage), input_tokens, output_tokens)
