"""`prismem cache`: what it shows and changes, and what it refuses in one line."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from prismem_core._native import crc32c
from prismem_core.cache import ExecutionCache
from prismem_core.digests import digest

SCRIPT = "import sys; from prismem_core.cli.main import main; sys.argv = ['prismem', *sys.argv[1:]]; main()"


def prismem(*words: str | Path, before: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", before + SCRIPT, "cache", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


def done(*words: str | Path) -> str:
    result = prismem(*words)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def refused(result: subprocess.CompletedProcess[str], *expected: str) -> None:
    assert result.returncode not in (0, 1, -signal.SIGABRT, -signal.SIGSEGV), result.stdout
    [line] = result.stderr.splitlines()
    assert line.startswith("prismem: ")
    for words in expected:
        assert words in line


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """Two runs that share an entry, and an entry of none."""
    with ExecutionCache(tmp_path / "cache") as cache:
        with cache.tagged(run="one", program="p"):
            cache.put("ask", digest(1), b"1" * 1000, cost=1500)
            cache.put("embed", digest("both"), b"both")
        with cache.tagged(run="[red]two[/red]"):
            cache.put("ask", digest(2), b"2" * 1000, cost=500)
            cache.get("embed", digest("both"))
        cache.put("ask", digest("none"), b"none")
    return tmp_path / "cache"


def names(path: Path) -> set[str]:
    with ExecutionCache(path, read_only=True) as cache:
        return {entry.key for entry in cache.entries()}


def test_stats_show_sizes_stages_and_runs(filled: Path) -> None:
    out = done("stats", filled)
    assert "4 entries" in out and "1 segments" in out and "kB" in out
    rows = [line.replace("┃", "│").split("│") for line in out.splitlines()]
    cells = [[cell.strip() for cell in row[1:-1]] for row in rows]
    assert ["ask", "3", "2.0 kB", "2,000"] in cells
    assert ["embed", "1", "4 bytes", "0"] in cells
    assert ["one", "2"] in cells
    assert ["[red]two[/red]", "2"] in cells


def test_stats_as_json(filled: Path) -> None:
    found = json.loads(done("stats", filled, "--json"))
    assert found["directory"] == str(filled)
    assert (found["entries"], found["segments"]) == (4, 1)
    assert found["disk_bytes"] >= found["live_bytes"] > 2000
    assert found["stages"] == {
        "ask": {"entries": 3, "value_bytes": 2004, "cost": 2000.0},
        "embed": {"entries": 1, "value_bytes": 4, "cost": 0.0},
    }
    assert found["runs"] == {"one": 2, "[red]two[/red]": 2}


def test_verify_says_whether_all_is_sound(filled: Path) -> None:
    assert "4 entries are sound" in done("verify", filled)
    report = {"entries": 4, "bytes": 2008, "damaged": 0, "damaged_index": 0, "damaged_notes": 0, "clean": True}
    assert json.loads(done("verify", filled, "--json")) == report
    [segment] = filled.glob("segment-*")
    data = bytearray(segment.read_bytes())
    data[data.index(b"1" * 1000) + 7] ^= 1
    segment.write_bytes(data)
    result = prismem("verify", filled)
    assert (result.returncode, result.stderr) == (1, "")
    assert "3 entries are sound" in result.stdout and "1 damaged entries" in result.stdout
    result = prismem("verify", filled, "--json")
    assert result.returncode == 1
    assert json.loads(result.stdout)["damaged"] == 1


def test_compact_gives_room_back(filled: Path) -> None:
    with ExecutionCache(filled) as cache:
        cache.put("ask", digest("large"), bytes(500_000))
        cache.remove("ask", [digest("large")])
    assert done("compact", filled).startswith("500.")
    assert sum(path.stat().st_size for path in filled.glob("segment-*")) < 10_000
    assert len(names(filled)) == 4


def test_clear_removes_everything_when_told_so(filled: Path) -> None:
    refused(prismem("clear", filled), "nothing was removed", "--yes")
    assert len(names(filled)) == 4
    assert done("clear", filled, "--yes") == "4 entries removed\n"
    assert names(filled) == set()
    assert json.loads(done("stats", filled, "--json"))["runs"] == {}


def test_export_and_import_carry_a_run(filled: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert done("export", filled, out, "--run", "one") == f"2 entries in {out}\n"
    assert names(out) == {digest(1), digest("both")}
    assert json.loads(done("stats", out, "--json"))["runs"] == {"one": 2}
    assert done("export", filled, tmp_path / "stage", "--stage", "embed").startswith("1 entries")
    assert done("export", filled, tmp_path / "program", "--program", "p").startswith("2 entries")
    assert done("import", out, filled) == f"2 entries taken from {filled}\n"
    assert names(out) == names(filled)
    assert done("import", out, filled).startswith("0 entries")


def test_import_leaves_out_what_is_damaged_and_says_so(filled: Path, tmp_path: Path) -> None:
    with ExecutionCache(tmp_path / "to"):
        pass
    [segment] = filled.glob("segment-*")
    data = bytearray(segment.read_bytes())
    data[data.index(b"1" * 1000) + 7] ^= 1
    segment.write_bytes(data)
    result = prismem("import", tmp_path / "to", filled)
    assert (result.returncode, result.stdout) == (0, f"3 entries taken from {filled}\n")
    assert result.stderr.startswith("prismem: warning: 1 damaged entries or notes")
    assert len(result.stderr.splitlines()) == 1


def test_prune_takes_what_a_run_alone_used(filled: Path) -> None:
    assert done("prune", filled, "--run", "one", "--yes") == "1 entries removed\n"
    assert names(filled) == {digest(2), digest("both"), digest("none")}
    assert json.loads(done("stats", filled, "--json"))["runs"] == {"[red]two[/red]": 2}
    assert done("prune", filled, "--stage", "embed", "--unused-since", "30d", "--yes") == "0 entries removed\n"
    assert done("prune", filled, "--stage", "embed", "--unused-since", "2199-01-01", "--yes") == "1 entries removed\n"
    assert names(filled) == {digest(2), digest("none")}


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_terminal_is_asked(filled: Path, answer: str) -> None:
    controller, terminal = pty.openpty()
    command = [sys.executable, "-c", SCRIPT, "cache", "prune", str(filled), "--run", "one"]
    with subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        os.write(controller, answer.encode() + b"\n")
        out, _ = child.communicate(timeout=60)
    os.close(controller)
    os.close(terminal)
    assert "run 'one'" in out
    assert ("nothing was removed" in out) == (answer == "n")
    assert child.returncode == (1 if answer == "n" else 0)
    assert len(names(filled)) == (4 if answer == "n" else 3)


EVERY = [
    ["stats"],
    ["verify"],
    ["compact"],
    ["clear", "--yes"],
    ["export", "OUT"],
    ["import", "FILLED"],
    ["prune", "--stage", "ask", "--yes"],
]


@pytest.mark.parametrize("words", EVERY, ids=lambda words: words[0])
def test_a_place_that_is_no_cache_stays_as_it_is(filled: Path, tmp_path: Path, words: list[str]) -> None:
    def on(place: Path) -> subprocess.CompletedProcess[str]:
        given = {"OUT": str(tmp_path / "out"), "FILLED": str(filled)}
        return prismem(words[0], place, *(given.get(word, word) for word in words[1:]))

    refused(on(tmp_path / "absent"), "no directory at", "absent")
    (tmp_path / "empty").mkdir()
    refused(on(tmp_path / "empty"), "is not an execution cache")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("years of work")
    refused(on(tmp_path / "notes"), "is not an execution cache")
    refused(on(tmp_path / "notes" / "thesis.txt"), "no directory at")
    old = tmp_path / "old"
    old.mkdir()
    (old / "prismem-cache").write_bytes(b"prismem-core execution cache, format 1\ncrc32c ")
    refused(on(old), "is not an execution cache")
    line = b"prismem-core execution cache, format 1\n"
    (old / "prismem-cache").write_bytes(line + b"crc32c %08x\n" % crc32c(line))
    refused(on(old), "of format 1 and this version of prismem-core reads format 2")
    assert os.listdir(tmp_path / "empty") == []
    assert os.listdir(tmp_path / "notes") == ["thesis.txt"]
    assert os.listdir(old) == ["prismem-cache"]
    assert not (tmp_path / "absent").exists() and not (tmp_path / "out").exists()


# Without the rights of root, which no mode of a directory binds; what the command imports may be closed to others.
AS_NOBODY = """
import contextlib, io, os, sys
from prismem_core.cli.main import app
with contextlib.redirect_stdout(io.StringIO()):
    for verb in ("stats", "verify"):
        app(["cache", verb, sys.argv[3]], standalone_mode=False)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
