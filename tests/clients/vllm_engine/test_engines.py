"""Who shares an engine, how a GPU's memory is parted, where a model lies, what a failure says: all without vLLM."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients.vllm_engine.played import PlayedLLM

from prismem_core.clients.model_settings import ModelSettings, parse_model
from prismem_core.clients.vllm_engine import VLLMChat, engines, starting
from prismem_core.clients.vllm_engine.engines import Engines
from prismem_core.clients.vllm_engine.model_files import locate
from prismem_core.clients.vllm_engine.starting import Log, told
from prismem_core.errors import RoleError, SettingsError
from prismem_core.roles.account import Account
from prismem_core.roles.budget import Budget
from prismem_core.roles.protocols import ChatRequest

CHAT, EMBEDDER = parse_model("vllm:/models/chat"), parse_model("vllm:/models/embedder")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """What engines were started with; a stand-in takes the place of vLLM."""
    seen: list[dict[str, Any]] = []

    def start(model: str, runner: str, arguments: Any, *, sequences: int, memory_fraction: float, log: Log) -> Any:
        seen.append({"model": model, "runner": runner, "sequences": sequences, "fraction": memory_fraction})
        return PlayedLLM()

    monkeypatch.setattr(engines, "start", start)
    monkeypatch.setattr(engines, "require_vllm", lambda: None)
    yield seen


def test_roles_of_one_model_share_an_engine_that_the_last_one_ends(started: list[dict[str, Any]]) -> None:
    shared = Engines()
    first, second = shared.take(CHAT, ModelSettings(), "generate"), shared.take(CHAT, ModelSettings(), "generate")
    assert first is second and started == []
    llm = first.started()
    shared.give_back(first)
    assert not llm.llm_engine.shut_down.is_set()
    shared.give_back(second)
    assert llm.llm_engine.shut_down.is_set()
    assert shared.take(CHAT, ModelSettings(), "generate") is not first


def test_contradicting_engine_tables_are_refused(started: list[dict[str, Any]]) -> None:
    shared = Engines()
    shared.take(CHAT, ModelSettings(engine={"dtype": "float32"}), "generate")
    with pytest.raises(SettingsError, match="give both the same"):
        shared.take(CHAT, ModelSettings(), "generate")


@pytest.mark.parametrize(
    ("roles", "fractions"),
    [
        ([(CHAT, "generate", {})], [0.9]),
        ([(CHAT, "generate", {}), (EMBEDDER, "pooling", {})], [0.65, 0.25]),
        ([(CHAT, "generate", {"gpu_memory_utilization": 0.6}), (EMBEDDER, "pooling", {})], [None, 0.3]),
    ],
    ids=["alone", "beside an embedder", "beside one with its own part"],
)
def test_a_gpu_is_parted(roles: Any, fractions: list[float | None], started: list[dict[str, Any]]) -> None:
    shared = Engines()
    for engine in [shared.take(spec, ModelSettings(engine=own), runner) for spec, runner, own in roles]:
        engine.started()
    for seen, expected in zip(started, fractions, strict=True):
        assert expected is None or seen["fraction"] == pytest.approx(expected)


def test_concurrency_is_what_an_engine_works_on_at_a_time(started: list[dict[str, Any]]) -> None:
    shared = Engines()
    shared.take(CHAT, ModelSettings(), "generate").started()
    shared.take(EMBEDDER, ModelSettings(concurrency=8), "pooling").started()
    other = shared.take(parse_model("vllm:/models/other"), ModelSettings(engine={"max_num_seqs": 3}), "generate")
    other.started()
    assert [seen["sequences"] for seen in started] == [256, 8, 3]
    assert other.window == 3


def test_without_vllm_its_extra_is_named() -> None:
    if starting.importlib.util.find_spec("vllm") is not None:
        pytest.skip("vLLM is installed")
    with pytest.raises(SettingsError, match=r"prismem-core\[vllm\]"):
        VLLMChat(CHAT, ModelSettings())


def test_models_are_looked_for_where_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "model"
    model.mkdir()
    with pytest.raises(RoleError, match=r"holds no model: it has no config\.json"):
        locate(str(model))
    (model / "config.json").write_text("{}", encoding="utf-8")
    assert locate(str(model)) == (str(model), True)
    for missing in (str(tmp_path / "absent"), "./absent", "absent", "https://hub/model"):
        with pytest.raises(RoleError, match="there is no model directory"):
            locate(missing)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert locate("Org/Model") == ("Org/Model", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(RoleError, match="HF_HUB_OFFLINE forbids"):
        locate("Org/Model")
    folder = tmp_path / "hub" / "models--Org--Model"
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "snapshots" / "abc" / "config.json").write_text("{}", encoding="utf-8")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc\n", encoding="utf-8")
    assert locate("Org/Model") == (str(folder / "snapshots" / "abc"), True)


def test_surroundings_keep_stdout_clean_and_the_network_out(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("VLLM_NO_USAGE_STATS", "DO_NOT_TRACK", "VLLM_LOGGING_CONFIG_PATH", "HF_HUB_OFFLINE")
    for name in [*names, "VLLM_WORKER_MULTIPROC_METHOD", "TRANSFORMERS_VERBOSITY", "TOKENIZERS_PARALLELISM"]:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    log = Log()
    log.surround(offline=True)
    assert os.environ["VLLM_NO_USAGE_STATS"] == os.environ["HF_HUB_OFFLINE"] == "1"
    settings = Path(os.environ["VLLM_LOGGING_CONFIG_PATH"])
    assert settings.is_file()
    log.close()
    assert not settings.exists() and "VLLM_LOGGING_CONFIG_PATH" not in os.environ


def test_failures_are_one_line_with_the_reason_of_the_log() -> None:
    log = Log()
    log._path.write_text("INFO x\nERROR Traceback\nValueError: the cache has no room\n", encoding="utf-8")
    assert told(RuntimeError("Engine core initialization failed. See root cause above."), log) == (
        "ValueError: the cache has no room"
    )
    pydantic = "1 validation error for ModelConfig\n  Value error, model type `x` is unknown [type=value_error, input]"
    assert told(ValueError(pydantic)) == "Value error, model type `x` is unknown"
    long = told(ValueError("a" * 1000 + "\nb"))
    assert len(long) < 220 and "\n" not in long
    log.close()


def test_a_chat_restores_order_and_settles_what_the_model_counts(started: list[dict[str, Any]]) -> None:
    budget = Budget()
    chat = VLLMChat(CHAT, ModelSettings())
    chat.account = Account("task", budget=budget)
    chat._parameters = lambda request: None  # type: ignore[method-assign]
    prompts = ["ccc", "a", "bb"]
    try:
        replies = chat.complete([ChatRequest("ask", "", text) for text in prompts])
        assert [reply.input_tokens for reply in replies] == [3, 1, 2]
        assert (budget.spent()["task"].calls, budget.spent()["task"].input_tokens) == (3, 6)
        assert chat.meter.read().calls == 3 and chat.meter.under_way == 0
        with pytest.raises(RoleError, match="has 65 tokens") as caught:
            chat.complete([ChatRequest("extract", "", "secret " * 9 + "xx")])
        assert "secret" not in str(caught.value) and "segment_chars" in str(caught.value)
    finally:
        chat.close()


def test_reasoning_that_a_template_opens_is_taken_out(started: list[dict[str, Any]]) -> None:
    chat = VLLMChat(CHAT, ModelSettings())
    chat._parameters = lambda request: None  # type: ignore[method-assign]
    llm = chat._engine.started()
    plain = llm.llm_engine._output

    def output(name: str) -> Any:
        found = plain(name)
        found.outputs[0].text = "Let me see.</think>\n\nYes."
        return found

    llm.llm_engine._output = output
    try:
        (reply,) = chat.complete([ChatRequest("ask", "", "Well?<think>\n")])
        assert reply.text == "Yes."
        (kept,) = chat.complete([ChatRequest("ask", "", "Well?")])
        assert kept.text == "Let me see.</think>\n\nYes."
    finally:
        chat.close()
