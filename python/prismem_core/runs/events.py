"""The events of a run, each a frozen record that is one line of the journal.

Fields are plain JSON values and never hold a duration, a date or a count of real calls: two runs with the same seed
write the same events. Program ids are `n00` (the seed), `n07` (the candidate of iteration 7), `n07r1` (its first
repair).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from prismem_core.digests import canonical_json
from prismem_core.errors import RunError

Scores = Mapping[str, float]

ROUTER = "router"
"""What stands for a program where every question was answered by the program it was routed to."""


@dataclass(frozen=True)
class Event:
    """Base of all events: `name` is its kind, `checkpoint` says whether a resumed run may continue after it."""

    name: ClassVar[str] = ""
    checkpoint: ClassVar[bool] = False

    iteration: int

    def to_json(self) -> dict[str, Any]:
        """A JSON object of all fields and the kind under `event`."""
        values = {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}
        return {"event": self.name, **values}


@dataclass(frozen=True)
class TasksAnnotated(Event):
    """The labels that a model gave the training and validation tasks, `[id, primary, [secondaries]]` as in
    `run_started`; only where a model annotates.

    `agreeing` counts the primaries that are those of the native types. `fallen_back` maps each task without a valid
    annotation to what was wrong with the last reply: its primary is that of its native type and it has no secondaries.
    A resumed run takes these labels and asks for none.
    """

    name: ClassVar[str] = "tasks_annotated"
    checkpoint: ClassVar[bool] = True

    annotator: str
    labels: Sequence[Sequence[Any]]
    agreeing: int
    fallen_back: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunStarted(Event):
    """The start: strategy, settings, designer and the labelled tasks `[id, primary, [secondaries]]` of both sets."""

    name: ClassVar[str] = "run_started"
    checkpoint: ClassVar[bool] = True

    strategy: str
    settings: Mapping[str, Any]
    designer: str
    seed_digest: str
    train: Sequence[Sequence[Any]]
    valid: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class ProgramAdded(Event):
    """A valid program; `components` are those changed against the parent, `patch` the diff that made it."""

    name: ClassVar[str] = "program_added"

    program: str
    parent: str | None
    source: str
    digest: str
    patch: str
    summary: str
    components: Sequence[str]


@dataclass(frozen=True)
class Evaluated(Event):
    """A set of tasks scored; `purpose` is `full` (train and valid), `target` or `test`.

    `program` is `router` where the test questions went to the programs of their capabilities. `failure` is None or
    `{"kind", "message", "line"}`; a failed set has no scores that count. `details` holds what the
    laboratory adds (official metrics, logical call counts).
    """

    name: ClassVar[str] = "evaluated"

    program: str
    purpose: str
    scores: Scores
    failure: Mapping[str, Any] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CapabilitySelected(Event):
    """The target of a stage II iteration, with the terms of Eq. 1-6; None and none without targets."""

    name: ClassVar[str] = "capability_selected"

    target: str | None
    parent: str
    terms: Mapping[str, Any]


@dataclass(frozen=True)
class CasesSelected(Event):
    """The cases shown, in order; `weights` (Eq. 7) of all eligible ones in stage II, empty in stage I."""

    name: ClassVar[str] = "cases_selected"

    stage: str
    target: str | None
    parent: str
    tasks: Sequence[str]
    weights: Scores


@dataclass(frozen=True)
class Diagnosed(Event):
    """The designer's diagnosis of a parent."""

    name: ClassVar[str] = "diagnosed"

    parent: str
    text: str
    capability: str | None
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Revised(Event):
    """A reply of the coder, numbered from 0 within the iteration; `code` is the diff as given."""

    name: ClassVar[str] = "revised"

    parent: str
    attempt: int
    summary: str
    code: str
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Rejected(Event):
    """An attempt that came to nothing: why in a code, in words and in numbers.

    Codes: `declined`, `no_cases`, `reply:unusable`, `patch:*`, `validation:*`, `execution:*`, `gate:target`,
    `gate:train`, `gate:gain`, `gate:drop`.
    """

    name: ClassVar[str] = "rejected"

    attempt: int
    program: str | None
    reason: str
    message: str
    measures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Accepted(Event):
    """A program that is kept, with the numbers of its gate."""

    name: ClassVar[str] = "accepted"

    attempt: int
    program: str
    measures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SpecialistsChanged(Event):
    """Specialists by capability, best program and retained set, where they differ from before."""

    name: ClassVar[str] = "specialists_changed"

    specialists: Mapping[str, str]
    best: str
    retained: Sequence[str]


@dataclass(frozen=True)
class IntegrationPlanned(Event):
    """The plan of stage III: paired task of each specialist and the order in which they are brought in."""

    name: ClassVar[str] = "integration_planned"

    base: str
    pairs: Mapping[str, str]
    order: Sequence[str]
    text: str
    details: Mapping[str, Any]


@dataclass(frozen=True)
class IterationFinished(Event):
    """The end of an iteration; `program` is its last measured candidate, `gate` None in stage I.

    `train` and `valid` are the candidate's means where it was fully evaluated.
    """

    name: ClassVar[str] = "iteration_finished"
    checkpoint: ClassVar[bool] = True

    stage: str
    target: str | None
    parent: str | None
    program: str | None
    gate: bool | None
    retained: bool
    train: float | None
    valid: float | None
    specialists: Mapping[str, str]
    best: str | None


@dataclass(frozen=True)
class RunFinished(Event):
    """The result: `base` is the best program before integration.

    `routes` names the program of each capability where no program answers alone (strategy `router`); `final` then
    answers questions of no known capability.
    """

    name: ClassVar[str] = "run_finished"
    checkpoint: ClassVar[bool] = True

    final: str
    base: str
    reason: str
    routes: Mapping[str, str] = field(default_factory=dict)


_SCALARS = frozenset((float, int, str, bool, type(None)))

EVENTS: dict[str, type[Event]] = {
    kind.name: kind
    for kind in (
        TasksAnnotated,
        RunStarted,
        ProgramAdded,
        Evaluated,
        CapabilitySelected,
        CasesSelected,
        Diagnosed,
        Revised,
        Rejected,
        Accepted,
        SpecialistsChanged,
        IntegrationPlanned,
        IterationFinished,
        RunFinished,
    )
}


def event_from_json(value: Mapping[str, Any]) -> Event:
    """The event of a journal line (`time` and `index` ignored); RunError for an unknown kind or a missing field."""
    kind = EVENTS.get(value.get("event", ""))
    if kind is None:
        raise RunError(f"unknown event {value.get('event')!r}; known: {', '.join(EVENTS)}")
    known = {f.name: value[f.name] for f in dataclasses.fields(kind) if f.name in value}
    for f in dataclasses.fields(kind):
        if f.name not in known and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise RunError(f"event {kind.name!r} lacks its field {f.name!r}")
    return kind(**known)


def event_round_trip(event: Event) -> Event:
    """The event as a reader of the journal gets it; TypeError or ValueError where a field is no plain JSON."""
    return event_from_json(json.loads(canonical_json(event.to_json()).decode("utf-8", "surrogatepass")))


def _plain(value: Any) -> Any:
    """JSON containers of a value: mappings to dict, other sequences to list, string enums to their text."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
