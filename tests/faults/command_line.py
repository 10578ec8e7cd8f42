"""The command line in a process of its own, with the scripted server for the models that are named."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import prismem_core
from tests.scripted_server.fixture import ScriptedServer

SCRIPT = "import sys; from prismem_core.cli.main import main; sys.argv = ['prismem', *sys.argv[1:]]; main()"


def start(*words: str | Path, variables: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start the command."""
    environment = {**os.environ, "PYTHONPATH": str(Path(prismem_core.__file__).parents[1]), **(variables or {})}
    command = [sys.executable, "-c", SCRIPT, *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd="/"
    )


def prismem(*words: str | Path, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    with start(*words, variables=variables) as process:
        try:
            out, err = process.communicate(timeout=240)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def models(server: ScriptedServer, retries: int = 0) -> list[str]:
    """The options that give every role of an evaluation to the scripted server."""
    words = ["--chat", server.model(), "--judge", server.model("judge"), "--embedder", server.model("embedding")]
    for role in ("task", "judge", "embedding"):
        words += ["--set", f"models.{role}.retries={retries}"]
    return words