"""


def test_a_read_only_cache_is_shown_and_never_changed(filled: Path) -> None:
    root = Path(tempfile.mkdtemp(prefix="prismem-cache-test-"))  # pytest's own places are closed to others
    place = root / "cache"
    shutil.copytree(filled, place)
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    for path in before:
        path.chmod(0o444)
    for path in (place, place / "runs", root):
        path.chmod(0o555)
    try:
        for words in (["stats"], ["verify"]):
            result = prismem(words[0], place, *words[1:], before=AS_NOBODY)
            assert (result.returncode, result.stderr) == (0, ""), words
        for words in (["compact"], ["clear", "--yes"], ["import", str(place)], ["prune", "--run", "one", "--yes"]):
            refused(prismem(words[0], place, *words[1:], before=AS_NOBODY), "cannot be written")
        assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
    finally:
        for path in (root, place, place / "runs"):
            path.chmod(0o755)
        shutil.rmtree(root)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["prune", "--yes"], "prune needs runs, a stage or unused_since"),
        (["prune", "--run", "three", "--yes"], "no run 'three'"),
        (["prune", "--unused-since", "yesterday", "--yes"], "neither a date"),
        (["prune", "--run", "one"], "--yes"),
        (["export", "OUT", "--run", "three"], "no run 'three'"),
        (["import", "OUT"], "no directory at"),
    ],
)
def test_wrong_words_change_nothing(filled: Path, tmp_path: Path, words: list[str], expected: str) -> None:
    given = [str(tmp_path / "out") if word == "OUT" else word for word in words[1:]]
    refused(prismem(words[0], filled, *given), expected)
    assert len(names(filled)) == 4
    assert not (tmp_path / "out").exists()


def test_an_export_never_writes_over_something(filled: Path, tmp_path: Path) -> None:
    refused(prismem("export", filled, tmp_path), "is there already")
    assert os.listdir(tmp_path) == ["cache"]


def test_help_names_every_verb() -> None:
    result = prismem("--help")
    assert result.returncode == 0
    for words in EVERY:
        assert words[0] in result.stdout


def test_ages_beyond_all_time_and_names_beyond_the_terminal_end_in_no_traceback(tmp_path: Path) -> None:
    with ExecutionCache(tmp_path) as cache, cache.tagged(run="m\ud800\x1b[31m\u00e9"):
        cache.put("s", digest(1), b"1")
    assert "0 entries removed" in done("prune", tmp_path, "--unused-since", "999999w", "--yes")
    shown = done("stats", tmp_path)
    assert "\\ud800" in shown and "\\x1b[31m" in shown and "\x1b[31m" not in shown
    assert list(json.loads(done("stats", tmp_path, "--json"))["runs"].values()) == [1]
