"""How much a piece of text bears on a case: its question, its evidence and what was answered (spec 5.3).

In float64 throughout: choices are made at nine decimals, more than the float32 scores of the op `similarity` hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.tasks.text import content_stems

Float64 = NDArray[np.float64]

SIMILARITY_WEIGHT = 0.75
DICE_WEIGHT = 0.25
PREDICTION_WEIGHT = 0.5


@dataclass(frozen=True)
class Cues:
    """What the texts of a case are held against: question with reference answer, distinct evidence, prediction."""

    question: str
    answer: str
    evidence: tuple[str, ...] = ()
    prediction: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """Question and answer as one cue, then the snippets, then the prediction unless it is blank."""
        predicted = (self.prediction,) if self.prediction.strip() else ()
        return (f"{self.question}\n{self.answer}", *self.evidence, *predicted)

    @property
    def weights(self) -> Float64:
        """The weight of each of `texts`: 1, 1 in total for the evidence, 0.5."""
        snippets = [1 / len(self.evidence) for _ in self.evidence]
        return np.asarray([1.0, *snippets, *[PREDICTION_WEIGHT] * (len(self.texts) - 1 - len(snippets))])


def cosines(rows: Any, others: Any) -> Float64:
    """Cosines (m, n) of rows (m, d) and (n, d) in float64; a zero row has cosine 0 with everything."""
    # A product by BLAS may add in another order for other sizes and numbers of threads.
    found: Float64 = np.einsum("id,jd->ij", _directions(rows), _directions(others))
    return found


def _directions(rows: Any) -> Float64:
    wide = np.asarray(rows, np.float64)
    norms = np.sqrt(np.einsum("id,id->i", wide, wide))[:, None]
    directions: Float64 = np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0)
    return directions


def relevance(texts: Sequence[str], rows: Any, cues: Sequence[str], cue_rows: Any) -> Float64:
    """0.75 clip(cosine, 0, 1) + 0.25 dice of each text with each cue, (m, k) in [0, 1]; `rows` are their embeddings."""
    if not len(texts):
        return np.zeros((0, len(cues)))
    stems = [set(content_stems(cue)) for cue in cues]
    shared = np.empty((len(texts), len(cues)))
    for i, text in enumerate(texts):
        own = set(content_stems(text))
        for k, other in enumerate(stems):
            shared[i, k] = 2 * len(own & other) / (len(own) + len(other)) if own or other else 0.0
    return SIMILARITY_WEIGHT * np.clip(cosines(rows, cue_rows), 0.0, 1.0) + DICE_WEIGHT * shared
