"""What a user gets wrong with models ends in one clear line that says what to do, and an exit code."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from prismem_core.clients.model_settings import parse_model
from prismem_core.errors import SettingsError
from tests.faults.command_line import models, prismem, start
from tests.faults.conftest import one_clear_line
from tests.scripted_server.fixture import ScriptedServer

FAST = ["--set", "reranker=false", "--set", "models.task.retries=0"]
TRIED = ["--set", "models.task.retries=2"]


def evaluate(talks: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("openai")
    return prismem("evaluate", "naive_rag", "--data", talks, "--part", "all", *FAST, *words)


def refused(done: subprocess.CompletedProcess[str], *expected: str, code: int = 7) -> None:
    """The command ended with one line on standard error that holds all these words."""
    assert done.returncode == code, done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("prismem: isolation: ")]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("prismem: ") and len(lines[0]) < 700
    for words in expected:
        assert words in lines[0]


BAD: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "unknown model": ({"models": ["qwen-small", "qwen-large"]}, ("scripted", "qwen-small", "qwen-large")),
    "expired key": ({"status": 401, "error": "The key has expired."}, ("OPENAI_API_KEY",)),
    "forbidden": ({"status": 403, "error": "no access"}, ("403",)),
    "web page": ({"html": True}, ("web page", "/v1")),
    "web page as 404": ({"html": True, "status": 404}, ("/v1",)),
    "413": ({"status": 413, "body": "too large"}, ("413", "segment_chars")),
    "no JSON": ({"body": "pong"}, ("no JSON",)),
    "quota": ({"status": 429, "error": "quota", "code": "insufficient_quota"}, ("quota",)),
    "busy": ({"status": 429, "error": "slow down"}, ("429", "concurrency")),
    "down": ({"status": 503, "error": "loading"}, ("503",)),
}


@pytest.mark.parametrize(("behaviour", "expected"), BAD.values(), ids=list(BAD))
def test_what_a_server_says(
    scripted_server: ScriptedServer, talks: Path, behaviour: dict[str, Any], expected: tuple[str, ...]
) -> None:
    scripted_server.play({"endpoint": "models", "do": behaviour if "models" in behaviour else {}}, default=behaviour)
    refused(evaluate(talks, "--chat", scripted_server.model(), "--embedder", "hashing"), *expected)


@pytest.mark.parametrize("what", ["no JSON", "busy", "down"])
def test_what_was_tried_again_is_one_line_that_says_how_often(
    scripted_server: ScriptedServer, talks: Path, what: str
) -> None:
    behaviour, expected = BAD[what]
    scripted_server.play(default=behaviour)
    done = evaluate(talks, *TRIED, "--chat", scripted_server.model(), "--embedder", "hashing")
    refused(done, *expected, "tried 3 times")


def test_a_warning_is_a_line_of_the_command(scripted_server: ScriptedServer, talks: Path) -> None:
    scripted_server.play(default={"usage": "none"})
    done = evaluate(talks, "--chat", scripted_server.model(), "--embedder", "hashing")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("prismem: isolation: ")]
    assert [line for line in lines if "estimated" in line] == [
        "prismem: warning: scripted does not say what calls use; tokens are estimated as characters / 4"
    ]


def test_a_url_where_nothing_listens(talks: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        refused(evaluate(talks, "--chat", f"openai:m@{url}", "--embedder", "hashing"), url, "refused")
        # Without settings of its own, too.
        words = ["naive_rag", "--data", talks, "--part", "all", "--chat", f"openai:m@{url}", "--embedder", "hashing"]
        done = prismem("evaluate", *words)
        refused(done, url, "refused", "tried 3 times")


@pytest.mark.parametrize(
    "spec",
    [
        "openai",
        "openai:",
        "openai:m@localhost:8000",
        "openai:m@localhost",
        "openai:m@gpu-box:8000",
        "openai:m@127.0.0.1/v1",
        "openai:m@example.org/v1",
        "openai:m@[::1]:8000",
        "opnai:m@http://localhost:1/v1",
        "http://localhost:1/v1",
        "openai:m@http://user:word@localhost:1/v1",
    ],
)
def test_a_model_that_cannot_be_read(spec: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_model(spec)
    one_clear_line(str(caught.value))
    assert "user:word" not in str(caught.value)


@pytest.mark.parametrize("name", ["gpt-9", "org/model", "ft:gpt-9:me::7"])
def test_names_that_models_have(name: str) -> None:
    assert parse_model(f"openai:{name}").model == name


def test_a_model_that_cannot_be_read_ends_the_command(talks: Path) -> None:
    refused(evaluate(talks, "--chat", "openai:m@localhost:8000"), "http://", code=2)


def test_a_segment_of_a_hundred_thousand_tokens(scripted_server: ScriptedServer, talks: Path) -> None:
    rows = [json.loads(line) for line in talks.read_text(encoding="utf-8").splitlines()]
    conversation = next(row for row in rows if row["type"] == "conversation")
    conversation["sessions"][0]["turns"][0]["text"] += " word" * 100_000
    talks.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    scripted_server.play(default={"context": 32_768})
    words = ["--chat", scripted_server.model(), "--embedder", "hashing", "--set", "segment_chars=1000000"]
    refused(evaluate(talks, *words), "32,768", "segment_chars")
    assert max(entry["prompt_tokens"] for entry in scripted_server.requests()) < 32_768


def test_an_embedding_of_another_size_than_the_cache_holds(
    scripted_server: ScriptedServer, talks: Path, tmp_path: Path
) -> None:
    words = [*models(scripted_server)[:2], "--embedder", scripted_server.model("embedding"), "--cache", tmp_path / "c"]
    assert evaluate(talks, *words).returncode == 0
    scripted_server.play(default={"dimension": 48})
    rows = [json.loads(line) for line in talks.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        if row["type"] == "question":
            row["question"] = row["question"].replace("?", " again?")
    talks.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    refused(evaluate(talks, *words), "48", "32")


def test_an_interrupt_with_calls_under_way(scripted_server: ScriptedServer, talks: Path) -> None:
    pytest.importorskip("openai")
    scripted_server.play(default={"hang": "head"})
    words = ["evaluate", "seed", "--data", talks, "--part", "all", *FAST, *models(scripted_server)]
    with start(*words) as process:
        try:
            scripted_server.wait(under_way=1)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, out + err
    assert "Traceback" not in err
    assert "interrupted" in err
