"""Which tables a report has, in reading order, once for both faces."""

from __future__ import annotations

from collections.abc import Sequence

from prismem_core.runs.report.annotation import annotation_tables
from prismem_core.runs.report.contents import Contents
from prismem_core.runs.report.routing import routing_tables
from prismem_core.runs.report.tables import (
    Table,
    call_table,
    launch_table,
    lineage_table,
    model_table,
    rejection_table,
    reuse_table,
    score_tables,
)


def all_tables(report: Contents) -> Sequence[Table]:
    """Every table of the report."""
    found = [
        call_table(report),
        model_table(report.data["models"] or {}),
        reuse_table(report),
        launch_table(report),
        rejection_table(report),
    ]
    more = [table for table in found if table is not None]
    return [*score_tables(report), *routing_tables(report), *more, *annotation_tables(report), lineage_table(report)]


def short_tables(report: Contents) -> Sequence[Table]:
    """What a run prints at its end: scores and calls."""
    return [*score_tables(report), *routing_tables(report), call_table(report)]
