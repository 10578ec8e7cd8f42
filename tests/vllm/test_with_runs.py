"""Whole commands over a real vLLM: an evolution whose server or engine is killed in the middle, then resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from prismem_core.jobs.evolution_job import LEDGER
from tests.vllm.conftest import ENGINE, ROOT, Place, toml_value
from tests.vllm.processes import below, left_of, wait_until

_PATIENCE_SECONDS = 600.0
_LINES_BEFORE_THE_END = 6


def write_data(path: Path) -> Path:
    """Four conversations of two sessions, two questions each."""
    lines: list[dict[str, Any]] = [
        {"type": "dataset", "name": "lake", "split": {"train": ["c1", "c2"], "valid": ["c3"], "test": ["c4"]}}
    ]
    for number in range(1, 5):
        sessions = [
            {
                "id": f"S{day}",
                "time": f"7:10 pm on {day} May, 2023",
                "turns": [
                    {"id": f"S{day}:1", "speaker": "Ana", "text": f"I rowed {number * day} miles on the lake."},
                    {"id": f"S{day}:2", "speaker": "Ben", "text": "The rain kept me at home with the cat."},
                ],
            }
            for day in (1, 2)
        ]
        lines.append({"type": "conversation", "id": f"c{number}", "sessions": sessions})
        for day in (1, 2):
            question = {"question": f"How many miles did Ana row on {day} May?", "answer": str(number * day)}
            more = {"capability": "factual_retrieval", "evidence": [f"S{day}:1"]}
            lines.append({"type": "question", "conversation": f"c{number}", **question, **more})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def write_settings(path: Path, place: Place, embedder: Path | None = None) -> Path:
    """Settings whose task model is the one at a place, with an embedder in this process; failures are told at once."""
    table = {
        "model": place.spec,
        "temperature": 1.0,
        "retries": 0,
        "timeout_seconds": 120.0,
        **place.settings,
    }
    rows: dict[str, Any] = {"model": "hashing"}
    if embedder is not None:
        rows = {"model": f"vllm:{embedder}", "engine": ENGINE}
    text = "[job]\nmax_tokens = 1000\n[evolution]\nT1 = 1\nT2 = 1\nT3 = 1\n"
    for name, values in (("task", table), ("embedding", rows)):
        text += f"[models.{name}]\n" + "".join(f"{key} = {toml_value(value)}\n" for key, value in values.items())
    path.write_text(text, encoding="utf-8")
    return path


def command(*arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-m", "prismem_core", *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=_PATIENCE_SECONDS)
    return process.returncode, output, errors


def ledger_lines(run: Path) -> list[dict[str, Any]]:
    path = run / LEDGER
    if not path.exists():
        return []
    whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def model_calls(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["role"] == "chat"]


@pytest.fixture
def setting(tmp_path: Path, chat_place: Place) -> tuple[Path, list[str]]:
    """The run's directory and the arguments that begin it."""
    data, settings = write_data(tmp_path / "lake.jsonl"), write_settings(tmp_path / "settings.toml", chat_place)
    run = tmp_path / "run"
    return run, ["evolve", "--data", str(data), "--run", str(run), "--settings", str(settings)]


def test_a_run_whose_model_was_killed_is_resumed_and_pays_nothing_twice(
    setting: tuple[Path, list[str]], chat_place: Place
) -> None:
    run, arguments = setting
    first = command(*arguments)

    def goes_on() -> None:
        assert first.poll() is None, first.communicate()[1][-2000:]

    wait_until(lambda: len(model_calls(ledger_lines(run))) >= _LINES_BEFORE_THE_END, goes_on)
    processes = below(first.pid)
    if chat_place.server is not None:
        chat_place.server.kill()
    else:
        os.kill(next(one.number for one in processes if "EngineCore" in one.line), signal.SIGKILL)
    code, output, errors = ended(first)
    assert code == 7, (output, errors)
    assert "Traceback" not in errors
    told = [line for line in errors.splitlines() if line.startswith("prismem:")]
    assert len(told) == 1, errors
    assert left_of(processes) == []
    before = model_calls(ledger_lines(run))
    assert len(before) >= _LINES_BEFORE_THE_END

    if chat_place.server is not None:
        chat_place.server.start()
    code, output, errors = ended(command("resume", str(run)))
    assert code == 0, errors
    after = model_calls(ledger_lines(run))
    assert after[: len(before)] == before and len(after) > len(before)
    keys = [(line["stage"], line["key"]) for line in after if line["stage"] != "probe"]
    assert len(set(keys)) == len(keys)
    if chat_place.server is not None:
        new = after[len(before) :]
        counted = (sum(line["input_tokens"] for line in new), sum(line["output_tokens"] for line in new))
        assert counted == chat_place.server.tokens()


def test_an_interrupt_ends_a_run_that_is_waiting_for_replies(setting: tuple[Path, list[str]]) -> None:
    run, arguments = setting
    process = command(*arguments)

    def goes_on() -> None:
        assert process.poll() is None, process.communicate()[1][-2000:]

    wait_until(lambda: bool(model_calls(ledger_lines(run))), goes_on)
    processes = below(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    code, _, errors = ended(process)
    assert code == 130 and "Traceback" not in errors, errors
    assert [line for line in errors.splitlines() if line.startswith("prismem:")][-1].startswith("prismem: interrupted")
    assert left_of(processes) == []


def test_an_evaluation_says_what_the_server_counted_and_leaves_stdout_clean(
    tmp_path: Path, chat_place: Place, tiny_embedder: Path
) -> None:
    in_process = chat_place.server is None
    data = write_data(tmp_path / "lake.jsonl")
    settings = write_settings(tmp_path / "settings.toml", chat_place, tiny_embedder if in_process else None)
    before = (0, 0) if in_process else chat_place.server.tokens()
    arguments = ["--data", str(data), "--part", "all", "--settings", str(settings), "--json"]
    code, output, errors = ended(command("evaluate", "seed", "naive_rag", *arguments))
    assert code == 0, errors
    result = json.loads(output)
    assert list(result["programs"]) == ["seed", "naive_rag"] and result["failed"] == {}
    spent = {name: usage for name, usage in result["calls"].items() if name.startswith("chat/")}
    assert {"chat/extract", "chat/plan", "chat/answer"} <= set(spent)
    if in_process:
        rows = [usage for name, usage in result["calls"].items() if name.startswith("embedder/")]
        assert sum(usage["input_tokens"] for usage in rows) > 0
    else:
        after = chat_place.server.tokens()
        paid = tuple(sum(usage[kind] for usage in spent.values()) for kind in ("input_tokens", "output_tokens"))
        assert paid == (after[0] - before[0], after[1] - before[1])


def test_a_model_that_is_not_there_is_one_clear_line(tmp_path: Path, tiny_chat: Path) -> None:
    data = write_data(tmp_path / "lake.jsonl")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text('{"model_type": "no-such-model"}', encoding="utf-8")
    for model, said in ((tmp_path / "absent", "there is no model directory"), (broken, "vLLM could not start")):
        chat = ("--chat", f"vllm:{model}", "--embedder", "hashing")
        code, _, errors = ended(command("evaluate", "seed", "--data", str(data), "--part", "all", *chat))
        told = [line for line in errors.splitlines() if line.startswith("prismem:")]
        assert code == 7 and len(told) == 1 and said in told[0], errors
        assert "Traceback" not in errors
