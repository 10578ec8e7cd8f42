"""The execution cache against other caches and key-value stores: speed, disk, memory, and what a kill leaves."""

from __future__ import annotations

from collections.abc import Sequence

from ..contest import Job
from . import beside_writer, million, rows, values

JOBS: Sequence[Job] = (*rows.JOBS, *values.JOBS, *beside_writer.JOBS, *million.JOBS)
