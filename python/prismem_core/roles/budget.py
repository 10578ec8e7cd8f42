"""Caps on calls, tokens, money and time, by role and over all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from prismem_core.errors import BudgetError
from prismem_core.roles.ledger import Usage


@dataclass(frozen=True)
class Allowance:
    """What may be spent; None is no cap. `money` is in the currency of the prices, `seconds` is wall time,
    `gpu_seconds` the time in which models of this process (or searches) compute, times their GPUs.
    """

    calls: int | None = None
    tokens: int | None = None
    money: float | None = None
    seconds: float | None = None
    gpu_seconds: float | None = None


@dataclass(frozen=True)
class Price:
    """Money for a million tokens read and written."""

    input_per_million: float = 0.0
    output_per_million: float = 0.0

    def of(self, usage: Usage) -> float:
        """What that usage costs."""
        return (usage.input_tokens * self.input_per_million + usage.output_tokens * self.output_per_million) / 1e6


@dataclass
class _Spent:
    usage: Usage = field(default_factory=Usage)
    money: float = 0.0
    gpu_seconds: float = 0.0


class Budget:
    """Admits calls while every cap holds; thread-safe.

    A call is admitted before it is made and settled once its tokens are known, so a cap can be passed by the calls
    under way and no more. `total` binds over all roles, `by_role` each of its own. `spent` and `gpu_spent` are what
    earlier sessions of a run used, by role, `seconds` the wall time they took.
    """

    def __init__(
        self,
        total: Allowance | None = None,
        by_role: Mapping[str, Allowance] | None = None,
        prices: Mapping[str, Price] | None = None,
        spent: Mapping[str, Usage] | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        gpu_spent: Mapping[str, float] | None = None,
        seconds: float = 0.0,
    ) -> None:
        self._total = total or Allowance()
        self._by_role = dict(by_role or {})
        self._prices = dict(prices or {})
        self._clock = clock
        self._started = clock() - seconds
        self._lock = threading.Lock()
        self._spent: dict[str, _Spent] = {}
        for role, usage in (spent or {}).items():
            self._spent[role] = _Spent(Usage(**usage.to_dict()), self.price(role).of(usage))
        for role, gpu_seconds in (gpu_spent or {}).items():
            self._spent.setdefault(role, _Spent()).gpu_seconds += gpu_seconds

    def price(self, role: str) -> Price:
        """What the model of a role costs."""
        return self._prices.get(role, Price())

    def admit(self, role: str) -> None:
        """BudgetError, with the cap and what was used of it, if no further call of that role may be made."""
        with self._lock:
            own = self._spent.get(role, _Spent())
            _check(self._by_role.get(role, Allowance()), own, None, f"the {role} model")
            _check(self._total, self._whole(), self._clock() - self._started, "all models")

    def admit_on_gpu(self, role: str) -> None:
        """BudgetError if no GPU seconds are left, for work on a GPU that is no call of a model."""
        with self._lock:
            allowed = Allowance(gpu_seconds=self._total.gpu_seconds)
            _check(allowed, self._whole(), None, "all models and searches")

    def _whole(self) -> _Spent:
        whole = _Spent()
        for spent in self._spent.values():
            whole.usage.add(spent.usage)
            whole.money += spent.money
            whole.gpu_seconds += spent.gpu_seconds
        return whole

    def compute(self, role: str, gpu_seconds: float) -> None:
        """Count time on GPUs."""
        with self._lock:
            self._spent.setdefault(role, _Spent()).gpu_seconds += gpu_seconds

    def settle(self, role: str, input_tokens: int, output_tokens: int, calls: int = 1) -> None:
        """Count a call that was made, or `calls` that were sent as one, as the texts of an embedder are."""
        usage = Usage(calls, input_tokens, output_tokens)
        with self._lock:
            spent = self._spent.setdefault(role, _Spent())
            spent.usage.add(usage)
            spent.money += self.price(role).of(usage)

    def spent(self) -> dict[str, Usage]:
        """Usage by role so far."""
        with self._lock:
            return {
                role: Usage(**spent.usage.to_dict()) for role, spent in sorted(self._spent.items()) if spent.usage.calls
            }


def _check(allowed: Allowance, spent: _Spent, seconds: float | None, whose: str) -> None:
    tokens = spent.usage.input_tokens + spent.usage.output_tokens
    for name, used, cap in (
        ("calls", spent.usage.calls, allowed.calls),
        ("tokens", tokens, allowed.tokens),
        ("money", spent.money, allowed.money),
        ("seconds", seconds, allowed.seconds),
        ("GPU seconds", spent.gpu_seconds, allowed.gpu_seconds),
    ):
        if cap is not None and used is not None and used >= cap:
            shown = f"{_shown(used)} of {_shown(cap)}"
            raise BudgetError(
                f"the budget of {name} for {whose} is spent: {shown}; what was paid for is kept, raise the cap "
                "(docs/models.md) and go on"
            )


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"
