"""The adapters with the real packages, on a server that answers from a script.

`make check-adapters` runs them in an environment of their own; elsewhere they are skipped where a package is missing.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from prismem_core.errors import RoleError
from prismem_core.integrations import process
from prismem_core.integrations.systems import SYSTEMS, installed_version
from prismem_core.jobs.comparison_job import compare_systems
from prismem_core.jobs.settings import build_job_settings
from tests.integrations.talks import write_talks
from tests.scripted_server.fixture import ScriptedServer, scripted_server, server_process

__all__ = ["scripted_server", "server_process"]

# What tells the prompts apart: mem0's extraction, A-MEM's analysis of a note and its evolution.
EXTRACTION, ANALYSIS, EVOLUTION = "## New Messages", "Generate a structured analysis", "AI memory evolution agent"


@pytest.fixture(params=list(SYSTEMS))
def name(request: pytest.FixtureRequest) -> str:
    return needed(request.param)


def needed(name: str) -> str:
    if not installed_version(SYSTEMS[name].package):
        pytest.skip(f"{SYSTEMS[name].package} is not installed; make check-adapters has an environment with it")
    return name


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_talks(tmp_path / "talks.jsonl")


def play(server: ScriptedServer) -> None:
    """Replies as the two systems want them."""
    memories = [{"id": "0", "text": f"The painter paints lake number {n} in the rain"} for n in (1, 2, 3)]
    note = {"keywords": ["lake", "rain"], "context": "Painting lakes.", "tags": ["art"]}
    evolution = {
        "should_evolve": True,
        "actions": ["strengthen", "update_neighbor"],
        "suggested_connections": ["note-2"],
        "tags_to_update": ["linked"],
        "new_context_neighborhood": ["Painting lakes, again."],
        "new_tags_neighborhood": [["older"]],
    }
    server.play(
        *(
            {"contains": text, "do": {"text": json.dumps(reply)}}
            for text, reply in ((EXTRACTION, {"memory": memories}), (ANALYSIS, note), (EVOLUTION, evolution))
        )
    )


def compare(server: ScriptedServer, data: Path, name: str, cache: Path | None = None) -> dict[str, Any]:
    roles = {"chat": server.model("talker"), "embedder": server.model("rows")}
    models = {"task": {"retries": 0}, "embedding": {"retries": 0}}
    job = build_job_settings({**roles, "models": models, "workers": 2})
    return compare_systems([name], str(data), None, "all", job, cache)


def prompts(server: ScriptedServer, holding: str) -> list[str]:
    texts = [entry["body"]["messages"][-1]["content"] for entry in server.requests()]
    return [text for text in texts if holding in text]


def memories(server: ScriptedServer) -> list[str]:
    return [entry["body"]["messages"][-1]["content"] for entry in server.requests(purpose="answer")]


def test_all_questions_are_answered_and_all_tokens_counted(
    scripted_server: ScriptedServer, data: Path, name: str
) -> None:
    play(scripted_server)
    result = compare(scripted_server, data, name)
    entry = result["systems"][name]
    assert entry["summary"]["scored"] == 6
    assert result["failed"] == {}
    assert installed_version(SYSTEMS[name].package) in entry["identity"]
    total, counted = result["models"]["total"], scripted_server.totals
    assert (total["input_tokens"], total["output_tokens"]) == (counted["prompt_tokens"], counted["completion_tokens"])
    building = result["models"]["roles"]["chat"]["stages"]["ask"]
    assert building == entry["building"]
    assert entry["embedded_texts"] > 0
    models = {entry["model"] for entry in scripted_server.log}
    assert models == {"talker", "rows"}


def test_nobody_is_told_and_nothing_is_left(
    scripted_server: ScriptedServer, data: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    home.mkdir()
    temporary.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.chdir(temporary)
    play(scripted_server)
    result = compare(scripted_server, data, name)
    assert result["systems"][name]["refused_contacts"] == []
    assert list(home.iterdir()) == list(temporary.iterdir()) == []


def test_the_guard_would_have_seen_the_telemetry_of_mem0(
    scripted_server: ScriptedServer, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed("mem0")
    play(scripted_server)
    monkeypatch.setattr(process, "ENVIRONMENT", {**process.ENVIRONMENT, "MEM0_TELEMETRY": "True"})
    result = compare(scripted_server, data, "mem0")
    assert any("posthog" in whom or "github" in whom for whom in result["systems"]["mem0"]["refused_contacts"])
    assert result["systems"]["mem0"]["summary"]["scored"] == 6


def test_a_repetition_makes_no_call(scripted_server: ScriptedServer, data: Path, name: str, tmp_path: Path) -> None:
    play(scripted_server)
    first = compare(scripted_server, data, name, tmp_path / "cache")
    scripted_server.clear()
    again = compare(scripted_server, data, name, tmp_path / "cache")
    assert scripted_server.totals["requests"] == 0
    assert again["systems"][name]["summary"] == first["systems"][name]["summary"]
    # Another question has the memory built anew: its prompts are those of before, so that nothing is paid twice.
    lines = data.read_text().splitlines()
    question = json.loads(lines[-1]) | {"id": "cleo/3", "question": "Who keeps bees, as cleo was told?"}
    data.write_text("\n".join([*lines, json.dumps(question)]) + "\n")
    more = compare(scripted_server, data, name, tmp_path / "cache")
    assert more["systems"][name]["summary"]["scored"] == 7
    assert len(memories(scripted_server)) == len(scripted_server.requests()) == 1


def test_a_provider_that_fails_is_not_swallowed(scripted_server: ScriptedServer, data: Path, name: str) -> None:
    scripted_server.play({"skip": 4, "do": {"status": 400, "error": "out of order"}})
    with pytest.raises(RoleError, match="400"):
        compare(scripted_server, data, name)


def test_replies_that_are_no_json_leave_a_poorer_memory(scripted_server: ScriptedServer, data: Path, name: str) -> None:
    scripted_server.play(
        *({"contains": text, "do": {"text": "I would rather not."}} for text in (EXTRACTION, ANALYSIS, EVOLUTION))
    )
    result = compare(scripted_server, data, name)
    # Each was asked for three times, and that is the system's lot, not the provider's fault.
    asked = prompts(scripted_server, EXTRACTION if name == "mem0" else ANALYSIS)
    assert len(asked) == 3 * len({text.partition("\n\nYour previous reply")[0] for text in asked})
    assert result["systems"][name]["summary"]["scored"] == 6


def test_mem0_dates_what_it_reads_by_its_session(scripted_server: ScriptedServer, data: Path) -> None:
    needed("mem0")
    play(scripted_server)
    compare(scripted_server, data, "mem0")
    extractions = prompts(scripted_server, EXTRACTION)
    assert len(extractions) == 9
    assert all(
        "## Observation Date\n2024-03-0" in text and "## Current Date\n2024-03-0" in text for text in extractions
    )
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    assert not any(today in text for text in extractions)
    assert any("user: max: Max keeps 1 bees, said to ada" in text for text in extractions)
    # The later sessions are shown what is remembered of the earlier ones.
    assert any('"text": "The painter paints lake number 1 in the rain"' in text for text in extractions)
    for text in memories(scripted_server):
        assert "[2024-03-01 10:00] The painter paints lake number 1 in the rain" in text


def test_a_mem_links_its_notes(scripted_server: ScriptedServer, data: Path) -> None:
    needed("a-mem")
    play(scripted_server)
    compare(scripted_server, data, "a-mem")
    assert len(prompts(scripted_server, ANALYSIS)) == 18
    evolutions = prompts(scripted_server, EVOLUTION)
    # The first note of a history has no neighbour.
    assert len(evolutions) == 3 * 5
    assert any("memory_id:note-1\ttalk start time:2024-03-01 10:00" in text for text in evolutions)
    for text in memories(scripted_server):
        assert "memory content: max: Max keeps 3 bees, said to " in text
        # Once for itself and again for the notes that are linked to it.
        assert text.count("memory content: max: Max keeps 1 bees, said to ") > 1
        assert "memory tags: ['linked']" in text
