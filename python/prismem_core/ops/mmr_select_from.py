"""mmr_select_from: the selection of `mmr_select` from relevance and similarities that the caller has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays import Place, common_place, plain, readable
from prismem_core.errors import ArgumentError
from prismem_core.ops import checks, inputs
from prismem_core.ops.mmr_select import MmrSelection, above, filled, greedy, padded, row_agrees
from prismem_core.ops.registry import Example, Op, Outcome, choose, run
from prismem_core.ops.segments import Integers, whole_numbers

TOLERANCE = {
    # Nothing is accumulated: one score in float64 from the given float32 numbers, rounded once to float32.
    "float32": 1e-7,
}


@dataclass(slots=True)
class MmrFromCall:
    """The checked arguments of a call, as `reference` and `launch` take them."""

    relevance: NDArray[np.float32]
    similarity: NDArray[np.float32]
    k: int
    relevance_weight: float
    min_relevance: float | None
    lengths: Integers | None
    place: Place

    @property
    def width(self) -> int:
        """Columns that hold the picks of every row."""
        return min(self.k, int(self.relevance.shape[1]))

    def length(self, row: int) -> int:
        """How many candidates a row has."""
        return int(self.relevance.shape[1] if self.lengths is None else self.lengths[row])

    def similarity_of(self, row: int) -> NDArray[np.float32]:
        """The matrix (n, n) of a row."""
        return self.similarity if self.similarity.ndim == 2 else self.similarity[row]


def mmr_select_from(
    relevance: Any,
    similarity: Any,
    k: int,
    *,
    relevance_weight: float,
    min_relevance: float | None = None,
    lengths: Sequence[int] | NDArray[Any] | None = None,
) -> MmrSelection:
    """Up to k diverse picks for each row of `relevance` (m, n) by `similarity` (n, n), or (m, n, n).

    Both are float32; similarity[i, j] compares candidate i with pick j. The rule, ties and results are those of
    `mmr_select`. NaN relevance is no candidate; a candidate with a NaN similarity to a pick is not picked any more.
    `lengths` (m,) makes the batch ragged: row i has its first lengths[i] candidates. For a single selection pass
    relevance[None, :]. Errors: ArgumentError, NoImplementation.
    """
    choice = choose("mmr_select_from", common_place(relevance=relevance, similarity=similarity))
    call = check(
        relevance, similarity, k, relevance_weight=relevance_weight, min_relevance=min_relevance, lengths=lengths
    )
    return run(MMR_SELECT_FROM, choice, call)


def check(
    relevance: Any,
    similarity: Any,
    k: int,
    *,
    relevance_weight: float,
    min_relevance: float | None = None,
    lengths: Sequence[int] | NDArray[Any] | None = None,
) -> MmrFromCall:
    """The checked call; ArgumentError names the argument at fault."""
    place = common_place(relevance=relevance, similarity=similarity)
    left = readable(plain(relevance, "relevance", ("float32",), (2,)))
    right = readable(plain(similarity, "similarity", ("float32",), (2, 3)))
    num_rows, count = left.shape
    if right.shape not in ((count, count), (num_rows, count, count)):
        raise ArgumentError(
            f"similarity: expected shape ({count}, {count}) or ({num_rows}, {count}, {count}) for relevance of shape "
            f"{left.shape}, got {right.shape}"
        )
    own_lengths = None
    if lengths is not None:
        own_lengths = whole_numbers(lengths, "lengths", 1)
        if own_lengths.shape != (num_rows,) or ((own_lengths < 0) | (own_lengths > count)).any():
            raise ArgumentError(
                f"lengths: expected {num_rows} numbers from 0 to {count}, got {own_lengths.tolist()[:8]}"
            )
    return MmrFromCall(
        left,
        right,
        checks.whole_number(k, "k"),
        checks.weight(relevance_weight, "relevance_weight"),
        checks.threshold(min_relevance, "min_relevance"),
        own_lengths,
        place,
    )


def reference(call: MmrFromCall) -> MmrSelection:
    """The definition."""
    found: list[tuple[list[int], list[float]]] = []
    for row in range(len(call.relevance)):
        own = call.relevance[row, : call.length(row)]
        candidates = np.flatnonzero(~np.isnan(own) & above(own, call.min_relevance))
        similarity = call.similarity_of(row).astype(np.float64)
        found.append(greedy(own.astype(np.float64), similarity, candidates, call.k, call.relevance_weight))
    return padded(found, call.width, call.place)


def launch(call: MmrFromCall, implementation: Callable[..., Outcome]) -> MmrSelection:
    """Let an implementation fill the picks."""

    def fill(*outputs: NDArray[Any]) -> Outcome:
        return implementation(
            call.relevance,
            call.similarity,
            call.lengths,
            call.width,
            call.relevance_weight,
            call.min_relevance,
            *outputs,
        )

    return filled(len(call.relevance), call.width, call.place, fill)[0]


def examples(rng: np.random.Generator) -> Iterator[Example]:
    """Shared and own matrices, ragged lengths, thresholds, duplicates, NaN and strides."""
    for position, size in enumerate(inputs.SIZES):
        vectors = inputs.unit_rows(rng, size, 12)
        relevance = inputs.unit_rows(rng, 3, 12) @ vectors.T
        weight, k = (0.5, 0.0, 1.0, 0.7)[position % 4], (0, 1, 4, 100)[position % 3 + 1]
        shared = {"relevance": relevance, "similarity": vectors @ vectors.T, "k": k, "relevance_weight": weight}
        yield Example(f"{size} k={k} weight={weight}", shared)
    matrices = np.stack([(v := inputs.unit_rows(rng, 20, 7)) @ v.T for _ in range(5)])
    relevance = rng.random((5, 20), np.float32)
    plain_call = {"relevance": relevance, "similarity": matrices, "k": 6, "relevance_weight": 0.4}
    yield Example("own matrices", plain_call)
    yield Example("ragged", {**plain_call, "lengths": [0, 20, 3, 1, 7]})
    yield Example("threshold", {**plain_call, "min_relevance": 0.5})
    holes = relevance.copy()
    holes[:, ::3] = np.nan
    yield Example("NaN", {**plain_call, "relevance": holes, "k": 20})
    repeated = rng.integers(0, 4, 20)
    yield Example("duplicates", {**plain_call, "similarity": matrices[:, repeated][:, :, repeated], "k": 20})
    for label, laid in inputs.layouts(relevance):
        yield Example(label, {**plain_call, "relevance": laid})
    for label, laid in inputs.layouts(matrices[0]):
        yield Example(f"{label} similarity", {**plain_call, "similarity": laid})
    yield Example("turned matrices", {**plain_call, "similarity": matrices[::-1].transpose(0, 2, 1)})
    yield Example("no rows", {**plain_call, "relevance": relevance[:0], "similarity": matrices[:0]})
    yield Example("no candidates", {**plain_call, "relevance": relevance[:, :0], "similarity": matrices[:, :0, :0]})


def agrees(actual: MmrSelection, call: MmrFromCall) -> str | None:
    """What differs from the definition, or None; picks with scores within the tolerance may stand for each other."""
    for row in range(len(call.relevance)):
        own = call.relevance[row, : call.length(row)].astype(np.float64)
        similarity = call.similarity_of(row).astype(np.float64)
        complaint = row_agrees(actual, row, own, similarity, np.ones(len(own), np.bool_), TOLERANCE["float32"], call)
        if complaint:
            return f"row {row}: {complaint}"
    return None


MMR_SELECT_FROM: Op[MmrFromCall, MmrSelection] = Op(
    "mmr_select_from", mmr_select_from, check, reference, launch, examples, agrees, TOLERANCE
)
