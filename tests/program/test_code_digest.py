"""Keys of `reuse="content"`: pairs of edits that must share a digest and pairs that must not."""

from __future__ import annotations

import pytest

from prismem_core.program.components import code_digest

INDEX = ["Memory.__init__", "Memory.index"]
RETRIEVE = ["Memory.retrieve"]

BASE = '''"""A program."""
import re
from collections import Counter
from dataclasses import dataclass, field

MemoryExtractionInstruction = "Extract."
QueryPlanningInstruction = "Plan."
AnswerInstruction = "Answer."

STOP = frozenset("a the of".split())
TOP = 20
WEIGHTS = {"a": 1.0}
SIZE = 3
JOINER = "\\n"


def clean(text, size=SIZE):
    """Tidy a text."""
    return " ".join(re.findall("[a-z]+", text.lower())[:size])


def rank(scores):
    return sorted(scores)[:TOP]


def traced(function):
    return function


@dataclass
class MemoryUnit:
    memory_text: str = field(metadata={"description": "One fact"})


@dataclass
class Query:
    query_text: str = field(metadata={"description": "A query"})


class Bag:
    def __len__(self):
        return 1

    def add(self, text):
        return text


class Memory:
    """Keeps texts."""

    limit = 5

    def __init__(self, backend):
        self.backend = backend
        self.rows = []
        self.bag = Bag()

    def index(self, units, raw_text):
        """Keep all."""
        for unit in units:
            self.rows.append(getattr(self, "_tidy")(unit.memory_text))

    @traced
    def _tidy(self, text):
        def rank(text):
            return text
        return rank(clean(text))[: self.limit]

    def _join(self, rows):
        return JOINER.join(rows)

    def retrieve(self, query):
        return self._join(rank(self.rows))[:OUT_CHAR_BUDGET]
'''


def change(*edits: tuple[str, str]) -> str:
    source = BASE
    for old, new in edits:
        assert source.count(old) == 1, (old, source.count(old))
        source = source.replace(old, new)
    return source


NOTHING = {
    "comment": change(("TOP = 20", "TOP = 20  # best")),
    "module docstring": change(('"""A program."""', '"""Another."""')),
    "class docstring": change(('    """Keeps texts."""\n\n', "")),
    "method docstring": change(('        """Keep all."""\n', '        """Keep every one."""\n')),
    "function docstring": change(('    """Tidy a text."""\n', "")),
    "layout": change(("TOP = 20", "TOP = (\n    20\n)"), ('"a the of"', '"a " "the of"')),
    "prefix": change(('"a the of"', 'u"a the of"')),
}
RETRIEVE_ONLY = {
    "retrieve": change(("rank(self.rows)", "rank(self.rows[1:])")),
    "member used by retrieve": change(("JOINER.join(rows)", "JOINER.join(rows[1:])")),
    "constant used by retrieve": change(('JOINER = "\\n"', 'JOINER = "; "')),
    "query schema": change(('"A query"', '"Some query"')),
}
INDEX_TOO = {
    "index": change(("for unit in units:", "for unit in units[1:]:")),
    "constructor": change(("self.rows = []", "self.rows = ['x']")),
    "string-dispatched method": change(("[: self.limit]", "[1 : self.limit]")),
    "helper": change(("text.lower()", "text.upper()")),
    "constant through a default argument": change(("SIZE = 3", "SIZE = 4")),
    "class attribute": change(("limit = 5", "limit = 6")),
    "decorator": change(("    return function\n", "    return lambda *a: function(*a)\n")),
    "nested function under the name of a helper": change(
        ("            return text\n", "            return text[1:]\n")
    ),
    "special method of a helper class": change(("        return 1\n", "        return 2\n")),
    "special method of Memory": change(("    def _join", "    def __len__(self):\n        return 3\n\n    def _join")),
    "base class": change(("class Memory:", "class Memory(Bag):")),
    "class decorator": change(("class Memory:", "@traced\nclass Memory:")),
    "unit schema": change(('"One fact"', '"A fact"')),
    "unit method": change(
        ('"One fact"})\n', '"One fact"})\n\n    def __post_init__(self):\n        self.memory_text = ""\n')
    ),
    "module statement": change(("SIZE = 3\n", "SIZE = 3\nSTOP_MORE = []\nSTOP_MORE.append(1)\n")),
    "rebinding at module level": change(("\n\ndef traced", "\n\nSIZE = 5\n\n\ndef traced")),
    "shadowed builtin": change(("\n\ndef traced", "\n\ndef getattr(x, y):\n    return str\n\n\ndef traced")),
    "assignment that calls": change(("TOP = 20", "TOP = len(rank([]))\nMORE = rank([])")),
    "import under the same name": change(("import re\n", "import json as re\n")),
    "generator at module level": change(("SIZE = 3\n", "SIZE = 3\nIT = (x for x in [1])\n")),
}
NEITHER = {
    "answer instruction": change(('"Answer."', '"Answer briefly."')),
    "extraction instruction": change(('"Extract."', '"Extract all."')),
    "unused constant": change(("WEIGHTS = {", 'LIGHT = re.compile("a")\nWEIGHTS = {')),
    "unused helper": change(("\n\ndef traced", "\n\ndef extra(x):\n    return x\n\n\ndef traced")),
    "unused import": change(("import re\n", "import re\nimport math\n")),
    "stop words nobody uses": change(('"a the of"', '"a an"')),
}


