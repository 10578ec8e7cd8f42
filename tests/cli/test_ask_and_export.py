"""`prismem export` and `prismem ask` as a user types them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from prismem_core.program import library
from tests.cli.test_errors import FAST, evolve, prismem, refused

TALK = {
    "type": "conversation",
    "id": "c1",
    "sessions": [
        {"time": "8 May 2023", "turns": [{"speaker": "Ana", "text": "I live in Lisbon."}]},
        {"time": "9 June 2023", "turns": [{"speaker": "Ben", "text": "My cat is called Miso."}]},
    ],
}


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    path = tmp_path / "talk.jsonl"
    path.write_text(json.dumps(TALK) + "\n", encoding="utf-8")
    return path


def done(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_from_a_run_to_an_answer(talk: Path, tmp_path: Path) -> None:
    run, program, memory = tmp_path / "run", tmp_path / "mine.py", tmp_path / "my.memory"
    done(evolve("sample", run, "--set", "T1=1", "--set", "T2=0", "--set", "T3=0"))
    assert done(prismem("export", str(run), "--output", str(program))) == f"{program}\n"
    refused(prismem("export", str(run), "-o", str(program)), "is there already", "--force")
    assert done(prismem("export", str(run), "-o", str(program), "--force")) == f"{program}\n"
    assert ": ok" in done(prismem("validate", str(program)))
    shutil.rmtree(run)
    ask = ("--question", "What is the cat called?", "-q", "Where does Ana live?")
    lines = done(prismem("ask", str(program), "--data", str(talk), "--save", str(memory), *ask)).splitlines()
    assert len(lines) == 2 and "Miso" in lines[0]
    talk.unlink()
    rows = [json.loads(line) for line in done(prismem("ask", str(memory), *ask, "--json")).splitlines()]
    assert [row["answer"] for row in rows] == lines
    assert "My cat is called Miso." in rows[0]["retrieved"]
    assert set(rows[0]) == {"question", "answer", "query", "retrieved", "defect"}


def test_a_library_program_and_a_conversation_of_several(talk: Path, tmp_path: Path) -> None:
    more = dict(TALK, id="c2")
    talk.write_text(json.dumps(TALK) + "\n" + json.dumps(more) + "\n", encoding="utf-8")
    ask = ("ask", "naive-rag", "--data", str(talk), "-q", "What is the cat called?", *FAST)
    refused(prismem(*ask), "2 conversations; name one of them: c1, c2")
    assert "Miso" in done(prismem(*ask, "--conversation", "c2"))


def test_an_answer_cannot_steer_the_terminal(tmp_path: Path) -> None:
    talk = tmp_path / "talk.jsonl"
    text = "My cat is called \x1b[2JMiso \ud800 \u202e."
    line = dict(TALK, sessions=[{"turns": [{"speaker": "Ben", "text": text}]}])
    talk.write_text(json.dumps(line) + "\n", encoding="utf-8")
    ask = ("ask", "naive-rag", "--data", str(talk), "-q", "What is the cat called?", *FAST)
    answer = done(prismem(*ask))
    assert "Miso" in answer and answer.isascii() and "\x1b" not in answer
    assert json.loads(done(prismem(*ask, "--json")))["retrieved"] == f"Ben: {text}".replace("\ud800", "\ufffd")


def test_a_program_that_fails_is_one_line(talk: Path, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(library.source("seed").replace("self.memories.extend(", "self.missing.extend("), encoding="utf-8")
    ask = ("ask", str(path), "--data", str(talk), "-q", "What?", *FAST)
    refused(prismem(*ask), "the program failed in index, line", "AttributeError")


def test_what_is_asked_for_must_make_sense(tmp_path: Path) -> None:
    refused(prismem("ask", "seed"), "nothing to do", "--question", "--save")
    refused(prismem("ask", "seed", "-q", "What?", "--conversation", "c1"), "--data")
    refused(prismem("ask", "seed", "-q", " ", *FAST), "the question is")
    refused(prismem("ask", "seed", "-q", "What?", "--set", "T1=3"), "no setting of a memory")
    refused(prismem("ask", str(tmp_path / "none"), "-q", "What?"), "there is no file", "bm25_rag")
    refused(prismem("ask", "seed", "-q", "What?", "--data", str(tmp_path / "none"), *FAST), "no data set at")
    refused(prismem("export", str(tmp_path)), "is not a run directory")
    foreign = tmp_path / "letter.txt"
    foreign.write_text("Dear Ana,", encoding="utf-8")
    result = prismem("ask", str(foreign), "-q", "What?", *FAST)
    refused(result, "neither a saved memory nor a memory program")
    assert result.returncode == 9
