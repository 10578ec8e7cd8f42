"""Keys, headers and the texts of private conversations stay where they are documented to be (docs/security.md)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import prismem_core
from tests.scripted_server.fixture import ScriptedServer

SCRIPT = "import sys; from prismem_core.cli.main import main; sys.argv = ['prismem', *sys.argv[1:]]; main()"
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
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(prismem_core.__file__).parents[1]),
        "OPENAI_API_KEY": KEY,
        "OPENAI_ORG_ID": ORGANISATION,
        "OPENAI_CUSTOM_HEADERS": f"x-mark: {HEADER}",
    }
    command = [sys.executable, "-c", SCRIPT, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, cwd="/")


def models(server: ScriptedServer) -> list[str]:
    """Every role is played by the scripted server."""
    words = ["--chat", server.model(), "--judge", server.model("judge"), "--embedder", server.model("embedding")]
    for role in ("task", "judge", "embedding"):
        words += ["--set", f"models.{role}.retries=0"]
    return words


def holding(folder: Path, word: str) -> set[str]:
    """The files below a folder that hold a word, also in compressed or other spellings that are plain bytes."""
    found = set()
    for path in folder.rglob("*"):
        if path.is_file() and word.encode() in path.read_bytes():
            found.add(path.relative_to(folder).parts[0])
    return found


SECRETS = (KEY, KEY[3:], ORGANISATION, HEADER)
DOCUMENTED = {"cache", "calls.jsonl", "evaluations", "journal.jsonl", "programs", "patches", "report.md"}


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_faulty_server_learns_nobody_what_was_said(
    scripted_server: ScriptedServer, private_talks: Path, tmp_path: Path, fault: dict[str, Any]
) -> None:
    pytest.importorskip("openai")
    scripted_server.play({"skip": 5, "do": fault})
    run = tmp_path / "run"
    done = prismem("evolve", "--data", private_talks, "--run", run, *models(scripted_server), *FAST)
    shown = done.stdout + done.stderr
    assert PRIVATE not in shown
    assert not any(secret in shown for secret in SECRETS), shown
    for secret in SECRETS:
        assert holding(run, secret) == set()
    if done.returncode:
        assert len([line for line in done.stderr.splitlines() if line.startswith("prismem: ")]) >= 1, done.stderr
        assert "Traceback" not in done.stderr
