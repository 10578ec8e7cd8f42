"""A memory in service: what goes in, what comes out, what it costs, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import prismem_core
from prismem_core.errors import (
    ArgumentError,
    CandidateError,
    DataError,
    LimitError,
    ProgramError,
    SandboxError,
    SettingsError,
)
from prismem_core.memory import Added, Memory
from prismem_core.pipeline.segment import segment
from prismem_core.program import library
from prismem_core.program.manifest import with_manifest
from prismem_core.program.program import Program
from prismem_core.tasks.datasets import load
from prismem_core.tasks.history import History
from tests.memory.conftest import JUNE, MAY, SETTINGS

Make = Callable[..., Memory]

# What a program may do wrong when it is asked, put in place of the seed's `retrieve`.
RETRIEVE = 'return "\\n".join(self.memories)[:OUT_CHAR_BUDGET]'


def extractions(memory: Memory) -> int:
    return memory.usage.get("chat/extract", {}).get("calls", 0)


def program_with(body: str, window: str = "") -> Program:
    source = library.source("seed").replace(RETRIEVE, body)
    assert body in source
    return Program(source + (f'\nSegmentation = "{window}"\n' if window else ""))


def test_it_is_a_public_name_that_is_resolved_when_first_used() -> None:
    assert prismem_core.Memory is Memory
    assert "Memory" in dir(prismem_core)


def test_what_was_told_is_found(make: Make) -> None:
    with make() as memory:
        added = memory.add(MAY, JUNE)
        assert added == Added(("1", "2"), 3)
        answer = memory.ask(" Where did Ana buy a bicycle?\n")
        assert "Porto" in answer.text
        assert "I bought a red bicycle in Porto." in answer.retrieved
        assert answer.query == {"query_text": "Where did Ana buy a bicycle?"}
        assert answer.defect == ""


@pytest.mark.parametrize("program", library.names())
def test_every_program_of_the_library_serves_empty_and_filled(make: Make, program: str) -> None:
    with make(program) as memory:
        assert memory.ask("What is the cat called?").retrieved == ""
        memory.add(MAY)
        assert "Miso" in memory.ask("What is the cat called?").retrieved
        assert memory.program.source == library.source(program)


def test_sessions_are_paid_for_when_they_are_added_and_once(make: Make) -> None:
    with make() as memory:
        memory.add(MAY)
        assert extractions(memory) == 1
        memory.ask("What is the cat called?")
        memory.add(MAY | {"id": "1"})
        assert extractions(memory) == 1
        memory.add(JUNE)
        memory.ask("What is the cat called?")
        assert extractions(memory) == 2
        calls = memory.usage
        memory.ask("What is the cat called?")
        assert memory.usage == calls, "the same question of the same memory is free"


def test_a_long_session_costs_its_segments(make: Make) -> None:
    long = {"turns": [{"speaker": "Ana", "text": f"Fact {i}: " + "lake " * 60} for i in range(10)]}
    with make(settings={"segment_chars": 700}) as memory:
        memory.add(MAY)
        memory.add(long)
        history = History("memory", memory.sessions)
        assert extractions(memory) == sum(len(group.segments) for group in segment(history, segment_chars=700)) > 5


def test_of_windows_the_last_is_paid_for_again(make: Make) -> None:
    """Its text has changed; those before it have not."""
    program = program_with(RETRIEVE, "window:2:2")
    turns = [{"speaker": "Ana", "text": f"Lake number {i}."} for i in range(5)]
    with make(program) as memory:
        added = memory.add({"turns": turns})
        assert (added.sessions, extractions(memory)) == (("1",), 3)
        memory.add(
            {"turns": [{"speaker": "Ana", "text": "Lake number 6."}, {"speaker": "Ana", "text": "Lake number 7."}]}
        )
        assert extractions(memory) == 5
        assert memory.ask("Which lakes?").retrieved.count("Lake number") == 7
        assert extractions(memory) == 5


def test_it_answers_as_an_evaluation_does(make: Make) -> None:
    dataset = load("sample")
    task = dataset.tasks[0]
    with make("bm25_rag") as memory:
        memory.add_file("sample", task.history_id)
        assert memory.sessions == dataset.histories[task.history_id].sessions
        one_by_one = memory.ask(task.question)
    with make("bm25_rag") as memory:
        for session in dataset.histories[task.history_id].sessions:
            memory.add(session)
        assert memory.ask(task.question) == one_by_one


def test_nothing_is_added_where_anything_is_wrong(make: Make) -> None:
    with make() as memory:
        memory.add(MAY)
        with pytest.raises(ArgumentError):
            memory.add(JUNE, {"turns": []})
        assert [session.id for session in memory.sessions] == ["1"]
        assert extractions(memory) == 1
        assert memory.add() == Added(())


def test_files(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    line = '{"type": "conversation", "id": "c%s", "sessions": [{"turns": [{"speaker": "Ana", "text": "Lake %s"}]}]}\n'
    path.write_text(line % (1, 1), encoding="utf-8")
    with make() as memory:
        assert memory.add_file(path).sessions == ("1",)
        assert memory.add_file(path, "c1").sessions == ()
        path.write_text(line % (1, 1) + line % (2, 2), encoding="utf-8")
        with pytest.raises(ArgumentError, match=r"2 conversations; name one of them: c1, c2$"):
            memory.add_file(path)
        with pytest.raises(ArgumentError, match="no conversation 'c3'; it has: c1, c2"):
            memory.add_file(path, "c3")
        with pytest.raises(ArgumentError, match="another session of the id '1'"):
            memory.add_file(path, "c2")
        path.write_text("{", encoding="utf-8")
        with pytest.raises(DataError):
            memory.add_file(path)
        with pytest.raises(DataError, match="no data set at"):
            memory.add_file(tmp_path / "missing")
        path.write_text('{"type": "dataset", "name": "empty"}\n', encoding="utf-8")
        with pytest.raises(DataError, match="has no conversation"):
            memory.add_file(path)


@pytest.mark.parametrize("question", ["", " \n", None, 7])
def test_no_question(make: Make, question: Any) -> None:
    with make() as memory, pytest.raises(ArgumentError, match="the question is"):
        memory.ask(question)


def test_a_program_that_fails_is_told_and_the_memory_goes_on(make: Make) -> None:
    body = 'return self.memories[99] if "break" in query.query_text else "fine"'
    with make(program_with(body)) as memory:
        memory.add(MAY)
        for _ in range(2):
            with pytest.raises(CandidateError, match=r"failed in retrieve, line \d+: error: IndexError.*to mend it"):
                memory.ask("Please break")
            assert memory.ask("How are you?").retrieved == "fine"


def test_a_program_that_never_ends_is_ended(make: Make) -> None:
    body = 'return [1 for _ in iter(int, 1)] if "loop" in query.query_text else "fine"'
    with make(program_with(body)) as memory:
        memory.add(MAY)
        with pytest.raises(LimitError, match="limit:") as caught:
            memory.ask("Please loop")
        assert caught.value.kind.startswith("limit:")
        assert memory.ask("How are you?").retrieved == "fine"


def test_a_program_that_cannot_be_built_is_told_each_time(make: Make, tmp_path: Path, caplog: Any) -> None:
    source = library.source("seed").replace("self.memories.extend(", "self.missing.extend(")
    with make(Program(source)) as memory:
        assert memory.ask("What?").retrieved == ""
        memory.add(MAY)
        for call in (memory.build, lambda: memory.ask("What?"), memory.build):
            with pytest.raises(CandidateError, match=r"failed in index, line \d+: error: AttributeError"):
                call()
        memory.save(tmp_path / "a.memory")
    assert "saved without all that building the memory takes: the program failed in index" in caplog.text
    with Memory.load(tmp_path / "a.memory") as memory:
        assert len(memory.sessions) == 1


def test_building_pays_ahead_for_what_a_question_would(make: Make) -> None:
    with make() as memory:
        memory.add(MAY)
        assert "embedder/embed" not in memory.usage
        memory.build()
        usage = memory.usage
        assert usage["embedder/embed"]["calls"] == 2
        memory.build()
        assert memory.usage == usage
        memory.ask("What is the cat called?")
        assert memory.usage["embedder/embed"]["calls"] == 3, "the question alone"


def test_questions_of_many_threads_while_sessions_are_added(make: Make) -> None:
    """Each answer is one of a memory that was there at some moment, and nothing is paid for twice."""
    facts = [{"turns": [{"speaker": "Ana", "text": f"Lake number {i} is wide."}]} for i in range(6)]
    with make("full_context") as memory, ThreadPoolExecutor(8) as pool:
        memory.add(facts[0])
        asked = [pool.submit(memory.ask, f"Which lake is wide {i}?") for i in range(12)]
        for fact in facts[1:]:
            memory.add(fact)
        asked += [pool.submit(memory.ask, f"Which lake is wide {i}?") for i in range(12, 24)]
        seen = [future.result().retrieved for future in asked]
        assert extractions(memory) == len(facts)
        assert memory.usage["chat/answer"]["calls"] == memory.usage["chat/plan"]["calls"] == 24
        assert len(memory._bench.pipeline._segments) == 1, "nothing is kept of what it was before"
    for retrieved in seen:
        count = retrieved.count("Lake number")
        assert all((f"Lake number {i}" in retrieved) == (i < count) for i in range(len(facts)))
    assert all(retrieved.count("Lake number") == len(facts) for retrieved in seen[12:])


def test_threads_that_add_the_same_session_add_it_once(make: Make) -> None:
    session = {"id": "may", **MAY}
    with make() as memory, ThreadPoolExecutor(8) as pool:
        added = list(pool.map(lambda _: memory.add(session).sessions, range(8)))
        assert sorted(added) == [()] * 7 + [("may",)]
        assert extractions(memory) == 1


def test_an_interrupt_leaves_a_memory_that_goes_on(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with make() as memory:
        memory.add(MAY)
        pipeline = memory._bench.pipeline

        def interrupted(*_: Any) -> None:
            raise KeyboardInterrupt

        for name in ("_memory", "_retrieve_one"):
            with monkeypatch.context() as patch:
                patch.setattr(pipeline, name, interrupted)
                with pytest.raises(KeyboardInterrupt):
                    memory.ask("What is the cat called?")
        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "extract", interrupted)
            with pytest.raises(KeyboardInterrupt):
                memory.add(JUNE)
        assert len(memory.sessions) == 1
        memory.add(JUNE)
        assert "Miso" in memory.ask("What is the cat called?").retrieved


def test_close_waits_for_questions_under_way_and_ends_the_rest(make: Make) -> None:
    memory = make()
    memory.add(MAY)
    with ThreadPoolExecutor(4) as pool:
        began = threading.Event()

        def ask(i: int) -> str:
            began.set()
            try:
                return memory.ask(f"What is cat {i} called?").retrieved
            except ArgumentError as error:
                return str(error)

        asked = [pool.submit(ask, i) for i in range(8)]
        began.wait()
        memory.close()
        for future in asked:
            assert "Miso" in future.result() or "is closed" in future.result()
    memory.close()
    for call in (lambda: memory.ask("What?"), lambda: memory.add(JUNE), lambda: memory.save("x"), memory.__enter__):
        with pytest.raises(ArgumentError, match="is closed"):
            call()


def test_it_leaves_no_file_and_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Memory("naive_rag", settings=SETTINGS) as memory:
        memory.add(MAY)
        memory.ask("What is the cat called?")
        zygote = memory._bench.sandbox.zygote_pid
        assert zygote is not None and Path(f"/proc/{zygote}").exists()
        assert list(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []
    status = Path(f"/proc/{zygote}/stat")
    assert not status.exists() or ") Z " in status.read_text()
    memory = Memory("naive_rag", settings=SETTINGS)
    del memory
    assert list(tmp_path.iterdir()) == [], "also where nobody closed it"
    with pytest.raises(ProgramError):
        Memory(Program("import os\n"), settings=SETTINGS)
    assert list(tmp_path.iterdir()) == [], "and where it could not be opened"


def test_after_a_fork(make: Make) -> None:
    with make() as memory:
        memory.add(MAY)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                memory.ask("What?")
            except ArgumentError as error:
                code = 0 if "after a fork" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert "Miso" in memory.ask("What is the cat called?").retrieved


def test_a_forked_child_that_ends_takes_no_files_away() -> None:
    code = """
