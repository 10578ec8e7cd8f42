"""Programs and outside systems in one harness: the same questions, what is counted, what fails, and going on."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

from prismem_core.errors import BudgetError, DataError, RoleError, SettingsError
from prismem_core.integrations import systems
from prismem_core.jobs.comparison_job import compare_systems
from prismem_core.jobs.comparison_tables import comparison_markdown, comparison_tables
from prismem_core.jobs.evaluation_job import evaluate_programs
from prismem_core.jobs.settings import JobSettings, build_job_settings
from prismem_core.program.interface import OUT_CHAR_BUDGET
from tests.integrations.talks import write_talks
from tests.scripted_server.fixture import ScriptedServer, scripted_server, server_process

__all__ = ["scripted_server", "server_process"]

OFFLINE = build_job_settings({"embedder": "hashing", "reranker": False})


def toy(name: str) -> str:
    return f"python:tests.integrations.toy_systems:{name}"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_talks(tmp_path / "talks.jsonl")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where systems have their folders."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def compare(data: Path, *names: str, job: JobSettings = OFFLINE, cache: Path | None = None, **more: Any) -> Any:
    return compare_systems(list(names), str(data), None, "all", job, cache, **more)


def on(server: ScriptedServer, **more: Any) -> JobSettings:
    roles = {"chat": server.model("talker"), "judge": server.model("judge"), "embedder": server.model("rows")}
    model = {"retries": 0, "concurrency": 8}
    models = dict.fromkeys(("task", "judge", "embedding"), model)
    return build_job_settings({**roles, "models": models, "workers": 2, **more})


def test_a_program_has_the_scores_of_its_evaluation_and_a_system_its_own(data: Path, temporary: Path) -> None:
    result = compare(data, "seed", "bm25-rag", toy("Turns"))
    alone = evaluate_programs(["seed", "bm25-rag"], str(data), None, "all", OFFLINE)
    for name, summary in alone["programs"].items():
        assert result["systems"][name]["summary"] == summary
        assert result["systems"][name]["kind"] == "program"
    own = result["systems"][toy("Turns")]
    assert own["kind"] == "outside system"
    assert own["identity"].startswith("turns 1 (top 10)#")
    assert own["summary"]["recall"] == 1.0
    assert own["summary"]["scored"] == 6
    assert own["answering"]["calls"] == 6
    assert own["building"]["calls"] == 0
    # Eighteen turns, and each question once.
    assert own["embedded_texts"] == 18 + 6
    assert result["failed"] == {}
    assert list(temporary.iterdir()) == []


def test_what_is_counted_is_what_the_server_counted(
    scripted_server: ScriptedServer, data: Path, tmp_path: Path
) -> None:
    names = ("full-context", toy("Noted"))
    result = compare(data, *names, job=on(scripted_server), cache=tmp_path / "cache")
    total, counted = result["models"]["total"], scripted_server.totals
    assert total["input_tokens"] == counted["prompt_tokens"] > 0
    assert total["output_tokens"] == counted["completion_tokens"] > 0
    noted = result["systems"][toy("Noted")]
    notes = [e for e in scripted_server.requests() if e["body"]["messages"][0]["content"] == "Write a note."]
    # One call a session, with the schema as the server knows it.
    assert noted["building"]["calls"] == len(notes) == 9
    assert {e["body"]["response_format"]["type"] for e in notes} == {"json_schema"}
    assert result["models"]["roles"]["chat"]["stages"]["ask"]["calls"] == 9
    assert noted["answering"]["input_tokens_per_question"] > 0


def test_a_comparison_is_repeated_without_a_call(scripted_server: ScriptedServer, data: Path, tmp_path: Path) -> None:
    names = ("bm25-rag", toy("Noted"))
    first = compare(data, *names, job=on(scripted_server), cache=tmp_path / "cache")
    scripted_server.clear()
    again = compare(data, *names, job=on(scripted_server), cache=tmp_path / "cache")
    assert scripted_server.totals["requests"] == 0
    for name in names:
        now, then = again["systems"][name], first["systems"][name]
        assert {**now, "seconds": 0} == {**then, "seconds": 0}
    # A question that was never asked has the memory built once more, of stored replies.
    lines = data.read_text().splitlines()
    question = json.loads(lines[-1]) | {"id": "cleo/3", "question": "Who keeps bees, as cleo was told?"}
    data.write_text("\n".join([*lines, json.dumps(question)]) + "\n")
    scripted_server.clear()
    more = compare(data, toy("Noted"), job=on(scripted_server), cache=tmp_path / "cache")
    assert more["systems"][toy("Noted")]["summary"]["questions"] == 7
    assert len(scripted_server.requests(purpose="answer")) == 1
    assert not [e for e in scripted_server.requests() if e["body"]["messages"][0]["content"] == "Write a note."]


def test_failures_are_told_apart_and_cost_the_others_nothing(data: Path, temporary: Path) -> None:
    broken = ("BreaksOnSecondSession", "BreaksOnSomeQuestions", "DiesOnSomeQuestions", "GivesBytes")
    result = compare(data, "seed", *map(toy, broken))
    scored = {name: result["systems"][toy(name)]["summary"]["scored"] for name in broken}
    assert scored == {
        "BreaksOnSecondSession": 0,
        "BreaksOnSomeQuestions": 3,
        "DiesOnSomeQuestions": 3,
        "GivesBytes": 0,
    }
    for name in broken:
        summary = result["systems"][toy(name)]["summary"]
        assert summary["left_out"] == {"provider": 0, "judge": 0, "candidate": 6 - scored[name], "limit": 0}
    assert result["systems"]["seed"]["summary"]["scored"] == 6
    failed = result["failed"]
    assert "index failed on ada/1: ValueError: cannot read session s2" in failed[toy("BreaksOnSecondSession")]
    assert "its process ended; it last said: the library crashed" in failed[toy("DiesOnSomeQuestions")]
    assert "retrieve gave bytes, expected str" in failed[toy("GivesBytes")]
    # No score is no zero.
    assert result["systems"][toy("GivesBytes")]["summary"]["score"] is None
    assert "3 candidate" in comparison_markdown(result)
    assert list(temporary.iterdir()) == []


def test_a_provider_that_fails_ends_the_comparison_whatever_the_system_makes_of_it(
    scripted_server: ScriptedServer, data: Path, tmp_path: Path
) -> None:
    scripted_server.play({"contains": "paints lake number 3", "do": {"status": 400, "error": "out of order"}})
    with pytest.raises(RoleError, match="400"):
        compare(data, toy("SwallowsFailures"), job=on(scripted_server), cache=tmp_path / "cache")
    paid = {json.dumps(e["body"]["messages"]) for e in scripted_server.requests() if e["status"] == 200}
    scripted_server.reset()
    result = compare(data, toy("SwallowsFailures"), job=on(scripted_server), cache=tmp_path / "cache")
    assert result["systems"][toy("SwallowsFailures")]["summary"]["scored"] == 6
    probe = "Describe the sea"
    asked = {json.dumps(e["body"]["messages"]) for e in scripted_server.requests()}
    assert not {text for text in asked & paid if probe not in text}


def test_a_budget_binds_what_systems_ask(scripted_server: ScriptedServer, data: Path) -> None:
    job = on(scripted_server, budget={"calls": 5})
    with pytest.raises(BudgetError, match="of 5"):
        compare(data, toy("Noted"), job=job)
    assert scripted_server.totals["requests"] <= 5 + 2 * 8


def test_a_malformed_reply_is_asked_for_again(scripted_server: ScriptedServer, data: Path) -> None:
    scripted_server.play({"contains": "paints lake number 1", "do": {"text": "no JSON at all"}, "times": 2})
    result = compare(data, toy("Noted"), job=on(scripted_server))
    assert result["systems"][toy("Noted")]["building"]["calls"] == 9 + 2
    assert result["systems"][toy("Noted")]["summary"]["scored"] == 6


def test_a_system_reaches_nobody(data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        result = compare(data, toy("CallsHome"))
        with pytest.raises(BlockingIOError):
            listener.accept()
    found = result["systems"][toy("CallsHome")]
    assert found["refused_contacts"] == ["telemetry.example", "127.0.0.1"]
    assert "tried to reach telemetry.example, 127.0.0.1 and was refused" in caplog.text
    assert found["summary"]["scored"] == 6


def test_the_user_may_let_systems_go_online(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("TOLD_PORT", str(listener.getsockname()[1]))
        result = compare(data, toy("CallsHome"), online=True)
        listener.settimeout(60)
        listener.accept()[0].close()
    assert result["systems"][toy("CallsHome")]["refused_contacts"] == []


def test_a_system_has_a_home_without_keys_and_leaves_nothing(
    scripted_server: ScriptedServer, data: Path, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    before = set(os.listdir())
    compare(data, toy("ShowsItsSurroundings"), job=on(scripted_server))
    (shown,) = {
        e["body"]["messages"][-1]["content"].partition("names=")[2].split("\n")[0] for e in answers(scripted_server)
    }
    assert "HOME" in shown.split()
    assert "OPENAI_API_KEY" not in shown
    assert {"MEM0_TELEMETRY", "ANONYMIZED_TELEMETRY", "HF_HUB_OFFLINE"} <= set(shown.split())
    assert str(home) not in answers(scripted_server)[0]["body"]["messages"][-1]["content"]
    assert list(home.iterdir()) == list(temporary.iterdir()) == []
    assert set(os.listdir()) == before


def answers(server: ScriptedServer) -> list[dict[str, Any]]:
    return server.requests(purpose="answer")


def test_what_is_retrieved_fits_the_budget_of_programs(scripted_server: ScriptedServer, data: Path) -> None:
    result = compare(data, toy("Long"), job=on(scripted_server))
    entry = result["systems"][toy("Long")]
    assert entry["cut_texts"] == 6
    assert OUT_CHAR_BUDGET - 220 < entry["summary"]["retrieved_chars"] <= OUT_CHAR_BUDGET
    assert f"Retrieved texts cut to the budget of every program: {toy('Long')}: 6." in comparison_markdown(result)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("python:", "names no class; write python:MODULE:CLASS"),
        ("python:tests.integrations.toy_systems", "names no class"),
        ("python:no_such_module:Memory", "No module named 'no_such_module'"),
        (toy("Missing"), "has no attribute 'Missing'"),
        (toy("NoIdentity"), "has no identity"),
        ("python:json:JSONDecoder", "has no method add"),
    ],
)
def test_a_system_that_is_none_is_refused_before_anything_runs(
    data: Path, temporary: Path, name: str, words: str
) -> None:
    with pytest.raises(SettingsError, match=words):
        compare(data, "seed", name)
    assert list(temporary.iterdir()) == []


def test_names_that_do_not_exist_are_answered_with_those_that_do(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="outside systems: mem0, a-mem, python:MODULE:CLASS"):
        compare(data, "mem1")
    monkeypatch.setattr(systems, "installed_version", lambda package: "")
    with pytest.raises(SettingsError, match=r"mem0 is not installed here: pip install 'prismem-core\[mem0\]'"):
        compare(data, "mem0")
    first = r"a-mem is not installed here: pip install torch==2\.13\.0, then pip install 'prismem-core\[a-mem\]'"
    with pytest.raises(SettingsError, match=first):
        compare(data, "a-mem")
    guide = (Path(__file__).resolve().parents[2] / "docs" / "compare.md").read_text(encoding="utf-8")
    assert "`pip install torch==2.13.0`, then `pip install 'prismem-core[a-mem]'`" in guide
    monkeypatch.setattr(systems, "installed_version", lambda package: "1.0")
    with pytest.raises(SettingsError, match="a-mem puts its own prompts to a model, which the embedded default"):
        compare(data, "a_mem")


def test_an_output_that_cannot_be_written_is_refused_first(data: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot write"):
        compare(data, "seed", outputs=[tmp_path / "no" / "folder.md"])


def test_the_markdown_says_all_that_a_repetition_needs(data: Path, tmp_path: Path) -> None:
    result = compare(data, "naive-rag", toy("Turns"))
    text = comparison_markdown(result)
    for fact in (result["data"]["digest"], "6 (all) of 3 conversations", "- score: offline score", "hashing-stems"):
        assert fact in text
    assert str(tmp_path) not in text
    assert "| naive-rag | 6 of 6 |" in text
    scores, costs, *_ = comparison_tables(result)
    assert scores.columns[2:4] == ("F", "overall")
    assert len(scores.rows) == len(costs.rows) == 2
    assert comparison_markdown(json.loads(json.dumps(result))) == text
