"""A memory as a file: nothing is paid for twice, a kill loses nothing that was saved, damage is told."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from prismem_core._native import crc32c
from prismem_core.errors import ArgumentError, DataError, SavedMemoryError
from prismem_core.memory import Memory
from prismem_core.memory.saved import HEAD, read_saved
from prismem_core.program import library
from prismem_core.program.manifest import with_manifest
from prismem_core.tasks.datasets import load_histories
from tests.memory.conftest import JUNE, MAY, SETTINGS

Make = Callable[..., Memory]
QUESTION = "What is the cat called?"


def calls(memory: Memory, stage: str) -> int:
    return memory.usage.get(stage, {}).get("calls", 0)


@pytest.fixture
def saved(make: Make, tmp_path: Path) -> Path:
    path = tmp_path / "talk.memory"
    with make() as memory:
        memory.add(MAY, JUNE)
        memory.ask(QUESTION)
        memory.save(path)
    return path


@pytest.mark.parametrize("program", ["seed", "naive_rag", "bm25_rag", "collection_rag"])
def test_after_loading_nothing_is_extracted_or_embedded_again(make: Make, tmp_path: Path, program: str) -> None:
    path = tmp_path / "a.memory"
    with make(program) as memory:
        memory.add(MAY, JUNE)
        before = memory.ask(QUESTION)
        embedded = calls(memory, "embedder/embed")
        memory.save(path)
    with Memory.load(path) as memory:
        assert memory.ask(QUESTION) == before
        assert calls(memory, "chat/extract") == 0
        assert calls(memory, "embedder/embed") == 0
        assert (program in ("seed", "bm25_rag")) == (embedded == 0)
        memory.add({"turns": [{"speaker": "Ben", "text": "Miso broke a vase."}]})
        assert "vase" in memory.ask("What did Miso break?").retrieved
        assert calls(memory, "chat/extract") == 1
        assert [session.id for session in memory.sessions] == ["1", "2", "3"]
        memory.save(path)
    with Memory.load(path) as memory:
        assert "vase" in memory.ask("What did Miso break?").retrieved
        assert calls(memory, "chat/extract") == 0


def test_settings_and_a_manifest_come_back(tmp_path: Path) -> None:
    text = with_manifest(
        library.source("seed"), {"settings": {**SETTINGS, "segment_chars": 300}, "roles": {}, "x": "y"}
    )
    program = tmp_path / "exported.py"
    program.write_text(text, encoding="utf-8")
    with Memory.load(program, settings={"output_retries": 5}) as memory:
        memory.add([{"speaker": "Ana", "text": f"Lake {i} " * 40} for i in range(3)])
        memory.save(tmp_path / "a.memory")
    with Memory.load(tmp_path / "a.memory") as memory:
        memory.ask("Which lake?")
        assert calls(memory, "chat/extract") == 0
        memory.save(tmp_path / "b.memory")
    (tmp_path / "cache").mkdir()
    again = read_saved(tmp_path / "b.memory", tmp_path / "cache")
    assert again.program == text
    assert again.settings["output_retries"] == 5
    assert again.settings["segment_chars"] == 300


def test_what_a_file_holds(saved: Path) -> None:
    """No question, no answer, no place of the machine; the talk is there for anybody who can unzip."""
    with zipfile.ZipFile(saved) as archive:
        names = archive.namelist()
        assert names[:3] == [HEAD, "program.py", "sessions.jsonl"]
        assert names[3] == "cache/prismem-cache" and all("segment-" in name for name in names[4:])
        assert archive.read("program.py").decode() == library.source("naive_rag")
        (saved.parent / "sessions.jsonl").write_bytes(archive.read("sessions.jsonl"))
    (history,) = load_histories(saved.parent / "sessions.jsonl").values()
    assert [turn.text for session in history.sessions for turn in session.turns] == [
        turn["text"] for session in (MAY, JUNE) for turn in session["turns"]
    ]
    data = saved.read_bytes()
    assert QUESTION.encode() not in data
    for place in (str(saved.parent), tempfile.gettempdir(), str(Path.home())):
        assert place.encode() not in data


def test_texts_of_every_kind_come_back(make: Make, tmp_path: Path) -> None:
    text = 'half \ud800 pair, null \x00, lines \r\n \u2028 \x85 ends, 昨天我看了一部电影, مرحبا, "quotes" \\ </s> ```'
    with make("full_context") as memory:
        memory.add({"id": "a\nb", "time": text, "turns": [{"id": "ü 1", "speaker": "Ana\u2029", "text": text}]})
        sessions, retrieved = memory.sessions, memory.ask("What?").retrieved
        memory.save(tmp_path / "a.memory")
    with Memory.load(tmp_path / "a.memory") as memory:
        assert memory.sessions == sessions
        assert memory.ask("What?").retrieved == retrieved
        assert calls(memory, "chat/extract") == 0


def test_a_memory_that_was_never_asked_is_saved_with_all_that_it_takes(make: Make, tmp_path: Path) -> None:
    with make() as memory:
        memory.add(MAY)
        memory.save(tmp_path / "a.memory")
    with Memory.load(tmp_path / "a.memory") as memory:
        assert "Miso" in memory.ask(QUESTION).retrieved
        assert calls(memory, "embedder/embed") == 1, "the question alone"


def test_an_empty_memory_is_saved_and_loaded(make: Make, tmp_path: Path) -> None:
    with make() as memory:
        memory.save(tmp_path / "a.memory")
    with Memory.load(tmp_path / "a.memory") as memory:
        assert memory.sessions == ()
        memory.add(MAY)
        assert "Miso" in memory.ask(QUESTION).retrieved


def test_another_model_than_before_is_told(saved: Path, caplog: pytest.LogCaptureFixture) -> None:
    # As if it had been made where the embedder was another one.
    rewritten = saved.with_name("other.memory")
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(rewritten, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == HEAD:
                head = json.loads(data)
                head["roles"]["embedder"] = "bge-of-yesterday"
                data = json.dumps(head).encode()
            new.writestr(name, data)
    with caplog.at_level(logging.WARNING, "prismem_core"), Memory.load(rewritten) as memory:
        assert "Miso" in memory.ask(QUESTION).retrieved
    assert "was made with bge-of-yesterday" in caplog.text
    assert "embedded anew" in caplog.text


def test_a_file_is_replaced_only_by_a_memory_that_is_whole(saved: Path, make: Make, tmp_path: Path) -> None:
    before = saved.read_bytes()
    with make() as memory:
        foreign = tmp_path / "letter.txt"
        foreign.write_text("Dear Ana", encoding="utf-8")
        archive = tmp_path / "photos.zip"
        with zipfile.ZipFile(archive, "w") as photos:
            photos.writestr("a.jpg", b"x")
        for path in (foreign, archive, tmp_path):
            with pytest.raises(SavedMemoryError, match="is there already and is no saved memory"):
                memory.save(path)
        with pytest.raises(SavedMemoryError, match=r"cannot write .*No such file"):
            memory.save(tmp_path / "missing" / "a.memory")
        with pytest.raises(ArgumentError, match="the path is of type int"):
            memory.save(7)  # type: ignore[arg-type]
        assert saved.read_bytes() == before
        memory.save(saved)
        assert saved.read_bytes() != before
    assert foreign.read_text(encoding="utf-8") == "Dear Ana"
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]


def test_a_full_disk_leaves_what_was_saved(saved: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with make() as memory:
        memory.add(MAY)
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(SavedMemoryError, match=r"cannot write .*No space left.*saved there before is kept"):
            memory.save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


KILLED = """
import sys
from prismem_core import Memory
path = sys.argv[1]
settings = {"embedder": "hashing", "reranker": False}
with Memory.load(path, settings=settings) as memory:
    number = len(memory.sessions)
    while True:
        number += 1
        memory.add({"turns": [{"speaker": "Ana", "text": f"Lake number {number} is wide. " * 50}]})
        memory.save(path)
        print(number, flush=True)
