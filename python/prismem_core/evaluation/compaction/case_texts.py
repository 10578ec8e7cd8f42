"""The long texts of the cases of one prompt, embedded together and cut to whatever budget the prompt leaves them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays import foreign
from prismem_core.evaluation.cases import Case, EvidenceView
from prismem_core.evaluation.compaction.relevance import Cues, Float64, cosines, relevance
from prismem_core.evaluation.compaction.selection import excerpt, select_units
from prismem_core.evaluation.compaction.spans import Span, spans_of
from prismem_core.roles.protocols import Embedder

# Changes with what is shown of a text, so that a designer's identity tells.
VERSION = "compaction/1"


class CaseTexts:
    """Excerpts of the texts of `cases`, all spans, cues and units of which are embedded in one call.

    The call is made when the first text is met that is longer than its budget, or the first units. Where the same cases
    are then shown with smaller budgets, the texts that were short enough before are embedded in one more. A RoleError
    of the embedder passes through.
    """

    def __init__(self, embedder: Embedder, cases: Sequence[Case]) -> None:
        self._embedder = embedder
        self._cases = tuple(cases)
        self._budget: int | None = None
        self._rows: dict[str, NDArray[np.float32]] = {}
        self._spans: dict[str, list[Span]] = {}
        self._relevance: dict[tuple[tuple[str, ...], Cues], Float64] = {}

    def excerpt(self, case: Case, text: str, budget: int) -> str:
        """One of the case's texts (original, retrieved) within `budget` characters; unchanged where it fits."""
        if len(text) <= budget:
            return text
        self._embed(budget)
        cues, spans = cues_of(case), self._spans_of(text)
        return excerpt(text, spans, self._relevant([s.text for s in spans], cues), cues.weights, budget).text

    def units(self, case: Case, position: int, budget: int) -> list[str]:
        """The units shown of the evidence at `position`: whole, distinct, in their order.

        The one most like each snippet of that source is among them, however long.
        """
        own = case.evidence[position]
        if not own.extracted_as:
            return []
        self._embed(budget)
        cues, units = cues_of(case), own.extracted_as
        snippets = [view.snippet for view in case.evidence if _same_source(view, own)]
        likeness = cosines(self._matrix(units), self._matrix(snippets))
        return [units[i] for i in select_units(units, self._relevant(units, cues), cues.weights, likeness, budget)]

    def _relevant(self, texts: Sequence[str], cues: Cues) -> Float64:
        key = tuple(texts), cues
        known = self._relevance.get(key)
        if known is None:
            rows, cue_rows = self._matrix(texts), self._matrix(cues.texts)
            known = self._relevance[key] = relevance(texts, rows, cues.texts, cue_rows)
        return known

    def _matrix(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([self._rows[text] for text in texts]) if texts else np.zeros((0, 1), np.float32)

    def _spans_of(self, text: str) -> list[Span]:
        known = self._spans.get(text)
        if known is None:
            known = self._spans[text] = spans_of(text)
        return known

    def _embed(self, budget: int) -> None:
        if self._budget is not None and self._budget <= budget:
            return
        # A prompt that has to be shorter may have to be shorter still: then all texts are embedded, in one call again.
        self._budget = budget if self._budget is None else 0
        wanted = dict.fromkeys(text for case in self._cases for text in self._needed(case, self._budget))
        missing = [text for text in wanted if text not in self._rows]
        if missing:
            self._rows.update(zip(missing, foreign.to_host(self._embedder.embed(missing)), strict=True))

    def _needed(self, case: Case, budget: int) -> Iterator[str]:
        """What has to be embedded to show a case."""
        long = [text for text in texts_of(case) if len(text) > budget]
        if not long and not any(view.extracted_as for view in case.evidence):
            return
        yield from cues_of(case).texts
        for text in long:
            yield from (span.text for span in self._spans_of(text))
        for view in case.evidence:
            yield view.snippet
            yield from view.extracted_as


def cues_of(case: Case) -> Cues:
    """What the texts of a case are held against."""
    return Cues(case.question, case.reference, tuple(view.snippet for view in case.evidence), case.predicted)


def texts_of(case: Case) -> list[str]:
    """The texts of a case that are cut to a budget: what was retrieved, and the distinct sources of its evidence."""
    return list(dict.fromkeys([case.retrieved_text, *(view.original_text for view in case.evidence)]))


def _same_source(one: EvidenceView, other: EvidenceView) -> bool:
    return (one.original_text, one.extracted_as) == (other.original_text, other.extracted_as)
