"""The header of a report: all that a published number must carry, each fact once for every face."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prismem_core.runs.isolation import isolation_from_json, weakest
from prismem_core.runs.report.contents import Contents
from prismem_core.tasks.datasets.summary import note_lines

CHECKED = "reused memories built again to compare"
NEVER_CHANGE_A_RESULT = frozenset(
    {
        "workers",
        "copies",
        "frozen_mib",
        "device",
        "cache_mib",
        "cache_bytes",
        "verify_reuse",
        "reuse",
        "record",
        "replay",
        "budget",
        "sandbox_require",
    }
)
"""Settings of a job that decide how fast, how costly or how safe it is, and nothing of what comes out."""


def facts(report: Contents) -> list[tuple[str, str]]:
    """Name and value of each fact in reading order; a name may come twice. There is no time and no path among them."""
    data = report.data
    job = data["job"]
    made = job.get("provenance", {})
    state = f"finished with {report.final}" if data["finished"] else f"not finished; best so far {report.best}"
    started = data["settings"]
    return [
        ("state", state),
        ("strategy", f"{data['strategy']}, seed {started.get('seed')}, designer {data['designer']}"),
        ("data", f"{data['data'].get('name', '?')} (SHA-256 {data['data'].get('digest', '?')})"),
        *(("data", line) for line in note_lines(data["data"].get("notes", {}))),
        ("questions", ", ".join(f"{part} {count}" for part, count in job.get("split", {}).items())),
        ("category map", made.get("category_map", "not recorded")),
        ("selection score", str(job.get("scoring") or job["job"]["score"])),
        *([("judge prompts", f"version {made['judge_prompts']}")] if made.get("judge_prompts") else []),
        ("interface", str(job["job"].get("interface", "paper"))),
        *data["roles"].items(),
        # How questions are routed matters to one strategy alone.
        (
            "evolution",
            given_values(started, {"strategy", "seed"} | ({"router"} if data["strategy"] != "router" else set())),
        ),
        ("job", given_values(job["job"], NEVER_CHANGE_A_RESULT | {"models", "score", "interface"})),
        *(
            (f"settings of {role}", given_values(table, {"model"}))
            for role, table in job["job"].get("models", {}).items()
            if given_values(table, {"model"})
        ),
        ("prismem-core", code_words(data["version"], made)),
        ("spread", "one run: `prismem report` of runs with other seeds shows the spread over seeds"),
        ("isolation", f"{isolation_from_json(data['isolation']).words()} (docs/security.md)"),
        *_checked(data["reuse_check"]),
    ]


def seed_facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The facts that several runs share, with their seeds in place of the one and the weakest of what confined them."""
    first = Contents(report["header"])
    seeds = ", ".join(str(row["seed"]) for row in report["runs"])
    own = {
        "strategy": f"{first.data['strategy']}, seeds {seeds}, designer {first.data['designer']}",
        "prismem-core": "; ".join(dict.fromkeys(code_words(first.data["version"], made) for made in report["code"])),
        "spread": f"{len(report['runs'])} runs",
        "isolation": f"{weakest([isolation_from_json(i) for i in report['isolation']]).words()} (docs/security.md)",
    }
    return [(name, own.get(name, value)) for name, value in facts(first) if name not in ("state", CHECKED)]


def given_values(table: Mapping[str, Any], left_out: frozenset[str] | set[str]) -> str:
    """The settings of a table that have a value."""
    given = {key: value for key, value in table.items() if key not in left_out and value not in (None, {}, [])}
    return ", ".join(
        f"{key} {str(value).lower() if isinstance(value, bool) else value}" for key, value in given.items()
    )


def code_words(version: str, made: Mapping[str, Any]) -> str:
    """Version, commit and digest of the code that made a number."""
    known = {"commit": made.get("commit"), "code": made.get("code"), "Python": made.get("python")}
    return ", ".join([version, *(f"{name} {value}" for name, value in known.items() if value)])


def _checked(counts: Mapping[str, int] | None) -> list[tuple[str, str]]:
    if counts is None:
        return []
    compared = (
        f"{counts['memories']:,}; of {counts['texts']:,} texts retrieved from them {counts['differing']:,} differed"
    )
    return [(CHECKED, compared)]
