"""Reports of a run directory: loaded from what the run wrote, written as report.md."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from prismem_core.errors import RunError
from prismem_core.evaluation.carry_over import carry_over, router_gains
from prismem_core.jobs.evolution_job import LEDGER
from prismem_core.jobs.model_tables import build_models
from prismem_core.jobs.models import prices
from prismem_core.jobs.reuse_account import reuse_account
from prismem_core.jobs.reuse_checks import read_reuse_checks
from prismem_core.roles.budget import Price
from prismem_core.roles.ledger import Ledger
from prismem_core.runs.events import ROUTER, Evaluated
from prismem_core.runs.report.contents import Contents, contents, shown, task_scores
from prismem_core.runs.report.markdown import markdown
from prismem_core.runs.run import Manifest, RunRecord, read_run

REPORT = "report.md"


def load_report(directory: Path, *, intervals: bool = True) -> Contents:
    """The report of a run, finished or not; raises RunError where there is none or it is damaged.

    `intervals` are those of the scores; they need the extra `statistics`, without which there are none.
    """
    record = read_run(directory)
    ledger = read_ledger(record)
    checks = read_reuse_checks(directory)
    counts = None if checks is None else checks.to_dict()
    scores, (start, base, result) = task_scores(record), shown(record)
    carried = carry_over(scores, start, base, result, intervals=intervals)
    if ROUTER in scores["test"]:
        carried["router"] = router_gains(scores, ROUTER, start, result, intervals=intervals)
    return contents(record, ledger, reuse_account(record, ledger), counts, _prices(record.manifest), carried)


def read_ledger(record: RunRecord) -> Ledger | None:
    """The calls that a run has made; None where something was measured and the file is gone, so nobody knows."""
    path = record.directory / LEDGER
    if not path.exists() and any(isinstance(event, Evaluated) for event in record.events):
        return None
    return Ledger(path, read_only=True)


def _prices(manifest: Manifest) -> dict[str, Price]:
    return prices(build_models(manifest.extra.get("job", {}).get("models", {})))


def write_markdown(directory: Path, report: Contents) -> Path:
    """Write report.md into the run directory, whole or not at all; returns its path."""
    path = directory / REPORT
    temporary = path.with_suffix(".md.tmp")
    try:
        temporary.write_text(markdown(report), encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise RunError(
            f"cannot write {path}: {error.strerror}; the run itself is whole (--json and --markdown write no file)"
        ) from error
    return path
