"""The design of a catalogue program as a value: what its unit holds, how it ranks, what its instructions ask for.

`render` turns a design into source, `detect` reads it back; an edit of the catalogue is a function from design to
design. Features that other features make meaningless (a fusion without two rankings, neighbours without any ranking)
are set back by `canonical`, so that one source belongs to one design.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from prismem_core.evolution.catalog.clauses import ANSWER

Granularity = Literal["turn", "sentence", "exchange"]
Passages = Literal["medium", "short", "long"]
Lexical = Literal["none", "plain", "stemmed"]
Fusion = Literal["zscore", "reciprocal", "best"]
Neighbours = Literal["none", "first", "all"]
Diversity = Literal["none", "mmr", "sessions"]
Order = Literal["rank", "time"]
SubQueries = Literal["none", "max", "mean"]


@dataclass(frozen=True)
class Features:
    """One design; the defaults are the seed program.

    `answer` holds names of clauses of the answer instruction in catalogue order (`clauses.ANSWER`), `cap` the largest
    number of units retrieved (0: as many as fit), `floor` the number of standard deviations above the mean score a
    unit needs (None: no floor).
    """

    granularity: Granularity = "turn"
    passages: Passages = "medium"
    user_only: bool = False
    dates: bool = False
    event_dates: bool = False
    anonymous: bool = False
    topics: bool = False
    standing: bool = False
    outline: bool = False
    lexical: Lexical = "none"
    dense: bool = False
    window: bool = False
    fusion: Fusion = "zscore"
    dense_weight: float = 0.5
    smoothing: bool = False
    neighbours: Neighbours = "none"
    diversity: Diversity = "none"
    floor: float | None = None
    cap: int = 0
    order: Order = "rank"
    recency: bool = False
    sub_queries: SubQueries = "none"
    keywords: bool = False
    people: bool = False
    time_hint: bool = False
    negation: bool = False
    advice: bool = False
    answer: tuple[str, ...] = ()

    @property
    def ranked(self) -> bool:
        """Whether units are ranked against the query at all."""
        return self.dense or self.lexical != "none"

    @property
    def hybrid(self) -> bool:
        """Whether two rankings are fused."""
        return self.dense and self.lexical != "none"

    @property
    def in_context(self) -> bool:
        """Whether a unit is found or shown by what stands beside it."""
        beside = self.smoothing or self.window or self.neighbours != "none"
        return beside or self.granularity == "exchange"

    @property
    def varied(self) -> bool:
        """Whether hits are spread over different texts, sessions or parts of the question."""
        return self.diversity != "none" or self.sub_queries != "none"

    def changes(self, other: Features) -> dict[str, Any]:
        """The values of `other` in the fields where it differs from this design."""
        return {f.name: getattr(other, f.name) for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)}

    def having(self, changes: Mapping[str, Any]) -> Features:
        """This design with some fields set, in canonical form."""
        return canonical(replace(self, **changes))


SEED = Features()

# Features that say how a query finds units; without a ranking there is nothing for them to act on.
RANKING = (
    "smoothing", "neighbours", "diversity", "floor", "cap", "order", "recency", "sub_queries", "keywords", "people",
    "time_hint", "negation", "advice", "topics", "window", "standing",
)  # fmt: skip


def canonical(features: Features) -> Features:
    """The design without features that other features leave no room for; idempotent."""
    reset: list[str] = []
    if not features.ranked:
        reset += RANKING
    if not features.hybrid:
        reset += ["fusion", "dense_weight"]
    elif features.fusion != "zscore":
        reset.append("dense_weight")
    if not features.dense:
        reset.append("window")
        if features.diversity == "mmr":
            reset.append("diversity")
    if features.lexical == "none":
        reset.append("keywords")
    if not features.dates:
        reset += ["time_hint", "event_dates"]
    if not features.standing:
        reset.append("advice")
    clean = replace(features, **{name: getattr(SEED, name) for name in reset})
    return replace(clean, answer=tuple(name for name in ANSWER if name in clean.answer))
