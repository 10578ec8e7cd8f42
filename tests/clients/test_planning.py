"""Queries from questions by field names, types and descriptions."""

from __future__ import annotations

from typing import Any

import pytest

from prismem_core.clients.offline.planning import plan

QUESTION = "Has Ana ever worked in Oslo or lived in Bergen in May 2022?"


def query(question: str = QUESTION, **kinds: str) -> dict[str, Any]:
    fields = [{"name": name, "type": kind, "description": ""} for name, kind in kinds.items()]
    return plan({"instruction": "", "fields": fields, "question": question})


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("query_text", "str", QUESTION),
        ("negated", "str", "Ana has never worked in Oslo or lived in Bergen in May 2022"),
        ("people", "list[str]", ["Ana", "Oslo", "Bergen"]),
        ("keywords", "list[str]", ["Ana", "ever", "worked", "Oslo", "lived", "Bergen", "May", "2022"]),
        ("time_hint", "str", "in May 2022"),
        ("time_hint", "optional:list[str]", ["in May 2022"]),
        ("asks_when", "bool", False),
        ("wants_advice", "bool", False),
        ("colour", "optional:str", None),
        ("depth", "int", 0),
    ],
)
def test_values_by_name(name: str, kind: str, expected: Any) -> None:
    assert query(**{"query_text": "str", name: kind})[name] == expected


def test_sub_queries_hold_the_question_its_clauses_and_its_words() -> None:
    assert query(query_text="str", sub_queries="list[str]")["sub_queries"] == [
        QUESTION,
        "Has Ana ever worked in Oslo",
        "lived in Bergen in May 2022",
        "Ana ever worked Oslo lived Bergen May 2022",
    ]


@pytest.mark.parametrize(
    ("question", "flags"),
    [
        ("When did Ana leave?", (True, False, False)),
        ("Which books has Ana read?", (False, True, False)),
        ("Can you recommend a lake?", (False, False, True)),
        ("Who is Ana?", (False, False, False)),
    ],
)
def test_flags(question: str, flags: tuple[bool, bool, bool]) -> None:
    found = query(question, query_text="str", temporal="bool", asks_list="bool", advice="bool")
    assert (found["temporal"], found["asks_list"], found["advice"]) == flags


def test_the_first_text_field_holds_the_question_where_no_name_says_so() -> None:
    assert query(wish="str")["wish"] == QUESTION
