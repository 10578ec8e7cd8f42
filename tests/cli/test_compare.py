"""`prismem compare` from the outside: its files, the example of its guide, Ctrl-C, and slips of the user."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integrations.talks import write_talks

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "import sys; from prismem_core.cli.main import main; sys.argv = ['prismem', *sys.argv[1:]]; main()"
FAST = ["--part", "all", "--embedder", "hashing", "--set", "reranker=false"]
SLEEPS = """
import time
from pathlib import Path

class Sleeps:
    identity = "sleeps 1"
    def __init__(self, models, folder):
        self.folder = folder
    def add(self, session):
        import os
        Path({told!r}).write_text(str(os.getpid()))
        time.sleep(3600)
    def retrieve(self, question):
        return ""
    def close(self):
        pass
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_talks(tmp_path / "talks.jsonl")


def begin(*words: str, folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, "-c", SCRIPT, "compare", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=environment, **pipes)  # type: ignore[call-overload, no-any-return]


def compare(*words: str, folder: Path) -> tuple[int, str, str]:
    with begin(*words, folder=folder) as process:
        out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def test_the_adapter_of_the_guide_runs_as_it_stands(data: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "my_memory.py").write_text(example, encoding="utf-8")
    files = [folder / "table.md", folder / "table.json"]
    outputs = [word for file in files for word in ("--output", str(file))]
    words = ["bm25-rag", "python:my_memory:LastSessions", "--data", str(data), *FAST, *outputs]
    code, out, err = compare(*words, "--json", folder=folder)
    assert code == 0, err
    result = json.loads(out)
    assert result == json.loads(files[1].read_text())
    assert result["systems"]["python:my_memory:LastSessions"]["summary"]["recall"] == 1.0
    assert files[0].read_text().startswith("# Comparison of memory systems\n")
    assert "| python:my_memory:LastSessions | 6 of 6 |" in files[0].read_text()
    left = {path.name for path in folder.iterdir()} - {"__pycache__"}
    assert left == {"my_memory.py", "table.md", "table.json"}


def told(path: Path, process: subprocess.Popen[str]) -> int:
    """The process id that a system wrote down once it was at work."""
    deadline = time.monotonic() + 200
    while not path.exists() or not path.read_text():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return int(path.read_text())


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill"])
def test_no_system_outlives_the_command(data: Path, tmp_path: Path, blow: signal.Signals) -> None:
    folder, note = tmp_path / "work", tmp_path / "pid"
    folder.mkdir()
    (folder / "sleeping.py").write_text(SLEEPS.format(told=str(note)))
    with begin("python:sleeping:Sleeps", "--data", str(data), *FAST, folder=folder) as process:
        pid = told(note, process)
        process.send_signal(blow)
        _, err = process.communicate(timeout=120)
    assert gone(pid)
    # There is a process for each worker, and each clears away its own files.
    deadline = time.monotonic() + 60
    while list(folder.glob("prismem-system-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not list(folder.glob("prismem-system-*"))
    if blow == signal.SIGINT:
        assert process.returncode == 130
        assert err.count("\n") == 1, err
        assert "interrupted" in err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["seed", "--set", "T1=3"], 2, "'T1' is no setting of a comparison"),
        (["python:no_module:Memory"], 2, "cannot be used"),
        (["python:bad name:Memory"], 2, "write python:MODULE:CLASS"),
        (["no-such-system"], 3, "outside systems: mem0, a-mem"),
        (
            ["seed", "no-such-system"],
            3,
            "no program at no-such-system: No such file or directory; give a file or one of",
        ),
        (["seed", "seed"], 2, "the same system is named twice: seed; name each once"),
        (["bm25-rag", "seed", "bm25_rag"], 2, "the same system is named twice: bm25-rag and bm25_rag"),
        (["seed", "--output", "t.xyz"], 2, "--output t.xyz: the form follows from the name's end; write .json or .md"),
        (["seed", "--output", "table"], 2, "write .json or .md"),
        ([], 2, "Missing argument"),
    ],
)
def test_a_slip_is_one_line(data: Path, tmp_path: Path, words: list[str], code: int, said: str) -> None:
    returned, _, err = compare(*words, "--data", str(data), *FAST, folder=tmp_path)
    lines = [line for line in err.splitlines() if not line.startswith("prismem: isolation: ")]
    assert (returned, len(lines)) == (code, 1), err
    assert said in err
    assert not list(tmp_path.glob("t*.xyz")) and not (tmp_path / "table").exists()
