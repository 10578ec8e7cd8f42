"""A memory holds one conversation: names, units and queries of another never reach it."""

from __future__ import annotations

from prismem_core.program import library
from prismem_core.program.program import Program
from prismem_core.tasks.history import History, Session, Turn

from .conftest import World


def conversation(history_id: str, told: str) -> History:
    turns = (Turn("1", "Ann", f"I live in {told}."), Turn("2", "Bob", "The same as ever here."))
    return History(history_id, (Session("1", "8 May 2023", turns),))


def test_people_of_the_same_name_in_two_conversations_are_two_people(world: World) -> None:
    histories = {"x": conversation("x", "Oslo"), "y": conversation("y", "Lima")}
    questions = [("x", "Where does Ann live?"), ("y", "Where does Ann live?"), ("x", "Where does Bob live?")]
    for program in ("seed", "bm25_rag"):
        result = world.pipeline().run(Program(library.source(program)), histories, questions)
        texts = [trace.retrieved for trace in result.traces]
        assert all(trace.failure is None for trace in result.traces)
        assert ["Oslo" in text for text in texts] == [True, False, True]
        assert ["Lima" in text for text in texts] == [False, True, False]


def test_what_a_program_gets_does_not_depend_on_who_else_is_asked(world: World) -> None:
    histories = {"x": conversation("x", "Oslo"), "y": conversation("y", "Lima")}
    program = Program(library.source("bm25_rag"))
    alone = world.pipeline().run(program, histories, [("y", "Where does Ann live?")]).traces
    asked = [("x", "Where does Ann live?"), ("y", "Where does Ann live?")]
    assert World(world.sandbox).pipeline().run(program, histories, asked).traces[1:] == alone
