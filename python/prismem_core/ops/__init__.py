"""Ranking ops over rows of vectors: one contract each, several implementations, chosen by where the arrays live.

Arrays are of numpy, torch, cupy or, on a GPU, of anything that speaks DLPack; results come back in the library of the
inputs. `explain` tells which implementation would run, `use` forces one, as do PRISMEM_BACKEND (reference, cpu, triton,
cuda), PRISMEM_ISA (portable, avx2, avx512) and PRISMEM_THREADS.
"""

from typing import Any

from prismem_core.ops.encoded import EncodedRows, encode
from prismem_core.ops.mmr_select import MMR_SELECT, MmrSelection, mmr_select
from prismem_core.ops.mmr_select_from import MMR_SELECT_FROM, mmr_select_from
from prismem_core.ops.registry import IMPLEMENTATIONS, Choice, Op, backends, choose, explain, instruction_sets, use
from prismem_core.ops.segment_max_similarity import SEGMENT_MAX_SIMILARITY, SegmentMax, segment_max_similarity
from prismem_core.ops.segment_mean import SEGMENT_MEAN, segment_mean
from prismem_core.ops.segments import Segments
from prismem_core.ops.similarity import SIMILARITY, similarity
from prismem_core.ops.token_overlap import TOKEN_OVERLAP, token_overlap
from prismem_core.ops.top_k import TOP_K, TopK, top_k

OPS: dict[str, Op[Any, Any]] = {
    op.name: op
    for op in (SIMILARITY, TOP_K, MMR_SELECT, MMR_SELECT_FROM, SEGMENT_MAX_SIMILARITY, SEGMENT_MEAN, TOKEN_OVERLAP)
}
"""Every op by its name."""

__all__ = [
    "IMPLEMENTATIONS",
    "OPS",
    "Choice",
    "EncodedRows",
    "MmrSelection",
    "Op",
    "SegmentMax",
    "Segments",
    "TopK",
    "backends",
    "choose",
    "encode",
    "explain",
    "instruction_sets",
    "mmr_select",
    "mmr_select_from",
    "segment_max_similarity",
    "segment_mean",
    "similarity",
    "token_overlap",
    "top_k",
    "use",
]
