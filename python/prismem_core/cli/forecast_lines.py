"""A forecast on the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from prismem_core.jobs.forecast.budgets import Reach
    from prismem_core.jobs.forecast.forecast import Forecast


def show_forecast(forecast: Forecast, found: list[Reach], console: Console) -> None:
    """Its tables and what the budget allows; a warning goes to standard error."""
    from prismem_core.jobs.forecast.budgets import sentence, warning
    from prismem_core.jobs.forecast.words import forecast_tables
    from prismem_core.runs.report.terminal import draw

    for table in forecast_tables(forecast):
        console.print(draw(table, console.width))
    reach, warned = sentence(found), warning(found)
    if reach:
        console.print(reach, highlight=False, markup=False, soft_wrap=True)
    if warned:
        print(f"prismem: warning: {warned}", file=sys.stderr)
