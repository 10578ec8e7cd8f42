"""A memory on a model server: who is asked, what it costs to the call, and what a failure leaves."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from prismem_core.errors import BudgetError, RoleError, SettingsError
from prismem_core.memory import Memory
from prismem_core.program import library
from prismem_core.program.manifest import with_manifest
from tests.memory.conftest import JUNE, MAY
from tests.scripted_server.fixture import ScriptedServer, scripted_server, server_process

__all__ = ["scripted_server", "server_process"]

QUESTION = "What is the cat called?"
FAILING = {"retries": 0, "timeout_seconds": 60.0}


@pytest.fixture
def memory(scripted_server: ScriptedServer) -> Iterator[Memory]:
    with served(scripted_server) as memory:
        yield memory


def served(server: ScriptedServer, **settings: Any) -> Memory:
    models = {"task": {"model": server.model(), **FAILING}, "embedding": {"model": server.model("rows"), **FAILING}}
    return Memory("naive_rag", settings={"models": models, **settings})


def received(server: ScriptedServer) -> dict[str, int]:
    found = {purpose: len(server.requests("chat", purpose)) for purpose in ("extract", "plan", "answer")}
    return {**found, "embed": len(server.requests("embeddings"))}


def test_it_is_paid_for_once_over_saving_and_loading(
    memory: Memory, scripted_server: ScriptedServer, tmp_path: Path
) -> None:
    memory.add(MAY, JUNE)
    assert received(scripted_server)["extract"] == 2
    answer = memory.ask(QUESTION)
    assert answer.text
    path = tmp_path / "a.memory"
    memory.save(path)
    head = path.read_bytes()[:4000].decode("utf-8", "ignore")
    assert scripted_server.url in head, "it says which models it was made with"
    scripted_server.clear()
    names = {"chat": scripted_server.model(), "embedder": scripted_server.model("rows")}
    with Memory.load(path, **names) as again:
        assert again.ask(QUESTION) == answer
        found = received(scripted_server)
        assert (found["extract"], found["embed"]) == (0, 0)
        again.add([{"speaker": "Ben", "text": "Miso broke a vase."}])
        assert received(scripted_server)["extract"] == 1
        asked = sum(row["input_tokens"] + row["output_tokens"] for row in again.usage.values())
    used = scripted_server.totals
    assert asked == used["prompt_tokens"] + used["completion_tokens"]


def test_a_file_does_not_decide_who_is_asked(memory: Memory, scripted_server: ScriptedServer, tmp_path: Path) -> None:
    memory.add(MAY)
    path = tmp_path / "a.memory"
    memory.save(path)
    scripted_server.clear()
    with pytest.raises(SettingsError, match=r"made with the task model openai:scripted@http.*name the model, as in"):
        Memory.load(path)
    with pytest.raises(SettingsError, match=r"was made with the embedding model openai:rows"):
        Memory.load(path, chat=scripted_server.model())
    assert scripted_server.log == []


def test_the_models_of_an_exported_program_are_named_where_others_play(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "exported.py"
    roles = {"chat": "openai:Qwen/Qwen3-8B", "embedder": "hashing-stems-grams-1024/1"}
    settings = {"embedder": "hashing", "reranker": False}
    path.write_text(with_manifest(library.source("seed"), {"settings": settings, "roles": roles}), encoding="utf-8")
    with caplog.at_level(logging.WARNING, "prismem_core"), Memory.load(path):
        pass
    assert "was evolved with openai:Qwen/Qwen3-8B; here offline" in caplog.text
    assert "hashing-stems" not in caplog.text


@pytest.mark.parametrize("purpose", ["extract", "plan", "answer"])
def test_after_a_failure_of_the_model_the_memory_goes_on(
    memory: Memory, scripted_server: ScriptedServer, purpose: str
) -> None:
    memory.add(MAY)
    scripted_server.play({"purpose": purpose, "do": {"status": 503}})
    with pytest.raises(RoleError):
        memory.add(JUNE) if purpose == "extract" else memory.ask(QUESTION)
    assert [session.id for session in memory.sessions] == ["1"]
    scripted_server.play()
    assert memory.ask(QUESTION).text
    memory.add(JUNE)
    assert len(memory.sessions) == 2


def test_the_failure_of_one_question_ends_no_other(memory: Memory, scripted_server: ScriptedServer) -> None:
    memory.add(MAY)
    scripted_server.play({"purpose": "answer", "contains": "number 3", "do": {"status": 400}})

    def ask(i: int) -> str:
        try:
            return memory.ask(f"What is cat number {i} called?").text
        except RoleError:
            return "failed"

    with ThreadPoolExecutor(6) as pool:
        texts = list(pool.map(ask, range(6)))
    assert [text == "failed" for text in texts] == [i == 3 for i in range(6)]


def test_a_budget_binds_and_what_was_there_stays(scripted_server: ScriptedServer) -> None:
    with served(scripted_server, budget={"calls": 3}) as memory:
        memory.add(MAY)
        with pytest.raises(BudgetError):
            for i in range(4):
                memory.ask(f"What is cat number {i} called?")
        assert len(memory.sessions) == 1
        assert received(scripted_server)["extract"] + received(scripted_server)["plan"] <= 3


def test_replies_that_cannot_be_read_are_told(memory: Memory, scripted_server: ScriptedServer) -> None:
    scripted_server.play({"purpose": "extract", "do": {"text": "I would rather not."}})
    added = memory.add(MAY)
    assert (added.sessions, added.units) == (("1",), 0)
    assert len(added.problems) == 1
    assert "not valid JSON" in added.problems[0]
    scripted_server.play({"purpose": "plan", "do": {"text": "Neither this."}})
    with pytest.raises(RoleError, match="wrote no query that could be used"):
        memory.ask(QUESTION)
