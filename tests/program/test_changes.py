"""What differs between two programs, with its lines, and how code reaches it."""

from __future__ import annotations

from prismem_core.program.changes import Change, chains_to, changes, dynamic_lookups
from prismem_core.program.components import reaching
from prismem_core.program.reachability import HANDED, LOADING, SPECIAL

from .test_code_digest import BASE, change


def line_of(source: str, text: str) -> int:
    (found,) = [number for number, line in enumerate(source.splitlines(), 1) if text in line]
    return found


def test_a_change_is_told_with_the_lines_that_differ_in_both_programs() -> None:
    after = change(
        ("    return sorted(scores)[:TOP]\n", "    scores = list(scores)\n    return sorted(scores)[:TOP]\n")
    )
    line = line_of(after, "scores = list")
    (found,) = changes(BASE, after)
    before = (line_of(BASE, "def rank(scores):"), line_of(BASE, "return sorted(scores)"))
    assert found == Change("rank", "changed", (before,), ((line, line),), True)


def test_what_came_and_what_went_have_lines_on_one_side_alone() -> None:
    after = change(('JOINER = "\\n"\n', ""), ("TOP = 20\n", "TOP = 20\nimport math, json as js\n"))
    line = line_of(after, "import math")
    assert changes(BASE, after) == (
        Change("JOINER", "removed", ((line_of(BASE, "JOINER ="),) * 2,), (), True),
        Change("js", "added", (), ((line, line),), True),
        Change("math", "added", (), ((line, line),), True),
    )


def test_docstrings_are_no_code() -> None:
    texts = [('    """Keeps texts."""\n', '    """Holds texts."""\n'), ('"""Keep all."""', '"""Keep every one."""')]
    found = {one.component: one.code for one in changes(BASE, change(*texts))}
    assert found == {"Memory.<class>": False, "Memory.index": False}
    assert [one.code for one in changes(BASE, change(("class Memory:", "class Memory(Bag):")))] == [True]


def test_equal_programs_differ_in_nothing_whatever_their_layout() -> None:
    assert changes(BASE, change(("TOP = 20", "# best\nTOP = (\n    20\n)"))) == ()


def test_chains_say_by_what_code_is_reached() -> None:
    plain = change(("    @traced\n", ""))
    private = change(
        ("    @traced\n", ""),
        ("    def _join", "    def __len__(self):\n        return SIZE\n\n    def _join"),
        ("TOP = 20", "TOP = 20\nprint(TOP)"),
    )
    index = chains_to(["rank", "clean", "SIZE", "TOP", "JOINER"], plain, private, ["Memory.__init__", "Memory.index"])
    assert index["clean"] == ("Memory.index", "Memory._tidy", "clean")
    assert index["TOP"] == (LOADING, "<module>", "TOP")
    assert "JOINER" not in index
    retrieve = chains_to(["rank", "SIZE", "JOINER", "Query"], plain, private, ["Memory.retrieve"])
    assert retrieve["rank"] == ("Memory.retrieve", "rank")
    assert retrieve["JOINER"] == ("Memory.retrieve", "Memory._join", "JOINER")
    assert retrieve["SIZE"] == (SPECIAL, "Memory.__len__", "SIZE")
    assert retrieve["Query"] == ("Memory.retrieve", HANDED, "Query")


def test_dynamic_look_ups_are_told_with_their_line() -> None:
    dynamic = change(("rank(self.rows)", 'getattr(self, "ro" + "ws")'))
    (found,) = dynamic_lookups(BASE, dynamic)
    assert (found.program, found.line, found.what) == ("candidate", line_of(dynamic, '"ro" + "ws"'), "getattr")
    assert dynamic_lookups(BASE, BASE) == ()
    assert [one.program for one in dynamic_lookups(dynamic, dynamic)] == ["parent", "candidate"]
    (twice,) = dynamic_lookups(BASE, BASE + "\n\nMemory = Memory\n")
    assert (twice.line, twice.what) == (
        len(BASE.splitlines()) + 3,
        "Memory is not one class statement of the module itself",
    )


def test_chains_of_table_6_begin_at_the_components_it_names() -> None:
    found = reaching(BASE, change(("text.lower()", "text.upper()"), ('JOINER = "\\n"', 'JOINER = "; "')))
    assert found["Memory.index"] == ("Memory.index", "Memory._tidy", "clean")
    assert found["Memory.retrieve"] == ("Memory.retrieve", "Memory._join", "JOINER")
    assert "Query" not in found
    assert reaching(BASE, BASE) == {}
