"""`prismem bench serve` over the scripted server: what it sends, counts and refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from prismem_core.cli.main import app
from prismem_core.errors import PrismemError
from tests.scripted_server.fixture import scripted_server, server_process  # noqa: F401

pytest.importorskip("openai")

CALLS, ROUNDS = 12, 2


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield


def serve(directory: Path, *arguments: str) -> Any:
    fixed = ["bench", "serve", "--calls", str(CALLS), "--rounds", str(ROUNDS), "--output", str(directory)]
    return CliRunner().invoke(app, [*fixed, *arguments])


def records(directory: Path) -> dict[str, dict[str, Any]]:
    (line,) = (directory / "serve.jsonl").read_text(encoding="utf-8").splitlines()
    return {stage["stage"]: stage for stage in json.loads(line)["stages"]}


def test_stages_are_measured_against_the_same_requests_sent_raw(scripted_server: Any, tmp_path: Path) -> None:  # noqa: F811
    model = scripted_server.model()
    result = serve(tmp_path, "--chat", model, "--embedder", model)
    assert result.exit_code == 0, result.output
    found = records(tmp_path)
    assert list(found) == ["extract", "plan", "answer", "embed"]
    for name in ("extract", "plan", "answer"):
        stage = found[name]
        assert stage["calls"] == stage["usable"] == stage["asked"] == CALLS
        assert stage["faults"] == [] and stage["limit"]["name"] == "raw HTTP"
        assert stage["limit"]["input_tokens"] == stage["engine"]["input_tokens"] > 0
        assert stage["limit"]["output_tokens"] == stage["engine"]["output_tokens"] > 0
        assert 0 < stage["engine"]["occupancy"] <= 1 and 0 <= stage["engine"]["own_share"] < 1
        assert stage["limit_share"] > 0
        passes: dict[str, int] = {}
        for request in scripted_server.requests("chat", name):
            body = json.dumps(request["body"], sort_keys=True)
            passes[body] = passes.get(body, 0) + 1
        # The engine's passes and the raw ones sent the same bodies, byte for byte.
        assert list(passes.values()) == [1 + 2 * ROUNDS] * CALLS
    assert found["embed"]["usable"] == found["embed"]["asked"] > CALLS


def test_tokens_that_the_server_did_not_count_are_a_fault(scripted_server: Any, tmp_path: Path) -> None:  # noqa: F811
    scripted_server.play(default={"usage": {"prompt_tokens": 9000, "completion_tokens": 1}})
    result = serve(tmp_path, "--chat", scripted_server.model())
    assert isinstance(result.exception, PrismemError) and result.exception.exit_code == 9
    assert any("the server" in fault for stage in records(tmp_path).values() for fault in stage["faults"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name one with --chat or --embedder"),
        (("top_k",), "stands alone"),
        (("--chat", "nonsense"), "unknown model"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    result = serve(tmp_path, *arguments)
    assert result.exit_code != 0
    assert said in (str(result.exception) + result.output)
    assert not (tmp_path / "serve.jsonl").exists()


def test_models_are_named_for_serve_alone() -> None:
    result = CliRunner().invoke(app, ["bench", "top_k", "--chat", "openai:m@http://127.0.0.1:9/v1"])
    assert result.exit_code != 0 and "belong to" in (str(result.exception) + result.output)