import os, sys
from prismem_core import Memory
memory = Memory("naive_rag", settings={"embedder": "hashing", "reranker": False})
if os.fork() == 0:
    sys.exit(0)
os.wait()
memory.add([{"speaker": "Ana", "text": "My cat is called Miso."}])
print("Miso" in memory.ask("What is the cat called?").retrieved)
memory.close()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.stdout == "True\n", done.stderr


def test_programs_that_cannot_be_used(make: Make, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no program at nowhere.*give a file or one of: seed"):
        make("nowhere")
    with pytest.raises(ArgumentError, match="the program is of type int"):
        make(7)
    broken = tmp_path / "broken.py"
    broken.write_text("def", encoding="utf-8")
    with pytest.raises(ProgramError, match=rf"{broken}.*syntax_error"):
        make(broken)
    broken.write_text("import os\n" + library.source("seed"), encoding="utf-8")
    with pytest.raises(ProgramError, match=str(broken)):
        make(broken)
    broken.write_text(with_manifest(library.source("seed"), {"settings": {}}), encoding="utf-8")
    with pytest.raises(DataError, match="its manifest lacks 'roles'"):
        make(broken)
    broken.write_text(
        with_manifest(library.source("seed"), {"settings": {"segment_chars": "many"}, "roles": {}}), encoding="utf-8"
    )
    with pytest.raises(DataError, match="settings cannot be used"):
        make(broken)


def test_settings(make: Make, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="unknown setting 'segment_char'"):
        Memory(settings={"segment_char": 3})
    with pytest.raises(SettingsError, match="unknown model"):
        Memory(chat="gpt")
    with pytest.raises(SettingsError, match="settings are of type int"):
        Memory(settings=3)  # type: ignore[arg-type]
    table = tmp_path / "settings.toml"
    table.write_text('[job]\nembedder = "hashing"\nreranker = false\nsegment_chars = 300\n', encoding="utf-8")
    with Memory("naive_rag", settings=table) as memory:
        memory.add({"turns": [{"speaker": "Ana", "text": f"Lake {i} " * 40} for i in range(3)]})
        assert extractions(memory) == 3


def test_the_settings_of_an_exported_program_count_where_nothing_else_is_given(make: Make, tmp_path: Path) -> None:
    values = {"settings": {**SETTINGS, "segment_chars": 300}, "roles": {}}
    path = tmp_path / "exported.py"
    path.write_text(with_manifest(library.source("naive_rag"), values), encoding="utf-8")
    turns = [{"speaker": "Ana", "text": f"Lake {i} " * 40} for i in range(3)]
    with Memory(path) as memory:
        memory.add(turns)
        assert extractions(memory) == 3
        assert memory.program.source == library.source("naive_rag")
    with Memory.load(path, settings={"segment_chars": 12_000}) as memory:
        memory.add(turns)
        assert extractions(memory) == 1
        assert memory.roles["embedder"].startswith("hashing")


def test_collections_are_there_for_programs_that_ask_for_them(make: Make) -> None:
    with make("collection_rag") as memory:
        memory.add(MAY)
        assert "Miso" in memory.ask("What is the cat called?").retrieved
    with pytest.raises(ProgramError, match=r'collection_rag, line \d+.*needs interface="engine"'):
        make("collection_rag", settings={"interface": "paper"})


def test_programs_run_in_the_sandbox(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    with make(on_isolation=told.append):
        assert [isolation.unsafe for isolation in told] == [False]
    from prismem_core.program.sandbox import sandbox as sandbox_module

    real = sandbox_module.Launcher
    monkeypatch.setattr(sandbox_module, "Launcher", lambda without: real({*without, "seccomp"}))
    with pytest.raises(SandboxError, match="seccomp"):
        make()
    with make(unsafe=True, on_isolation=told.append) as memory:
        memory.add(MAY)
        assert told[-1].marked
    with pytest.raises(ProgramError, match="forbidden"):
        make(Program("import os\n" + library.source("seed")), unsafe=True)


def test_progress_is_told(make: Make) -> None:
    told: list[tuple[str, int, int]] = []
    with make(progress=lambda *step: told.append(step)) as memory:
        memory.add(MAY, JUNE)
        memory.ask("What is the cat called?")
    assert ("extract", 0, 2) in told
    assert ("retrieve", 1, 1) in told
