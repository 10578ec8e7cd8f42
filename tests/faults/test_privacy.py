"""Keys, headers and the texts of private conversations stay where they are documented to be (docs/security.md)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from prismem_core.program import library
from tests.faults import command_line
from tests.faults.command_line import models
from tests.scripted_server.fixture import ScriptedServer

KEY = "sk-marked-4f1c9e77aa20"
ORGANISATION = "org-marked-8812"
HEADER = "marked-header-5510"
PRIVATE = "zyxomarine"
"""A word of the private conversation that occurs nowhere else."""

FAST = ["--set", "reranker=false", "--set", "T1=1", "--set", "T2=1", "--set", "T3=0"]

FAULTS: list[dict[str, Any]] = [
    {"status": 400, "error": f"bad request: Ines: I keep my {PRIVATE} secret. Authorization: Bearer {KEY}"},
    {"status": 401, "error": f"Incorrect API key provided: {KEY}"},
    {"status": 500, "error": f"echo {PRIVATE} {KEY}"},
    {"body": json.dumps({"detail": f"{PRIVATE} {KEY}"})},
    {"html": True},
    {"close": "body"},
    {"shape": "prose"},
    {"shape": "wrong_types"},
    {"shape": "half"},
    {"context": 20},
]


@pytest.fixture
def private_talks(talks: Path) -> Path:
    """The talks with a marked word in every turn, question and answer."""
    rows = [json.loads(line) for line in talks.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        for part in row.get("sessions", ()):
            for turn in part["turns"]:
                turn["text"] += f" I keep my {PRIVATE} secret."
        if row["type"] == "question":
            row["question"] = row["question"].replace("?", f" with the {PRIVATE}?")
            row["answer"] += f" of the {PRIVATE}"
    talks.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return talks


def prismem(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command with the marked key and header in its environment."""
    variables = {"OPENAI_API_KEY": KEY, "OPENAI_ORG_ID": ORGANISATION, "OPENAI_CUSTOM_HEADERS": f"x-mark: {HEADER}"}
    return command_line.prismem(*words, variables=variables)


def holding(folder: Path, word: str) -> set[str]:
    """The files below a folder that hold a word, also in compressed or other spellings that are plain bytes."""
    found = set()
    for path in folder.rglob("*"):
        if path.is_file() and word.encode() in path.read_bytes():
            found.add(path.relative_to(folder).parts[0])
    return found


SECRETS = (KEY, KEY[3:], ORGANISATION, HEADER)
READ_WITH_A_MODEL_ALONE = {"cache"}
"""Where a run keeps texts of conversations when no program and no model quotes them elsewhere."""


def check(done: subprocess.CompletedProcess[str], folder: Path) -> None:
    """Neither what was shown nor what was written holds a secret; what was shown holds no private text."""
    shown = done.stdout + done.stderr
    assert "Traceback" not in shown
    assert not [word for word in (PRIVATE, *SECRETS) if word in shown], shown
    assert {secret: files for secret in SECRETS if (files := holding(folder, secret))} == {}


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_faulty_server_spreads_nothing(
    scripted_server: ScriptedServer, private_talks: Path, tmp_path: Path, fault: dict[str, Any]
) -> None:
    pytest.importorskip("openai")
    scripted_server.play({"skip": 5, "do": fault})
    run = tmp_path / "run"
    done = prismem("evolve", "--data", private_talks, "--run", run, *models(scripted_server), *FAST)
    check(done, run)
    assert holding(run, PRIVATE) <= READ_WITH_A_MODEL_ALONE
    if done.returncode:
        # That a server heeds no schema is a warning of its own before it.
        told = [line for line in done.stderr.splitlines() if not line.startswith("prismem: warning: ")]
        assert len([line for line in told if line.startswith("prismem: ")]) == 1, done.stderr
    # What is looked for did go out, where it belongs.
    asked = scripted_server.requests("chat")
    assert any(e["behaviour"] for e in asked) and any(PRIVATE in str(e["body"]) for e in asked)
    assert all(["authorization", f"Bearer {KEY}"] in e["headers"] for e in scripted_server.log)
    assert not any(word in str(e["headers"]) for e in scripted_server.log for word in (ORGANISATION, HEADER))


@pytest.mark.parametrize("role", ["embeddings", "judge"])
def test_the_other_roles_spread_nothing(
    scripted_server: ScriptedServer, private_talks: Path, tmp_path: Path, role: str
) -> None:
    pytest.importorskip("openai")
    echo = {"status": 400, "error": f"cannot take {PRIVATE} from {KEY}"}
    rule = {"endpoint": "embeddings"} if role == "embeddings" else {"model": role}
    scripted_server.play({**rule, "skip": 1, "do": echo})
    run = tmp_path / "run"
    done = prismem(
        "evolve", "--data", private_talks, "--run", run, *models(scripted_server), *FAST, "--start", "naive_rag"
    )
    assert done.returncode == 7
    check(done, run)
    assert holding(run, PRIVATE) <= READ_WITH_A_MODEL_ALONE


def test_private_text_is_kept_where_it_is_documented(
    scripted_server: ScriptedServer, private_talks: Path, tmp_path: Path
) -> None:
    pytest.importorskip("openai")
    run, recording, questions = tmp_path / "run", tmp_path / "recording.jsonl", tmp_path / "questions.jsonl"
    words = [*models(scripted_server), *FAST, "--designer", scripted_server.model("designer"), "--record", recording]
    done = prismem("evolve", "--data", private_talks, "--run", run, *words)
    assert done.returncode == 0, done.stderr
    check(done, tmp_path)
    assert holding(run, PRIVATE) == READ_WITH_A_MODEL_ALONE
    assert PRIVATE in recording.read_text(encoding="utf-8")
    assert recording.stat().st_mode & 0o077 == 0
    done = prismem(
        "evaluate", "seed", "--data", private_talks, "--part", "all", *models(scripted_server), "--questions", questions
    )
    assert done.returncode == 0, done.stderr
    check(done, tmp_path)
    assert PRIVATE in questions.read_text(encoding="utf-8")


def test_a_program_that_fails_is_quoted_in_the_journal_alone(
    scripted_server: ScriptedServer, private_talks: Path, tmp_path: Path
) -> None:
    """Its message is the program's own text, which a designer needs; docs/security.md says so."""
    pytest.importorskip("openai")
    quoting = tmp_path / "quoting.py"
    source = library.source("seed")
    quoting.write_text(
        source.replace(
            "        self.memories.extend",
            "        assert len(units) != 4, raw_text[-40:]\n        self.memories.extend",
        )
    )
    run = tmp_path / "run"
    words = [*models(scripted_server), *FAST, "--start", quoting]
    done = prismem("evolve", "--data", private_talks, "--run", run, *words)
    assert done.returncode != 0
    assert not any(secret in done.stdout + done.stderr for secret in SECRETS)


def test_a_key_that_a_model_repeats_stays_out_of_a_recording(
    scripted_server: ScriptedServer, private_talks: Path, tmp_path: Path
) -> None:
    pytest.importorskip("openai")
    scripted_server.play({"purpose": "answer", "do": {"text": f"It is {KEY}."}})
    recording = tmp_path / "recording.jsonl"
    words = [*models(scripted_server), "--record", recording]
    done = prismem("evaluate", "seed", "--data", private_talks, "--part", "all", *words)
    assert done.returncode == 0, done.stderr
    assert holding(tmp_path, KEY) == set()
    assert "[scrubbed]" in recording.read_text(encoding="utf-8")
