"""An edit of the catalogue: a named step from one design to the next, with the signals that it answers.

An edit fits a design if all of its changes survive `canonical` (so what an edit needs is checked in one place) and
something differs afterwards. `prior` says how often an edit of this kind pays at all; `answers` how much of each
signal it may mend. An edit may be good for one capability and bad for another, as any real edit: measuring decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from prismem_core.evolution.catalog.features import Features

Component = Literal["extraction", "indexing", "planning", "retrieval", "answer"]


@dataclass(frozen=True)
class Edit:
    """One edit: `changes` sets features, `clauses` joins the answer instruction, `without` leaves it.

    `when` restricts an edit beyond what its features need; `redundant` says whether a design already has another remedy
    for the same weakness.
    """

    name: str
    component: Component
    summary: str
    answers: Mapping[str, float]
    prior: float = 1.0
    changes: Mapping[str, Any] = field(default_factory=dict)
    clauses: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    when: Callable[[Features], bool] = lambda design: True
    redundant: Callable[[Features], bool] = lambda design: False

    def applied(self, design: Features) -> Features | None:
        """The design after the edit, None where it does not fit."""
        if not self.when(design):
            return None
        kept = tuple(name for name in design.answer if name not in self.without)
        result = design.having({**self.changes, "answer": kept + self.clauses})
        survived = all(getattr(result, name) == value for name, value in self.changes.items())
        return result if survived and result != design else None