@pytest.mark.parametrize("name", [*NOTHING, *NEITHER])
def test_edits_that_no_digest_sees(name: str) -> None:
    candidate = (NOTHING | NEITHER)[name]
    assert code_digest(candidate, INDEX) == code_digest(BASE, INDEX)
    assert code_digest(candidate, RETRIEVE) == code_digest(BASE, RETRIEVE)


@pytest.mark.parametrize("name", RETRIEVE_ONLY)
def test_edits_that_only_retrieve_sees(name: str) -> None:
    candidate = RETRIEVE_ONLY[name]
    assert code_digest(candidate, INDEX) == code_digest(BASE, INDEX)
    assert code_digest(candidate, RETRIEVE) != code_digest(BASE, RETRIEVE)


@pytest.mark.parametrize("name", INDEX_TOO)
def test_edits_that_index_sees(name: str) -> None:
    assert code_digest(INDEX_TOO[name], INDEX) != code_digest(BASE, INDEX)


@pytest.mark.parametrize(
    "lookup",
    [
        'getattr(self, "_" + "join")(rows)',
        "getattr(self, query.query_text)",
        "(getattr)(self, *['_join'])",
        "vars(self)",
        "dir(self)",
        "dir()",
        "self.__dir__()",
        "self.__dict__",
        "globals()",
        "getattr(self, '__dict__')",
    ],
)
def test_dynamic_look_ups_make_the_whole_module_count(lookup: str) -> None:
    dynamic = change(("    def _join", f"    def _any(self, query):\n        return {lookup}\n\n    def _join"))
    assert code_digest(dynamic.replace("JOINER =", "JOINER = 1 and"), INDEX) != code_digest(dynamic, INDEX)
    assert code_digest(dynamic + "# note\n", INDEX) == code_digest(dynamic, INDEX)
    assert code_digest(dynamic.replace("Keeps texts", "Holds texts"), INDEX) == code_digest(dynamic, INDEX)


def test_docstrings_count_where_the_program_reads_them() -> None:
    reading = change(("    def _join", "    def _any(self):\n        return self.__doc__\n\n    def _join"))
    assert code_digest(reading.replace("Keeps texts", "Holds texts"), INDEX) != code_digest(reading, INDEX)


