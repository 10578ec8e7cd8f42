"""The jobs, one file an op."""

from __future__ import annotations

from .. import cache, sandbox
from ..contest import Job
from . import (
    import_cost,
    lexical_index,
    mmr_select,
    segment_max_similarity,
    similarity,
    token_overlap,
    top_k,
    vector_index,
)

_OPS = (
    top_k,
    mmr_select,
    segment_max_similarity,
    similarity,
    token_overlap,
    vector_index,
    lexical_index,
    cache,
    sandbox,
    import_cost,
)

JOBS: dict[str, Job] = {job.name: job for op in _OPS for job in op.JOBS}
"""Every job by its name, in the order in which they run."""
