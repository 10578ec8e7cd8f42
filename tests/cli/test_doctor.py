"""`prismem doctor` and a run inside other sandboxes: what these take away is told, and what is left confines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prismem_core.cli import main
from prismem_core.jobs import examination
from prismem_core.jobs.examination import Finding
from prismem_core.program.sandbox.layers import LAYERS
from tests.program.sandbox import outer_sandbox

PARTS = """
import json
from prismem_core.jobs.sandbox_examination import sandbox_parts
print(json.dumps({part: attempt() for part, attempt in sandbox_parts()}))
"""
# Two queries of one memory: each in a copy of its own where copies can be made, else built again.
RUN = """
import json, sys
from prismem_core.program import library
from prismem_core.program.sandbox import Sandbox

class Backend:
    def ask(self, prompt, system_prompt, json_object):
        return "answer"
    def embed(self, texts):
        import numpy as np
        return np.eye(len(texts), 8, dtype=np.float32)

with Sandbox() as sandbox:
    interface = sandbox.describe(library.source("seed"))
    unit = {field.name: "Ada lives in Turin" for field in interface.unit}
    query = {field.name: "Ada" for field in interface.query}
    with sandbox.open(library.source("seed"), Backend()) as worker:
        worker.index([unit], "Ada: I live in Turin.")
        print(json.dumps([worker.retrieve(query)[0], worker.retrieve(query)[0]]))
"""


def inside(kind: str, script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, outer_sandbox.__file__, kind, sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def parts_inside(kind: str) -> dict[str, tuple[str, str]]:
    done = inside(kind, PARTS)
    assert done.returncode == 0, done.stderr
    return {name: (state, message) for name, (state, message) in json.loads(done.stdout).items()}


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("container", {"namespaces", "empty_root"}),
        ("without-landlock", {"landlock"}),
        ("without-notification", {"copies"}),
    ],
)
def test_an_outer_sandbox_takes_layers_away_and_programs_run(kind: str, missing: set[str]) -> None:
    here = {name: state for name, (state, _) in parts_inside("nothing").items()}
    found = parts_inside(kind)
    for name in LAYERS:
        expected = "missing" if name in missing else here[f"sandbox: {name}"]
        assert found[f"sandbox: {name}"][0] == expected, found[f"sandbox: {name}"]
    assert found["sandbox tier"][0] == "ok"
    assert found["worker processes"][0] == "ok"
    done = inside(kind, RUN)
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)
    assert first == second and "Turin" in first


def test_what_takes_namespaces_away_is_named() -> None:
    message = parts_inside("container")["sandbox: namespaces"][1]
    assert "unshare: Operation not permitted" in message
    assert "seccomp profile that allows unshare" in message


def test_without_seccomp_programs_are_refused() -> None:
    found = parts_inside("without-seccomp")
    assert found["sandbox: seccomp"][0] == found["sandbox: copies"][0] == "missing"
    assert "Function not implemented" in found["sandbox: seccomp"][1]
    assert found["sandbox tier"] == (
        "broken",
        "weak, but standard is required and needs seccomp too (docs/security.md)",
    )
    done = inside("without-seccomp", RUN)
    assert done.returncode != 0
    assert "SandboxError" in done.stderr and "seccomp" in done.stderr


def _doctor(monkeypatch: pytest.MonkeyPatch, state: str, *words: str) -> tuple[int, list[str], str]:
    asked: list[str] = []

    def examine(require: str) -> list[Finding]:
        asked.append(require)
        return [Finding("sandbox: seccomp", "witnessed", "refused: fork"), Finding("sandbox tier", state, "standard")]

    monkeypatch.setattr(examination, "examine", examine)
    result = CliRunner().invoke(main.app, ["doctor", *words])
    return result.exit_code, asked, result.output


def test_the_exit_code_is_that_of_the_required_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _doctor(monkeypatch, "ok")[:2] == (0, ["standard"])
    assert _doctor(monkeypatch, "ok", "--require", "strict")[:2] == (0, ["strict"])
    code, asked, output = _doctor(monkeypatch, "broken", "--require", "strict")
    assert (code, asked) == (1, ["strict"])
    assert "sandbox: seccomp" in output and "witnessed" in output


def test_an_unknown_tier_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    code, asked, _ = _doctor(monkeypatch, "ok", "--require", "absolute")
    assert code != 0 and asked == []


def test_every_part_is_told(tmp_path: Path) -> None:
    script = "import sys; from prismem_core.cli.main import main; sys.argv = ['prismem', 'doctor']; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, cwd=tmp_path)
    for part in ("native ops", "execution cache", "worker processes", "sandbox tier", "sample data"):
        assert part in done.stdout
    assert all(f"sandbox: {name}" in done.stdout for name in LAYERS)
    assert list(tmp_path.iterdir()) == []
