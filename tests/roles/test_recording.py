"""Recordings: what was paid for once is replayed without a model, and holds no key."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from prismem_core.errors import BudgetError, RoleError, SettingsError
from prismem_core.roles.account import Account
from prismem_core.roles.budget import Allowance, Budget
from prismem_core.roles.protocols import ChatReply, ChatRequest
from prismem_core.roles.recording import (
    Recorder,
    Recording,
    RecordingChat,
    RecordingEmbedder,
    ReplayedChat,
    ReplayedEmbedder,
)

MODELS = {"task": {"model": "openai:m@http://h/v1"}}


class Numbers:
    """Replies with a growing number."""

    identity = "numbers"

    def __init__(self) -> None:
        self.account = Account("chat")
        self.said = 0

    def complete(self, requests: list[ChatRequest]) -> list[ChatReply]:
        self.said += len(requests)
        return [ChatReply(f"{r.prompt} {self.said}", 3, 2, "length" if "cut" in r.prompt else "stop") for r in requests]


class Rows:
    identity = "rows"
    dimension = 3

    def embed(self, texts: list[str]) -> np.ndarray:
        return np.array([[len(text), 1e-30, -0.1] for text in texts], np.float32)


def ask(prompt: str, **more: object) -> ChatRequest:
    return ChatRequest("ask", "s", prompt, **more)  # type: ignore[arg-type]


def test_replies_and_rows_come_back_to_the_bit(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    recorder = Recorder(path, MODELS)
    chat, embedder = RecordingChat(Numbers(), recorder, "chat"), RecordingEmbedder(Rows(), recorder, "embedder")
    said = chat.complete([ask("a"), ask("b", sample=1)])
    again = chat.complete([ask("a"), ask("cut")])
    rows = embedder.embed(["x", "longer"])
    recorder.close()
    recording = Recording(path)
    assert recording.models == MODELS
    replayed = ReplayedChat(recording, "chat", "numbers")
    assert replayed.complete([ask("b", sample=1), ask("a")]) == [said[1], said[0]]
    # The nth asking has the nth reply, and then the last one.
    assert replayed.complete([ask("a"), ask("cut")]) == again
    assert replayed.complete([ask("a")]) == [again[0]]
    found, tokens = ReplayedEmbedder(recording, "embedder", "rows").embed_counted(["longer", "x"])
    assert found.tobytes() == rows[::-1].tobytes()
    assert list(tokens) == [2, 1]
    assert ReplayedEmbedder(recording, "embedder", "rows").dimension == 3


def test_what_was_not_recorded_is_refused_with_the_way_out(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r", MODELS)
    RecordingChat(Numbers(), recorder, "chat").complete([ask("a")])
    recorder.close()
    recording = Recording(tmp_path / "r")
    for request in (ask("b"), ask("a", sample=1), ask("a", max_tokens=5)):
        with pytest.raises(RoleError, match="no reply to this call of the chat model"):
            ReplayedChat(recording, "chat", "n").complete([request])
    with pytest.raises(RoleError, match="judge model"):
        ReplayedChat(recording, "judge", "n").complete([ask("a")])
    with pytest.raises(RoleError, match="lacks the embedding"):
        ReplayedEmbedder(recording, "embedder", "n").embed(["x"])


def test_a_budget_binds_a_replay(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r", MODELS)
    RecordingChat(Numbers(), recorder, "chat").complete([ask("a"), ask("b")])
    recorder.close()
    chat = ReplayedChat(Recording(tmp_path / "r"), "chat", "n")
    chat.account = Account("chat", None, Budget(Allowance(calls=1)))
    with pytest.raises(BudgetError):
        chat.complete([ask("a"), ask("b")])


def test_secrets_are_blotted_out_wherever_they_stand(tmp_path: Path) -> None:
    key = 'sk-"quoted"\\secret'
    recorder = Recorder(tmp_path / "r", MODELS, [key, "short"])
    RecordingChat(Numbers(), recorder, "chat").complete([ask(f"my key is {key}, short")])
    RecordingEmbedder(Rows(), recorder, "embedder").embed([f"{key}!"])
    recorder.close()
    lines = [json.loads(line) for line in (tmp_path / "r").read_text().splitlines()]
    assert "secret" not in json.dumps(lines)
    assert lines[1]["prompt"] == "my key is [scrubbed], short"
    assert lines[2]["embedded"] == "[scrubbed]!"
    assert (tmp_path / "r").stat().st_mode & 0o777 == 0o600


def test_a_torn_last_line_is_cut_and_the_recording_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "r"
    first = Recorder(path, MODELS)
    RecordingChat(Numbers(), first, "chat").complete([ask("a")])
    first.close()
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines(keepends=True)[-1][:40])
    second = Recorder(path, MODELS)
    RecordingChat(Numbers(), second, "chat").complete([ask("b")])
    second.close()
    recording = Recording(path)
    assert len(recording.replies) == 2
    assert path.read_bytes().startswith(whole)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no recording of model calls at"),
        (b'{"type": "conversation"}\n', "is no recording"),
        (b"not json\n", "is no recording"),
        pytest.param(b"[" * 2000 + b"\n", "is no recording", id="deep head"),
        pytest.param(
            b'{"format": "prismem-recording", "version": 1, "models": {}}\n' + b"[" * 2000 + b"\n",
            "line 2, is damaged",
            id="deep line",
        ),
        (b'{"format": "prismem-recording", "version": 9, "models": {}}\n', "format 9"),
        (b'{"format": "prismem-recording", "version": 1, "models": {}}\n{"role": "chat"}\n', "line 2, is damaged"),
    ],
)
def test_files_that_are_none_are_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "r"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=said):
        Recording(path)
    with pytest.raises(SettingsError, match="no recording"):
        Recording(tmp_path / "absent")


def test_a_file_of_something_else_or_of_other_models_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("my notes\nof today\n")
    with pytest.raises(SettingsError, match="is no recording"):
        Recorder(other, MODELS)
    assert other.read_text() == "my notes\nof today\n"
    short = tmp_path / "short"
    short.write_text("no line end")
    with pytest.raises(SettingsError, match="is no recording"):
        Recorder(short, MODELS)
    assert short.read_text() == "no line end"
    Recorder(tmp_path / "r", MODELS).close()
    head = (tmp_path / "r").read_bytes()
    (tmp_path / "torn").write_bytes(head[:30])
    Recorder(tmp_path / "torn", MODELS).close()
    assert (tmp_path / "torn").read_bytes() == head
    with pytest.raises(SettingsError, match="other models"):
        Recorder(tmp_path / "r", {"task": {"model": "openai:n@http://h/v1"}})
    with pytest.raises(SettingsError, match="cannot write"):
        Recorder(tmp_path / "nowhere" / "r", MODELS)
