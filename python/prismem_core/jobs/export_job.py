"""Export: the program a run ended with, as one file with its manifest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prismem_core.digests import digest
from prismem_core.errors import RunError, SettingsError
from prismem_core.jobs.running_settings import running_settings
from prismem_core.jobs.settings import build_job_settings
from prismem_core.jobs.whole_file import whole_file
from prismem_core.program.interface import OUT_CHAR_BUDGET
from prismem_core.program.manifest import with_manifest
from prismem_core.program.syntax import MAX_BYTES
from prismem_core.runs.events import ProgramAdded, RunFinished
from prismem_core.runs.report.contents import contents
from prismem_core.runs.run import RunRecord, read_run

_URL = re.compile(r"@https?://[^#\s]+")
_MEASURES = ("questions", "scored", "left_out", "score", "overall", "official", "official_overall", "recall", "over")


def export_program(
    directory: Path, output: Path | None = None, program: str | None = None, *, force: bool = False
) -> Path:
    """Write the result of a run, or `program` of it, to `output`; returns the path.

    By default that is `RUN-PROGRAM.py` in the working directory. The bytes depend on the run alone. Raises RunError for
    a run that has no result yet, that ended with a program a capability (name one), or that lacks `program`;
    SettingsError where `output` is there already (unless `force`) or cannot be written.
    """
    record = read_run(directory)
    program = _chosen(record, program)
    text = exported(record, program)
    path = Path(f"{directory.absolute().name}-{program}.py") if output is None else output
    if path.is_dir():
        raise SettingsError(f"{path} is a folder; name the file to write")
    try:
        with whole_file(path, replace=force) as file:
            file.write(text.encode("utf-8", "surrogatepass"))
    except FileExistsError:
        raise SettingsError(f"{path} is there already; name another file, or say --force to replace it") from None
    except OSError as error:
        raise SettingsError(
            f"cannot write {path}: {error.strerror}; give a file in a folder you may write to"
        ) from None
    return path


def exported(record: RunRecord, program: str) -> str:
    """The text of the file: the source of `program` below its manifest."""
    added = {event.program: event for event in record.events if isinstance(event, ProgramAdded)}
    manifest = record.manifest
    try:
        job = build_job_settings(manifest.extra["job"])
    except (KeyError, SettingsError) as error:
        raise RunError(
            f"{record.directory}: its settings cannot be read ({error}); export it with prismem-core {manifest.version}"
        ) from None
    report = contents(record, None).data
    values: dict[str, Any] = {
        "program": program,
        "prismem_core": manifest.version,
        "run": {
            "name": record.directory.absolute().name,
            "digest": digest("run", [event.to_json() for event in record.events]),
            "strategy": report["strategy"],
            "designer": report["designer"],
            "seed": manifest.settings.get("seed"),
            "data": {key: manifest.data.get(key) for key in ("name", "digest")},
            "finished": report["finished"],
            "result": report["final"],
            "isolation": {key: report["isolation"][key] for key in ("tier", "unsafe")},
        },
        "lineage": _lineage(added, program),
        "roles": {role: _URL.sub("", identity) for role, identity in manifest.roles.items()},
        "settings": running_settings(job),
        "limits": {**asdict(job.pipeline().limits), "out_chars": OUT_CHAR_BUDGET},
        "scored_by": _URL.sub("", str(manifest.extra.get("scoring", ""))),
        "scores": {part: _measured(own.get(program)) for part, own in report["scores"].items()},
    }
    text = with_manifest(added[program].source, values)
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        # A program may be as long as programs may be: then its history says less.
        short = [{key: one[key] for key in ("program", "digest")} for one in values["lineage"]]
        text = with_manifest(added[program].source, {**values, "lineage": short, "lineage_shortened": True})
    return text


def _chosen(record: RunRecord, program: str | None) -> str:
    known = [event.program for event in record.events if isinstance(event, ProgramAdded)]
    if program is not None:
        if program not in known:
            has = ", ".join(known) or "none yet"
            raise RunError(f"{record.directory} has no program {program!r}; it has: {has}")
        return program
    finished = next((event for event in record.events if isinstance(event, RunFinished)), None)
    if finished is None:
        best = contents(record, None).data["best"]
        so_far = f"; the best so far is had with --program {best}" if best in known else ""
        raise RunError(f"{record.directory} has no result yet: go on with `prismem resume {record.directory}`{so_far}")
    if finished.routes:
        routes = ", ".join(f"{capability}: {own}" for capability, own in finished.routes.items())
        raise RunError(
            f"{record.directory} ended with a program for each capability and none for all ({routes}); name the one to "
            f"export, such as --program {finished.final}, which answers questions of no known capability"
        )
    return finished.final


def _lineage(added: Mapping[str, ProgramAdded], program: str) -> list[dict[str, Any]]:
    """From the start of the run to `program`."""
    line: list[dict[str, Any]] = []
    name: str | None = program
    while name is not None and name in added:
        event = added[name]
        line.append(
            {
                "program": name,
                "iteration": event.iteration,
                "digest": event.digest,
                "components": list(event.components),
                "summary": event.summary,
            }
        )
        name = event.parent
    return line[::-1]


def _measured(means: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What was measured on a part, None where nothing was: counts, means, and those of each capability."""
    if means is None:
        return None
    capabilities = {c: _measured(own) for c, own in means.get("capabilities", {}).items()}
    kept = {key: means[key] for key in _MEASURES if key in means}
    return {**kept, "capabilities": capabilities} if capabilities else kept
