"""What a user gets wrong ends in one clear line, an exit code other than 0, and nothing lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prismem_core._native import crc32c
from prismem_core.program import library

SCRIPT = "import sys; from prismem_core.cli.main import main; sys.argv = ['prismem', *sys.argv[1:]]; main()"
FAST = ["--set", "embedder=hashing", "--set", "reranker=false"]


def prismem(*words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    code = before + SCRIPT
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=240)


def refused(result: subprocess.CompletedProcess[str], *expected: str) -> None:
    assert result.returncode not in (0, -signal.SIGABRT, -signal.SIGSEGV), result.stdout
    # Where layers of the sandbox are missing, one more line says so.
    lines = [line for line in result.stderr.splitlines() if not line.startswith("prismem: isolation: ")]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("prismem: ")
    for words in expected:
        assert words in lines[0]


def evolve(data: str | Path, run: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return prismem("evolve", "--data", str(data), "--run", str(run), *FAST, *more)


def test_a_missing_file(tmp_path: Path) -> None:
    refused(evolve(tmp_path / "nowhere.json", tmp_path / "run"), "no data set at", "nowhere.json")
    assert not (tmp_path / "run").exists()


def test_broken_json(tmp_path: Path) -> None:
    data = tmp_path / "broken.json"
    data.write_text('[{"sample_id": "a", ', encoding="utf-8")
    refused(evolve(data, tmp_path / "run"), "broken.json", "line 1")
    assert not (tmp_path / "run").exists()


def test_an_unknown_data_set(tmp_path: Path) -> None:
    data = tmp_path / "other.json"
    data.write_text('{"rows": [1, 2]}', encoding="utf-8")
    refused(evolve(data, tmp_path / "run"), "no known format", "LoCoMo", "BEAM")
    refused(evolve("samples", tmp_path / "run"), "samples", '"sample"')
    refused(prismem("evaluate", "seed", "--data", ""), "--data", "it is empty")


def test_an_interface_that_does_not_serve_the_program() -> None:
    needs = 'backend.collection needs interface="engine"'
    refused(prismem("validate", "collection-rag"), "forbidden_access", needs)
    refused(prismem("validate", "collection-rag", "--static", "--interface", "paper"), needs)
    refused(
        prismem("evaluate", "collection-rag", "--data", "sample", "--json", *FAST),
        "line 31",
        f"{needs}; add --interface engine",
    )
    refused(prismem("validate", "seed", "--interface", "fast"), "interface = 'fast'", "'paper' or 'engine'")
    fine = prismem("validate", "collection-rag", "--static", "--interface", "engine")
    assert (fine.returncode, fine.stdout) == (0, "collection-rag: ok\n"), fine.stderr


def test_a_directory_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    for words in (["resume"], ["report"], ["report", "--json"]):
        refused(prismem(words[0], str(tmp_path), *words[1:]), "is not a run directory")
    refused(prismem("report", str(tmp_path / "nowhere")), "no run directory")
    refused(evolve("sample", tmp_path), "is not empty")
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_a_start_that_is_no_program_leaves_nothing_behind(tmp_path: Path) -> None:
    start = tmp_path / "start.py"
    for source, expected in (("def f(:\n", "syntax_error"), ("import os\n", "forbidden_import")):
        start.write_text(source, encoding="utf-8")
        refused(evolve("sample", tmp_path / "run", "--start", str(start)), expected)
        assert not (tmp_path / "run").exists()


def test_a_cache_of_another_format_leaves_nothing_behind(tmp_path: Path) -> None:
    line = b"prismem-core execution cache, format 1\n"
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "prismem-cache").write_bytes(line + b"crc32c %08x\n" % crc32c(line))
    refused(evolve("sample", tmp_path / "run", "--cache", str(tmp_path / "cache")), "of format 1", "another directory")
    assert not (tmp_path / "run").exists()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["prismem-cache"]


def test_evaluate_refuses_before_it_works(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("def f(:\n", encoding="utf-8")
    words = ["evaluate", "seed", "--data", "sample", *FAST]
    refused(prismem(*words, str(bad)), "bad.py: SyntaxError")
    refused(prismem(*words, "--questions", str(tmp_path / "nowhere" / "q.jsonl")), "cannot write", "q.jsonl")


def test_a_program_that_fails_costs_the_others_nothing(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(library.source("seed").replace("self.memories.extend(", "1 / 0; self.memories.extend("))
    result = prismem("evaluate", str(bad), "full_context", "--data", "sample", "--json", *FAST)
    refused(result, "bad.py, line ", "index failed on ", "ZeroDivisionError")
    found = json.loads(result.stdout)
    assert list(found["failed"]) == [str(bad)] and set(found["programs"]) == {str(bad), "full_context"}
    broken, whole = found["programs"][str(bad)], found["programs"]["full_context"]
    assert (broken["scored"], broken["score"], broken["overall"]) == (0, None, None)
    assert broken["left_out"] == {"provider": 0, "judge": 0, "candidate": whole["questions"], "limit": 0}
    assert whole["scored"] == whole["questions"] and not any(whole["left_out"].values())


def test_a_warning_is_one_line_too() -> None:
    give = "import warnings; from prismem_core.cli import main as cli; "
    give += "cli.app.command('warn')(lambda: warnings.warn('two\\nlines')); "
    result = prismem("warn", before=give)
    assert result.returncode == 0, result.stderr
    assert result.stderr == "prismem: warning: two lines\n"


def test_a_manifest_out_of_form(tmp_path: Path) -> None:
    head = {"format": "prismem-run", "format_version": 1, "version": "0.1.0"}
    for rest, expected in (
        ({"settings": [], "data": {}, "roles": {}, "extra": {}}, "'settings'"),
        ({"settings": {}, "data": {}, "roles": {}, "extra": {}}, "does not say how to go on"),
    ):
        (tmp_path / "run.json").write_text(json.dumps({**head, **rest}), encoding="utf-8")
        refused(prismem("resume", str(tmp_path)), expected)


def test_no_command_shows_the_help_and_says_so() -> None:
    result = prismem()
    refused(result, "no command was given")
    assert "evolve" in result.stdout


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--set", "T4=2"], "did you mean"),
        (["--set", "wrokers=2"], "did you mean workers"),
        (["--set", "T2"], "KEY=VALUE"),
        (["--set", "delta=7"], "delta"),
        (["--set", "reuse=some"], "reuse"),
        (["--set", "cache_bytes=12"], "cache_bytes"),
        (["--start", "nothing"], "no program at nothing"),
        (["--start", "/dev/zero"], "/dev/zero is no program: it has more than 200000 bytes"),
        (["--strategy", "greedy"], "strategy"),
        (["--split", "nowhere.json"], "nowhere.json"),
        (["--settings", "nowhere.toml"], "nowhere.toml"),
    ],
)
def test_wrong_settings(tmp_path: Path, more: list[str], expected: str) -> None:
    refused(evolve("sample", tmp_path / "run", *more), expected)
    assert not (tmp_path / "run").exists()


def test_settings_file_with_unknown_keys(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    for text, expected in (
        ("[job]\nworker = 2\n", "did you mean workers"),
        ("[evolutoin]\nT1 = 2\n", "evolutoin"),
        ("T1 = 2\n", "[evolution]"),
        ("[job\n", "not valid TOML"),
    ):
        path.write_text(text, encoding="utf-8")
        refused(evolve("sample", tmp_path / "run", "--settings", str(path)), expected)


def test_a_split_that_names_a_conversation_twice(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    for value in ({"train": ["no-such"], "valid": [], "test": []}, {"rehearsal": []}, ["a"]):
        path.write_text(json.dumps(value), encoding="utf-8")
        refused(evolve("sample", tmp_path / "run", "--split", str(path)))


def test_a_run_that_another_process_uses(tmp_path: Path) -> None:
    run = tmp_path / "run"
    holder = (
        "from pathlib import Path; from filelock import FileLock; import sys, time; d = Path(sys.argv[1]); "
        "d.mkdir(); (d / 'run.json').write_text('{\"format\": \"prismem-run\"}'); "
        "lock = FileLock(d / 'run.lock'); lock.acquire(); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", holder, str(run)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            refused(evolve("sample", run), "in use by another process")
        finally:
            process.kill()


def test_a_full_disk_stops_the_run_and_loses_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    limited = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    limited += "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY)); "
    words = ["evolve", "--data", "sample", "--run", str(run), *FAST, "--set", "T1=1", "--set", "T2=0", "--set", "T3=0"]
    result = prismem(*words, before=limited)
    assert result.returncode not in (0, 1) or "cannot write" in result.stderr
    assert "Traceback" not in result.stderr
    assert [line for line in result.stderr.splitlines() if line.startswith("prismem: ")], result.stderr
    done = prismem("resume", str(run))
    assert done.returncode == 0, done.stderr
    assert "report:" in done.stdout


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c(tmp_path: Path, times: int) -> None:
    run = tmp_path / "run"
    words = ["evolve", "--data", "sample", "--run", str(run), *FAST]
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not (run / "calls.jsonl").exists() or (run / "calls.jsonl").stat().st_size < 10_000:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "prismem resume" in errors.strip().splitlines()[-1]
    journal = (run / "journal.jsonl").read_bytes()
    assert journal.endswith(b"\n")
    assert all(json.loads(line) for line in journal.splitlines())


def test_help_teaches() -> None:
    whole = prismem("--help")
    assert whole.returncode == 0
    for name in ("evolve", "resume", "evaluate", "validate", "report", "doctor"):
        assert name in whole.stdout
    evolution = prismem("evolve", "--help").stdout
    for words in ("--data", "seed by default", "tables job and evolution"):
        assert words in " ".join(evolution.replace("│", " ").split())
    unknown = prismem("evolv")
    assert unknown.returncode != 0
    assert "evolv" in unknown.stderr
    assert "Traceback" not in unknown.stderr


def test_validate_speaks_of_the_programs_own_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("import os\n", encoding="utf-8")
    refused(prismem("validate", str(path)), "forbidden_import", "line 1")
    good = prismem("validate", "seed")
    assert good.returncode == 0, good.stderr
    assert good.stdout.strip().endswith("seed: ok")


def test_the_version() -> None:
    from prismem_core import __version__

    shown = prismem("--version")
    assert shown.returncode == 0
    assert shown.stdout == f"prismem-core {__version__}\n"