def test_order_of_definitions_counts_only_where_it_can_matter() -> None:
    plain = ("    @traced\n", "")
    moved = change(plain, ("TOP = 20\n", ""), ("SIZE = 3\n", "SIZE = 3\nTOP = 20\n"))
    assert code_digest(moved, RETRIEVE) == code_digest(change(plain), RETRIEVE)
    first = change(
        ("TOP = 20\n", "TOP = 20\nLAST = SIZE_ = TOP\nTOP = 30\n"), ("rank(scores):\n", "rank(scores, n=LAST):\n")
    )
    second = change(
        ("TOP = 20\n", "TOP = 20\nTOP = 30\nLAST = SIZE_ = TOP\n"), ("rank(scores):\n", "rank(scores, n=LAST):\n")
    )
    assert code_digest(first, RETRIEVE) != code_digest(second, RETRIEVE)


def test_names_reached_through_format_fields_and_mangling() -> None:
    private = change(
        ("    def _join", "    def __hidden(self):\n        return 1\n\n    def _join"),
        ("self.rows = []", "self.rows = [self._Memory__hidden()]"),
    )
    altered = private.replace("        return 1\n\n    def _join", "        return 2\n\n    def _join")
    assert altered != private
    assert code_digest(altered, INDEX) != code_digest(private, INDEX)
    formatted = change(
        ("limit = 5", "limit = 5\n    label = 'x'"), ("self.rows = []", 'self.rows = ["{0.label}".format(self)]')
    )
    assert code_digest(formatted.replace("'x'", "'y'"), INDEX) != code_digest(formatted, INDEX)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("QUEUE = deque('abc')\nDONE = deque.rotate(QUEUE, 1)", "QUEUE = deque('abc')\nDONE = deque.rotate(QUEUE, 2)"),
        ("QUEUE = []\nDONE = sorted('ab', key=QUEUE.append)", "QUEUE = []\nDONE = sorted('abc', key=QUEUE.append)"),
        (
            "QUEUE = []\nADD = QUEUE.append\nDONE = max('ab', key=ADD)",
            "QUEUE = []\nADD = QUEUE.append\nDONE = max('a', key=ADD)",
        ),
        (
            "QUEUE = re.finditer('.', 'abc')\nDONE = list(QUEUE)",
            "QUEUE = re.finditer('.', 'abc')\nDONE = [list(QUEUE)[:0], 1]",
        ),
        ("QUEUE = zip('abc')\nDONE = list(zip('x', QUEUE))", "QUEUE = zip('abc')\nDONE = list(zip('xy', QUEUE))"),
        (
            "QUEUE = ['a']\nDONE = re.sub('a', QUEUE.append, 'a')",
            "QUEUE = ['a']\nDONE = re.sub('a', QUEUE.append, 'aa')",
        ),
        ("QUEUE = (c for c in 'ab'), 1\nDONE = 1", "QUEUE = (c for c in 'abc'), 1\nDONE = 1"),
    ],
)
def test_statements_that_change_what_another_name_holds_always_count(before: str, after: str) -> None:
    using = change(
        ("from collections import Counter\n", "from collections import Counter, deque\n"),
        ("SIZE = 3\n", f"SIZE = 3\n{before}\n"),
        ("for unit in units:", "for unit in [*units, *QUEUE]:"),
    )
    assert code_digest(using.replace(before, after), INDEX) != code_digest(using, INDEX)
    assert code_digest(using.replace("'Answer'", "'Reply'"), INDEX) == code_digest(using, INDEX)


@pytest.mark.parametrize("outer", ["SIZE", "len"])
def test_a_member_that_hides_a_name_counts_with_its_place(outer: str) -> None:
    plain = ("    @traced\n", "")  # so that nothing runs when the module is loaded
    first = change(plain, ("    limit = 5\n", f"    {outer} = 7\n    limit = {outer}\n"))
    second = change(plain, ("    limit = 5\n", f"    limit = {outer}\n    {outer} = 7\n"))
    assert code_digest(first, INDEX) != code_digest(second, INDEX)


