"""The whole of Algorithm 1 with a designer behind a server that does everything wrong at least once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.evolution.settings import EvolutionSettings
from tests.scripted_server.fixture import ScriptedServer

OUTAGE_SECONDS = 30.0


def coder(**do: Any) -> dict[str, Any]:
    """The next reply to a coder."""
    return {"purpose": "code", "times": 1, "do": do}


def patch(code: str) -> dict[str, Any]:
    return coder(text=json.dumps({"summary": "a try", "code": code}))


# One line an iteration of the cold start. What is no JSON, cut or empty is asked for again twice (output_retries); then
# it is an attempt, as is a diff that comes to nothing, of which an iteration has three (repair_attempts).
COLD_START = [
    coder(shape="prose"), coder(edits=["stem-ranking", "date-lines"]),
    patch("@@\n-def nothing_like_it():\n+def other():\n"), coder(edits=["decline-unknown-person"]),
    patch("@@\n class Memory:\n"), coder(shape="half"), coder(edits=["list-answers"]),
    coder(hang="head"), coder(status=500), coder(close="body"), coder(edits=["two-rankings"]),
    coder(shape="empty"), coder(text="I would rank by words."), coder(shape="only_reasoning"),
    patch("@@\n class Memory:\n+    import os\n"), patch("   "),
]  # fmt: skip
REASONS = {
    2: ["patch:context_not_found"],
    3: ["patch:noop"],
    5: ["reply:unusable", "validation:forbidden_import", "patch:empty_diff"],
}
LATER = ("people", "few-units", "smoothed-scores", "yes-or-no", "sub-queries", "keywords", "variety")


def evolve(server: ScriptedServer, directory: Path) -> None:
    from prismem_core.jobs.evolution_job import EvolutionJob, start_run, start_source
    from prismem_core.jobs.settings import build_job_settings

    patient = {"timeout_seconds": 3.0, "deadline_seconds": 300.0, "retries": 30}
    job = build_job_settings(
        {
            "designer": server.model("designer"),
            "embedder": "hashing",
            "reranker": False,
            "models": {"reflection": patient, "coding": patient},
        }
    )
    start_run(directory, EvolutionJob("sample", None, job, EvolutionSettings(), start_source(None)), SilentObserver())


def test_twenty_iterations_survive_every_fault_of_a_designer(scripted_server: ScriptedServer, tmp_path: Path) -> None:
    pytest.importorskip("openai")
    later = [coder(edits=[name]) for name in LATER]
    # The reflection model, too, is away for a moment, talks around its object and stops in the middle.
    reflection = [
        {"purpose": "reflect", "times": 1, "skip": n, "do": {"shape": s}} for n, s in ((1, "think"), (3, "half"))
    ]
    scripted_server.play(
        *COLD_START,
        *later,
        *reflection,
        {"purpose": "code", "do": {"edits": ["told-in-order", "both-sides"]}},
        outage={"seconds": OUTAGE_SECONDS, "after": 30},
    )
    directory = tmp_path / "run"
    evolve(scripted_server, directory)

    lines = (directory / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    finished = [e for e in events if e["event"] == "iteration_finished"]
    assert [e["iteration"] for e in finished] == list(range(21))
    assert events[-1]["event"] == "evaluated" and any(e["event"] == "run_finished" for e in events)
    rejected = [(e["iteration"], e["reason"]) for e in events if e["event"] == "rejected" and e["iteration"] <= 5]
    assert rejected == [(number, reason) for number, reasons in REASONS.items() for reason in reasons]
    assert [e["retained"] for e in finished[1:6]] == [True, True, True, True, False]

    # Every iteration accounts for its case: a candidate that was kept or not, with the reason, or none at all.
    ended = {e["iteration"] for e in events if e["event"] in ("accepted", "rejected")}
    assert ended == {e["iteration"] for e in finished}
    attempts = [e for e in events if e["event"] == "revised"]
    outcomes = Counter((e["iteration"], e["attempt"]) for e in events if e["event"] in ("accepted", "rejected"))
    assert all(outcomes[e["iteration"], e["attempt"]] == 1 for e in attempts)

    # Every reply that arrived whole is in the ledger once, and the outage was real.
    log = scripted_server.log
    calls = [json.loads(line) for line in (directory / "calls.jsonl").read_text(encoding="utf-8").splitlines()]
    designers = [c for c in calls if c["role"] in ("reflection", "coding")]
    totals = scripted_server.totals
    assert sum(c["input_tokens"] for c in designers) == totals["delivered_prompt_tokens"]
    assert sum(c["output_tokens"] for c in designers) == totals["delivered_completion_tokens"]
    away = [e["at"] for e in log if e.get("status") == 503]
    assert len(away) >= 3
    assert max(away) - min(away) > OUTAGE_SECONDS / 2
