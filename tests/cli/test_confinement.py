"""What commands say of the sandbox: nothing, one line, a banner, or a refusal that says what to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from prismem_core.program import library
from prismem_core.program.sandbox import Sandbox

from .test_errors import FAST, prismem

LEAVE_OFF = (
    "import prismem_core.program.sandbox.sandbox as s; real = s.Launcher; "
    "s.Launcher = lambda without: real({{*without, *{names!r}}}); "
)
FLAG = "--unsafe-no-sandbox"
EVOLVE = ["evolve", "--data", "sample", *FAST, "--set", "T1=0", "--set", "T2=0", "--set", "T3=0"]
EVALUATE = ["evaluate", "seed", "--data", "sample", "--json", *FAST]


def without(*names: str) -> str:
    return LEAVE_OFF.format(names=names)


def commands(run: Path) -> dict[str, list[str]]:
    return {
        "evolve": [*EVOLVE, "--run", str(run)],
        "evaluate": EVALUATE,
        "validate": ["validate", "seed"],
        "explain-reuse": ["explain-reuse", "seed", "naive_rag", "--json"],
    }


@pytest.fixture(scope="module")
def complete() -> bool:
    with Sandbox() as sandbox:
        return all(layer.state == "witnessed" for layer in sandbox.layers())


@pytest.mark.parametrize("name", ["evolve", "evaluate", "validate", "explain-reuse"])
def test_without_seccomp_a_command_is_refused_and_says_what_to_do(name: str, tmp_path: Path) -> None:
    words = commands(tmp_path / "run")[name]
    result = prismem(*words, before=without("seccomp"))
    assert result.returncode == 8, result.stderr
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith("prismem: ") and "Traceback" not in line
    for told in ("seccomp", "Linux", "container", "WSL2", FLAG, "docs/security.md"):
        assert told in line
    assert not (tmp_path / "run").exists()
    # A variable or a setting is not enough: the flag must be said.
    result = prismem(*words, before="import os; os.environ['PRISMEM_UNSAFE_NO_SANDBOX'] = '1'; " + without("seccomp"))
    assert result.returncode == 8


def banner(stderr: str) -> list[str]:
    lines = stderr.splitlines()
    assert lines[0] == lines[-1] == "!" * 78, stderr
    assert "UNSAFE" in lines[1] and FLAG in lines[1]
    return lines[1:-1]


@pytest.mark.parametrize("name", ["evaluate", "validate", "explain-reuse"])
def test_the_flag_runs_marks_and_shouts(name: str, tmp_path: Path) -> None:
    result = prismem(*commands(tmp_path)[name], FLAG, before=without("seccomp"))
    assert result.returncode == 0, result.stderr
    assert any("WITHOUT KERNEL CONFINEMENT" in line for line in banner(result.stderr))
    if name == "validate":
        assert result.stdout.startswith("seed: ok (WEAK: programs ran WITHOUT kernel confinement")
    else:
        found = json.loads(result.stdout)["isolation"]
        assert (found["tier"], found["unsafe"], found["missing"][0]) == ("weak", True, "seccomp")


def test_a_run_begun_with_the_flag(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = commands(run)["evolve"]
    result = prismem(*words, FLAG, before=without("seccomp"))
    assert result.returncode == 0, result.stderr
    banner(result.stderr)
    assert "isolation: WEAK: programs ran WITHOUT kernel confinement" in result.stdout
    assert json.loads((run / "run.json").read_bytes())["isolation"]["tier"] == "weak"
    assert "**WEAK: programs ran WITHOUT" in (run / "report.md").read_text(encoding="utf-8")
    report = json.loads(prismem("report", str(run), "--json").stdout)
    assert report["isolation"]["tier"] == "weak"
    assert "isolation: WEAK" in prismem("report", str(run)).stdout
    # What is missing is done again, by a session that is asked anew.
    journal = run / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if b'"purpose":"test"' not in line))
    refused = prismem("resume", str(run), before=without("seccomp"))
    assert (refused.returncode, FLAG in refused.stderr) == (8, True)
    resumed = prismem("resume", str(run), FLAG, before=without("seccomp"))
    assert resumed.returncode == 0, resumed.stderr
    banner(resumed.stderr)


@pytest.mark.parametrize("words", [["validate", "seed"], ["explain-reuse", "seed", "naive_rag"]])
def test_one_line_names_missing_layers_and_none_when_all_are_there(words: Sequence[str], complete: bool) -> None:
    fine = prismem(*words)
    assert fine.returncode == 0
    if complete:
        assert fine.stderr == ""
    less = prismem(*words, before=without("landlock"))
    assert less.returncode == 0
    [line] = less.stderr.splitlines()
    assert line.startswith("prismem: isolation: standard; layers missing: ") and "landlock" in line


def test_strict_is_refused_where_a_layer_is_missing() -> None:
    result = prismem("validate", "seed", "--require", "strict", before=without("landlock"))
    assert result.returncode == 8
    assert "landlock" in result.stderr and "--require standard" in result.stderr and FLAG not in result.stderr
    both = prismem("validate", "seed", "--require", "strict", FLAG)
    assert both.returncode == 2 and "contradict" in both.stderr
    unknown = prismem("validate", "seed", "--require", "weak")
    assert unknown.returncode == 2 and "sandbox_require" in unknown.stderr


@pytest.mark.parametrize("name", ["evaluate", "validate", "explain-reuse"])
def test_with_the_flag_the_static_check_decides(name: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    left = tmp_path / "left"
    source = library.source("seed").replace("class Memory:\n", f"open({str(left)!r}, 'w')\n\n\nclass Memory:\n", 1)
    file.write_text(source, encoding="utf-8")
    words = [word if word != "seed" else str(file) for word in commands(tmp_path)[name]]
    result = prismem(*words, FLAG, before=without("seccomp", "empty_root", "own_user", "limits"))
    assert result.returncode == 6, result.stderr
    assert "the name open is not allowed" in result.stderr
    assert not left.exists()