@pytest.mark.parametrize(
    "reader",
    [
        "'{0.__doc__}'.format(self)",
        "('{0.__doc__' + '}').format(self)",
        "getattr(self, '__doc__')",
        "('{0.__do' + 'c__}').format(self)",
        "str.format('{0.__d' 'oc__}', self)",
        "str.format('{0.__d' + 'oc__}', self)",
    ],
)
def test_docstrings_that_texts_name_count(reader: str) -> None:
    reading = change(("    def _join", f"    def _any(self):\n        return {reader}\n\n    def _join"))
    assert code_digest(reading.replace("Keeps texts", "Holds texts"), INDEX) != code_digest(reading, INDEX)


def test_lines_count_where_the_program_reads_them() -> None:
    reading = change(("rank(self.rows)", "rank([self._join.__code__.co_firstlineno])"))
    assert code_digest("# a line more\n" + reading, RETRIEVE) != code_digest(reading, RETRIEVE)
    assert code_digest("# a line more\n" + BASE, RETRIEVE) == code_digest(BASE, RETRIEVE)


@pytest.mark.parametrize("text", ["'self.bag.label'", "'bag.' 'label'", "'{0.' + 'label}'", "'label'"])
def test_names_in_texts_count_as_names(text: str) -> None:
    formatted = change(("limit = 5", "limit = 5\n    label = 'x'"), ("self.rows = []", f"self.rows = [{text}]"))
    assert code_digest(formatted.replace("'x'", "'y'"), INDEX) != code_digest(formatted, INDEX)


@pytest.mark.parametrize(
    "door",
    [
        "typing.operator.attrgetter(rows)",
        "re.sys.modules",
        "typing.get_type_hints(self)",
        "typing.runtime_checkable(rows)",
        "rows.f_globals",
    ],
)
def test_back_doors_to_any_name_make_the_whole_module_count(door: str) -> None:
    dynamic = change(("    def _join", f"    def _any(self, rows):\n        return {door}\n\n    def _join"))
    assert code_digest(dynamic.replace("JOINER =", "JOINER = 1 and"), INDEX) != code_digest(dynamic, INDEX)


def test_a_function_that_only_its_decorator_makes_known_counts() -> None:
    noted = change(
        ("def rank(scores)", "NOTED = []\n\n\ndef note(f):\n    NOTED.append(f)\n\n\ndef rank(scores)"),
        ("@dataclass\nclass Query", "@note\ndef handler(x):\n    return x + 1\n\n\n@dataclass\nclass Query"),
        ("self.rows = []", "self.rows = [f(1) for f in NOTED]"),
    )
    assert code_digest(noted.replace("x + 1", "x + 2"), INDEX) != code_digest(noted, INDEX)


def test_definitions_of_a_plain_program_may_stand_in_any_order() -> None:
    plain = change(("    @traced\n", ""))
    one, other = "STOP = ", "SIZE = 3\n"
    moved = plain.replace(other, "").replace(one, other + one)
    assert moved != plain
    assert code_digest(moved, INDEX) == code_digest(plain, INDEX)
    methods = plain.replace("    def _join(self, rows):\n        return JOINER.join(rows)\n\n", "")
    methods = methods.replace(
        "    limit = 5\n", "    def _join(self, rows):\n        return JOINER.join(rows)\n\n    limit = 5\n"
    )
    assert code_digest(methods, RETRIEVE) == code_digest(plain, RETRIEVE)


def test_a_format_with_whole_fields_is_no_dynamic_look_up() -> None:
    using = change(
        ("SIZE = 3\n", "SIZE = 3\nLINE = '{0}: {1}, {{}}'\n"),
        ("return self._join(rank(self.rows))", "return LINE.format(1, self._join(rank(self.rows)))"),
    )
    assert code_digest(using.replace("JOINER =", "JOINER = 1 and"), INDEX) == code_digest(using, INDEX)
    pieces = using.replace("'{0}: {1}, {{}}'", "'{0}: ' + '{' + '1.lab' 'el}'")
    assert code_digest(pieces.replace("JOINER =", "JOINER = 1 and"), INDEX) != code_digest(pieces, INDEX)
