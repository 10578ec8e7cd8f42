"""Which model plays which role: specifications, tables, flags, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prismem_core.clients.model_settings import ModelSettings, parse_model
from prismem_core.errors import SettingsError
from prismem_core.jobs.models import with_moved_servers
from prismem_core.jobs.settings import JobSettings, build_job_settings, load_job_settings
from prismem_core.jobs.workbench import role_identities

URL = "http://localhost:8000/v1"


@pytest.mark.parametrize(
    ("text", "kind", "model", "url"),
    [
        ("offline", "offline", "offline", ""),
        (f"openai:Qwen/Qwen3-8B@{URL}", "openai", "Qwen/Qwen3-8B", URL),
        (f"openai:Qwen/Qwen3-8B@{URL}/", "openai", "Qwen/Qwen3-8B", URL),
        ("openai:gpt-5.5", "openai", "gpt-5.5", "https://api.openai.com/v1"),
        ("openai:a@b@https://h/v1", "openai", "a@b", "https://h/v1"),
        ("openai:m@http://[::1]:9/v1", "openai", "m", "http://[::1]:9/v1"),
        ("vllm:/models/some@here", "vllm", "/models/some@here", ""),
    ],
)
def test_a_model_is_named_in_one_word(text: str, kind: str, model: str, url: str) -> None:
    spec = parse_model(text)
    assert (spec.kind, spec.model, spec.url) == (kind, model, url)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpt-5.5", "unknown model 'gpt-5.5'"),
        ("openai:", "unknown model"),
        ("vllm: ", "unknown model"),
        ("openai:@http://h/v1", "names a server without http:// or https://, or no model"),
        ("openai:m@ftp://h/v1", "names a server without http:// or https://"),
        ("openai:m@localhost:8000/v1", "names a server without http:// or https://"),
        ("openai:m@", "names a server without http:// or https://"),
        ("openai:m@http://user:pass@h/v1", "holds a user, a password or a query"),
        ("openai:m@https://h/v1?api_key=abc", "holds a user, a password or a query"),
        ("openai:m@http://:8000", "names no host"),
        ("openai:m@http://h:99999/v1", "cannot be read"),
    ],
)
def test_what_names_no_model_is_refused_and_no_secret_is_shown(text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        parse_model(text)
    assert "pass@" not in str(caught.value)
    assert "abc" not in str(caught.value)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_tables_flags_and_the_defaults_of_the_paper(tmp_path: Path) -> None:
    path = write(
        tmp_path / "s.toml",
        f"""
        [job]
        judge = "openai:judge@{URL}"
        [models.task]
        model = "openai:task@{URL}"
        temperature = 1
        price_input = 2
        [models.embedding]
        model = "openai:rows@{URL}"
        dimension = 64
        [budget]
        tokens = 1000
        money = 5
        """,
    )
    job, _ = load_job_settings(path, {}, {})
    assert job.model("task").model == f"openai:task@{URL}"
    assert (job.model("task").temperature, job.model("task").price_input) == (1.0, 2.0)
    assert job.model("judge").model == f"openai:judge@{URL}"
    assert job.model("reflection").model == "offline"
    assert (job.budget.tokens, job.budget.money, job.budget.calls) == (1000, 5.0, None)
    assert job.task_tokens == 8192
    flags: dict[str, Any] = {
        "chat": f"openai:other@{URL}",
        "designer": "vllm:/m",
        "embedder": "hashing",
        "budget": {"tokens": 0},
        "models": {"task": {"max_tokens": 100}},
    }
    over, _ = load_job_settings(path, flags, {})
    assert over.model("task").model == f"openai:other@{URL}"
    assert over.model("task").temperature == 1.0
    assert over.task_tokens == 100
    assert over.model("reflection").model == over.model("coding").model == "vllm:/m"
    assert over.model("embedding").model == "hashing"
    assert (over.budget.tokens, over.budget.money) == (0, 5.0)
    # What a manifest keeps builds the same settings again.
    assert build_job_settings(over.model_dump()) == over


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[models.taks]\nmodel='offline'", "unknown role 'taks'"),
        ("[models.task]\nmodle='offline'", "did you mean model"),
        ("[models.task]\nmodel='gpt'", "unknown model 'gpt'"),
        ("[models.task]\ntemperature=3", "models.task.temperature = 3"),
        ("[models.task]\nextra_body={model='other', top_k=1}", "model belongs to the request itself"),
        ("[models.task]\nmodel='openai:m@http://h/v1'\nengine={x=1}", "models.task.engine is for vllm:MODEL"),
        ("[models.task]\nprice_input=inf", "models.task.price_input = inf"),
        ("[budget]\nmoney=nan", "budget.money = nan"),
        ("[models.task]\nconcurrency=0", "calls under way at a time"),
        ("[models.embedding]\nmodel='bge'", "bge-small"),
        ("[budget]\ntoken=3", "did you mean tokens"),
        ("[budget]\ntokens=-1", "budget.tokens = -1"),
        ("budget=3", "budget must be a table"),
        ("models=3", "models must be tables"),
        ("[job]\nmodels=3", "models is a table of its own, written \\[models.task\\]"),
        ("[job]\nchat='gpt'", "unknown model 'gpt'"),
        ("[modles.task]\nmodel='offline'", "unknown key 'modles'"),
    ],
)
def test_a_slip_in_a_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        load_job_settings(write(tmp_path / "s.toml", text), {}, {})


def test_what_can_change_a_reply_changes_the_identity_and_nothing_else_does() -> None:
    def identity(**changes: Any) -> str:
        settings = ModelSettings(model=f"openai:m@{URL}", **changes)
        return settings.identity_of(parse_model(settings.model))

    plain = identity()
    assert plain == f"openai:m@{URL}"
    changing: list[dict[str, Any]] = [
        {"temperature": 0.5},
        {"seed": 1},
        {"reasoning_effort": "low"},
        {"extra_body": {"top_p": 0.9}},
        {"structured": "text"},
        {"dimension": 8},
        {"instruction": "find"},
        {"engine": {"dtype": "float32"}},
    ]
    assert len({plain, *(identity(**change) for change in changing)}) == len(changing) + 1
    for same in ({"concurrency": 1}, {"timeout_seconds": 1.0}, {"price_input": 1.0}, {"budget_calls": 1}):
        assert identity(**same) == plain
    assert identity(engine={"tensor_parallel_size": 2, "gpu_memory_utilization": 0.5}) == plain
    assert identity(identity="mine") == "mine"
    assert identity(identity="mine", seed=1).startswith("mine#")


def test_a_server_that_has_moved_keeps_the_identity_of_its_models() -> None:
    settings = build_job_settings(
        {"chat": f"openai:m@{URL}", "judge": f"openai:j@{URL}", "models": {"task": {"seed": 3}}}
    )
    moved = with_moved_servers(settings, [f"{URL}/=http://other:1/v1"])
    assert moved.model("task").model == "openai:m@http://other:1/v1"
    assert moved.model("task").seed == 3
    assert role_identities(moved) == role_identities(settings)
    for pair in ("http://nowhere/v1=http://other/v1", URL):
        with pytest.raises(SettingsError, match=f"the run has {URL}"):
            with_moved_servers(settings, [pair])
    with pytest.raises(SettingsError, match="'nowhere' is no URL of a server"):
        with_moved_servers(settings, [f"{URL}=nowhere"])


def test_the_embedded_default_is_what_it_was() -> None:
    settings = JobSettings()
    assert {settings.model(role).model for role in ("task", "judge", "reflection", "coding", "annotator")} == {
        "offline"
    }
    assert settings.model("embedding").model == "auto"
    assert set(role_identities(settings)) == {"chat", "embedder", "judge", "diagnostic_embedder"}
    assert role_identities(build_job_settings({"judge": "lexical"}))["judge"] == "lexical-1"


def test_record_and_replay_contradict_each_other(tmp_path: Path) -> None:
    from prismem_core.jobs.models import ModelClients

    both = build_job_settings({"record": str(tmp_path / "a"), "replay": str(tmp_path / "b")})
    with pytest.raises(SettingsError, match="contradict"):
        ModelClients(both)
    with pytest.raises(SettingsError, match="no model call to record"):
        ModelClients(build_job_settings({"record": str(tmp_path / "a")}))


def test_a_key_where_a_name_should_stand_is_not_shown() -> None:
    for value in ("sk-MARKED-9f8e7d6c5b", "sk_marked", ""):
        with pytest.raises(SettingsError, match="key_env is no name of the variable") as caught:
            build_job_settings({"models": {"task": {"key_env": value}}})
        assert not value or value not in str(caught.value)


def test_a_settings_file_is_read_once(tmp_path: Path) -> None:
    import os
    import threading

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("[job]\nworkers = 7\n[evolution]\nT1 = 4\n",), daemon=True)
    writer.start()
    job, evolution = load_job_settings(pipe, {}, {})
    assert (job.workers, evolution.T1) == (7, 4)
