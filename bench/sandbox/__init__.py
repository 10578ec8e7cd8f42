"""What confining memory programs costs: processes, orders, copies, embeddings, whole probes, and the static check."""

from __future__ import annotations

from collections.abc import Sequence

from ..contest import Job
from . import attach, probe, retrieve, round_trip, rows, start, static_check

JOBS: Sequence[Job] = (
    *start.JOBS,
    *round_trip.JOBS,
    *retrieve.JOBS,
    *attach.JOBS,
    *rows.JOBS,
    *probe.JOBS,
    *static_check.JOBS,
)