"""


def test_a_kill_at_any_moment_leaves_the_last_memory_that_was_saved(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "talk.memory"
    with make("full_context") as memory:
        memory.save(path)
    chance, acknowledged = random.Random(7), 0
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path)],
            stdout=subprocess.PIPE,
            text=True,
            # What a killed process leaves there is the test's own to sweep.
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        assert process.stdout is not None
        for _ in range(chance.randint(1, 4)):
            acknowledged = int(process.stdout.readline())
        try:
            process.wait(chance.random() * 0.05)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        acknowledged = int([str(acknowledged), *process.stdout.read().split()][-1])
        process.wait()
        process.stdout.close()
        with Memory.load(path) as memory:
            assert acknowledged <= len(memory.sessions) <= acknowledged + 1
            assert "wide" in memory.ask("Which lake is wide?").retrieved
            assert calls(memory, "chat/extract") == 0
            acknowledged = len(memory.sessions)


def test_saves_of_several_threads_leave_a_whole_file(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "talk.memory"
    with make() as memory, ThreadPoolExecutor(6) as pool:
        saves = []
        for i in range(6):
            memory.add([{"speaker": "Ana", "text": f"Lake number {i}."}])
            saves.append(pool.submit(memory.save, path))
        for save in saves:
            save.result()
        memory.save(path)
    with Memory.load(path) as memory:
        assert len(memory.sessions) == 6
        memory.ask("Which lake?")
        assert calls(memory, "chat/extract") == 0


def test_every_cut_and_every_flipped_byte_is_told_or_harmless(saved: Path, tmp_path: Path) -> None:
    data = saved.read_bytes()
    (tmp_path / "whole").mkdir()
    whole = read_saved(saved, tmp_path / "whole")
    stored = {one.name: one.read_bytes() for one in (tmp_path / "whole").iterdir()}
    chance = random.Random(3)
    places = [*range(120), *chance.sample(range(len(data)), 300), *range(len(data) - 400, len(data))]
    damaged = tmp_path / "damaged.memory"
    refused = 0
    for number, place in enumerate(places):
        bad = data[:place] if number % 3 == 0 else data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :]
        damaged.write_bytes(bad)
        folder = tmp_path / f"cache-{number}"
        folder.mkdir()
        try:
            found = read_saved(damaged, folder)
        except SavedMemoryError as error:
            assert "damaged.memory" in str(error) and len(str(error)) < 400
            refused += 1
        else:
            # Times and the like, which nothing depends on.
            assert found == whole
            assert {one.name: one.read_bytes() for one in folder.iterdir()} == stored
    assert refused > len(places) * 0.6


def rewritten(saved: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """The file with another head, sound as an archive."""
    path = saved.with_name("rewritten.memory")
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, json.dumps(change(json.loads(data))) if name == HEAD else data)
    return path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda head: {**head, "format_version": 2}, "has format 2; this version reads format 1"),
        (lambda head: {**head, "format": "other"}, "another format"),
        (lambda head: [], "another format"),
        (lambda head: {**head, "sessions": 5}, "it has 2 sessions, not 5"),
        (lambda head: {**head, "cache": ["../../escaped"]}, "is no file of a cache"),
        (lambda head: {**head, "cache": ["segment-00000099.log"]}, "segment-00000099.log"),
        (lambda head: {**head, "roles": 3}, "damaged"),
        (lambda head: {**head, "settings": {"segment_chars": "many"}}, "settings cannot be used"),
        (lambda head: {key: value for key, value in head.items() if key != "models"}, "there is no 'models'"),
    ],
)
def test_a_head_of_another_form(saved: Path, change: Callable[[dict[str, Any]], Any], words: str) -> None:
    with pytest.raises((SavedMemoryError, DataError), match=words):
        Memory.load(rewritten(saved, change))
    assert not (saved.parent / "escaped").exists()


def test_a_file_chooses_no_models_and_no_budget(saved: Path) -> None:
    """Whoever made a file could have texts and keys sent anywhere."""
    evil = {"chat": "openai:m@http://127.0.0.1:9/v1", "models": {"task": {"key_env": "HOME"}}, "replay": "/etc/passwd"}
    path = rewritten(saved, lambda head: {**head, "settings": {**head["settings"], **evil}})
    with Memory.load(path) as memory:
        assert memory.roles["chat"].startswith("offline")
        assert "Miso" in memory.ask(QUESTION).retrieved


def test_compressed_members_are_refused(saved: Path) -> None:
    path = saved.with_name("packed.memory")
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(SavedMemoryError, match="is compressed"):
        Memory.load(path)


def test_a_cache_of_another_version(saved: Path) -> None:
    path = saved.with_name("later.memory")
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "cache/prismem-cache":
                line = b"prismem-core execution cache, format 3\n"
                data = line + f"crc32c {crc32c(line):08x}\n".encode()
            new.writestr(name, data)
    with pytest.raises(SavedMemoryError, match=r"later.memory: what it paid for cannot be read .*format 3"):
        Memory.load(path)


def test_a_head_of_a_thousand_brackets_is_damage(saved: Path) -> None:
    path = saved.with_name("deep.memory")
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, b"[" * 2000 if name == HEAD else old.read(name))
    with pytest.raises(SavedMemoryError, match="is a damaged saved memory"):
        Memory.load(path)


def test_a_damaged_program_is_told(saved: Path) -> None:
    text = with_manifest(library.source("seed"), {"settings": {}, "roles": {}}).replace("several", "many")
    path = saved.with_name("program.memory")
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, text if name == "program.py" else old.read(name))
    with pytest.raises(SavedMemoryError, match="is not the one its manifest speaks of"):
        Memory.load(path)


def test_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for data, words in [
        (b"", "neither a saved memory nor a memory program .empty_source"),
        (b"# A letter\nDear Ana,\n", "neither a saved memory nor a memory program .syntax_error, line 2"),
        (b"x = 1\n", "neither a saved memory nor a memory program .missing_definition"),
        (b"\xff\xfe\x00", "no program at"),
        (b"PK\x03\x04 and so on", "an archive of something else"),
        (b"PK\x05\x06" + b"\0" * 18, "an archive of something else"),
        (b"\0" * 300_000, "has more than 200000 bytes"),
    ]:
        path.write_bytes(data)
        with pytest.raises(SavedMemoryError, match=words):
            Memory.load(path)
    with pytest.raises(SavedMemoryError, match=r"there is no file .*missing; give a saved memory"):
        Memory.load(tmp_path / "missing")
    with pytest.raises(SavedMemoryError, match="Is a directory"):
        Memory.load(tmp_path)
    with pytest.raises(ArgumentError, match="the path is of type NoneType"):
        Memory.load(None)  # type: ignore[arg-type]


def test_a_saved_memory_is_no_program(saved: Path) -> None:
    with pytest.raises(DataError, match=r"is a saved memory; use Memory\.load"):
        Memory(saved)


def test_an_exported_program_that_was_changed(tmp_path: Path) -> None:
    path = tmp_path / "exported.py"
    text = with_manifest(library.source("seed"), {"settings": {}, "roles": {}})
    path.write_text(text + "\n", encoding="utf-8")
    with pytest.raises(SavedMemoryError, match="is not the one its manifest speaks of: export it again"):
        Memory.load(path)
    path.write_bytes(text.replace("\n", "\r\n").encode())
    with Memory.load(path, settings=SETTINGS) as memory:
        assert memory.program.source == library.source("seed"), "the line ends of another system are no change"
