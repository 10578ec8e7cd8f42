"""A revision takes over the memory of its parent exactly where that gives what building its own would give."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from prismem_core.program import grafting, library
from prismem_core.program.components import code_digest
from prismem_core.program.grafting import Graft, NotReusable, plan_graft
from prismem_core.program.reachability import INDEX_ROOTS
from tests.pipeline.edits import KINDS, random_edit
from tests.pipeline.edits.dispatching import DISPATCHING
from tests.pipeline.test_reuse import DENSE

from .grafts import QUERIES, STATEFUL, Loaded


def change(*edits: tuple[str, str], source: str = STATEFUL) -> str:
    for old, new in edits:
        assert source.count(old) == 1, (old, source.count(old))
        source = source.replace(old, new)
    return source


GRAFTED = {
    "nothing": STATEFUL + "\n",
    "retrieve": change(("self.tail(self.fetch(rows)", "self.tail(self.fetch(rows[1:])")),
    "member that retrieve uses": change(("return rank(rows)", "return rank(rows, size=1)")),
    "constant": change(("TOP = 4", "TOP = 1")),
    "constant of several uses": change(('JOINER = "; "', 'JOINER = " | "')),
    "default that stores what index changed": change(("known=SEEN, size=SIZE", "known=SEEN, size=SIZE + 1")),
    "helper renamed": change(
        ("def rank(", "def order("), ("return rank(rows)", "return order(rows)"), ("\ndef shorten", "\n\ndef shorten")
    ),
    "helper removed": change(("def failing(row):", "def other(row):"), ("failing(query.query_text)", "None.missing")),
    "member removed": change(
        ("self.fetch(rows)", "rank(rows)"), ("    def fetch(self, rows):\n        return rank(rows)\n", "")
    ),
    "member renamed": change(("def fetch(", "def bring("), ("self.fetch(", "self.bring(")),
    "member of two underscores": change(("__width = 40", "__width = 41")),
    "method of two underscores": change(("+ self.__width", "- self.__width")),
    "property": change(("{self.total}/", "{self.total}:")),
    "static method": change(("return rows[:width]", "return rows[-width:]")),
    "default of a static method": change(("def tail(rows, width=SIZE)", "def tail(rows, width=SIZE - 1)")),
    "class method": change(("return cls.suffix + text", "return text + cls.suffix")),
    "super and the class cell": change(("[:10] + row", "[1:11] + row")),
    "class attribute": change(('suffix = "."', 'suffix = "!"')),
    "class attribute added": change(
        ('suffix = "."', 'suffix = "."\n    prefix = ">" + "!"'), ("return cls.suffix", "return cls.prefix")
    ),
    "class of retrieve": change(('mark = "- "', 'mark = "* "')),
    "docstrings": change(
        ('    def index(self, units, raw_text):\n        """Keep all."""\n', "    def index(self, units, raw_text):\n")
    ),
    "lines moved": change(
        ("import math\n", "import math\n\n\n# more\n\n"), ("\ndef clean(", "\n# and more\ndef clean(")
    ),
    "lines of an expression": change(('.strip("?")\n        .missing', ".strip('?').missing")),
    "layout of what is kept": change(
        (
            "return [word for word in WORD.findall(text.lower())",
            "return [\n        word\n        for word in WORD.findall(\n            text\n            .lower())",
        )
    ),
    "query schema": change(("size: int = 2", "size: int = 1\n    more: list = field(default_factory=list)")),
    "query default from a constant": change(("size: int = 2", "size: int = SIZE")),
    "lambda": change(("+ [len(SEEN)]", "+ [len(SEEN) - 1]")),
    "import for retrieve": change(("import math\n", "import math\nimport json\n"), ("str(PAIR)", "json.dumps(PAIR)")),
    "import under another name": change(("import math\n", "import math as m\n")),
    "dictionary of functions": change(
        ("\n\ndef failing", '\n\nWAYS = {"a": shorten, "b": clean}\n\n\ndef failing'),
        ("shorten(self.dress", 'WAYS["a"](self.dress'),
    ),
    "value from constants that stay": change(("PAIR = (SIZE, len(STOP))", "PAIR = (len(STOP) + SIZE, SIZE, 1)")),
    "pattern": change(("PATTERN = re.compile(", "PATTERN = re.compile('x' + ")),
    "instructions": change(('"Answer."', '"Answer briefly."'), ('"Plan."', '"Plan well."'), ('"Extract."', '"Take."')),
    "mutable default of retrieve": change(
        ("def fetch(self, rows):", "def fetch(self, rows, kept=[]):\n        kept.append(1)"),
        ("return rank(rows)", "return rank(rows)[: len(kept)]"),
    ),
    "identity of what there is one of": change(
        ("return rank(rows)", "return rank(rows) if rows is not None is not True else []")
    ),
    "annotations": change(("def fetch(self, rows):", "def fetch(self, rows: list[MemoryUnit]) -> Shelf:")),
    "string annotations": change(('text: "Optional[str]"', 'text: "View"')),
    "string annotation of the query": change(("kinds: ClassVar[list] = []", 'kinds: "ClassVar[list]" = []')),
    "nested class": change(
        ("    def dress(", "    class Inner:\n        mark = '#'\n\n    def dress("),
        ("return super()", "return self.Inner.mark + super()"),
    ),
    "several names at once": change(("TOP = 4", "TOP, REST = 3, 2")),
    "local class that holds a docstring": change(
        ("def shorten(", "def inner():\n    class One:\n        '''One.'''\n    return One\n\n\ndef shorten(")
    ),
}
REFUSED = {
    "index": (change(("words[0] if words", "words[-1] if words")), "can run differs"),
    "helper of index": change(("text.lower()", "text.upper()")),
    "unit schema": change(('HINT = "One fact"', 'HINT = "A fact"')),
    "class attribute of index": change(("total = 0", "total = 1")),
    "helper class": change(("self.rows.append(row)", "self.rows.insert(0, row)")),
    "special method": change(("    def tidy", "    def __len__(self):\n        return 1\n\n    def tidy")),
    "shadowed builtin": change(("\n\ndef count", "\n\ndef len(x):\n    return 1\n\n\ndef count")),
    "module statement": change(("SIZE = 3\n", "SIZE = 3\nSEEN.append('x')\n")),
    "decorator": change(("    def fetch(", "    @count\n    def fetch(")),
    "dynamic look-up": (change(("return rank(rows)", 'return globals()["rank"](rows)')), "dynamically"),
    "future import": (change(("import math\n", "from __future__ import annotations\nimport math\n")), "dynamically"),
    "copy of what index changed": (change(("ALIAS = SEEN", "ALIAS = list(SEEN)")), "reads SEEN"),
    "default computed from what index changed": (
        change(("known=SEEN, size=SIZE):", "known=(), size=len(SEEN)):")),
        "reads SEEN",
    ),
    "copy of another name for it": (
        change(("ALIAS = SEEN", "OTHER = SEEN\nMORE = [OTHER]\nALIAS = sorted(OTHER)")),
        "looks into OTHER",
    ),
    "copy of what a holder holds": (
        change(("ALIAS = SEEN", "OTHER = SEEN\nMORE = [OTHER]\nALIAS = [len(n) for n in MORE]")),
        "looks into MORE",
    ),
    "member that copies what another holds": (
        change(('suffix = "."', "seen = SEEN\n    suffix = str(seen)")),
        "looks into seen",
    ),
    "attribute of Memory": (STATEFUL + "\n\nMOST = (Memory.total, 1)\n", "looks into Memory"),
    "value of what is rebound": (change(("PAIR = (SIZE, len(STOP))", "PAIR = (COUNT, 1)")), "reads COUNT"),
    "attribute of a class": (
        change(
            ("PAIR = (SIZE, len(STOP))", "PAIR = (PATTERN, 1)"),
            ("\n\nclass View", "\n\nMADE = (Shelf.made, 1)\n\n\nclass View"),
        ),
        "reads Shelf",
    ),
    "member from a member that index changed": (change(('suffix = "."', 'suffix = "." * total')), "reads total"),
    "member bound later": (change(("    limit = 5\n", "    first = limit\n    limit = 5\n")), "bound only after it"),
    "constant bound later": (
        change(("ALIAS = SEEN", ""), ("SEEN = []", "ALIAS = SEEN\nSEEN = []")),
        "bound only after it",
    ),
    "base": (change(("class Memory:", "class Memory(View):")), ""),
    "identity of a constant": (
        change(("return rank(rows)", "return rank(rows) if self.rows is (1, 2) else rank(rows)[:1]")),
        "the same one",
    ),
    "identity by number": (change(("return rank(rows)", "return [str(id(rows) == id(SEEN))]")), "the same one"),
    "slots": (change(('suffix = "."', 'suffix = "."\n    __slots__ = ()')), "__slots__"),
    "annotations looked at": (
        change(("return rank(rows)", "return rank([str(self.__annotations__)])")),
        "__annotations__",
    ),
}


def plan(source: str, parent: str = STATEFUL) -> Graft:
    planned = plan_graft(parent, source)
    assert isinstance(planned, Graft), planned
    return planned


@pytest.mark.parametrize("name", GRAFTED)
@pytest.mark.parametrize("query", QUERIES, ids=lambda query: str(query["query_text"]))
def test_a_grafted_memory_gives_what_one_of_its_own_gives(name: str, query: dict[str, object]) -> None:
    expected = Loaded(GRAFTED[name]).retrieve(query)
    assert Loaded(STATEFUL).take_in(plan(GRAFTED[name])).retrieve(query) == expected


@pytest.mark.parametrize("name", REFUSED)
def test_what_building_can_tell_apart_is_not_grafted(name: str) -> None:
    entry = REFUSED[name]
    source, reason = entry if isinstance(entry, tuple) else (entry, "can run differs")
    planned = plan_graft(STATEFUL, source)
    assert isinstance(planned, NotReusable)
    assert reason in planned.reason


@pytest.mark.parametrize(
    "name",
    [
        "copy of what index changed",
        "default computed from what index changed",
        "value of what is rebound",
        "copy of another name for it",
        "copy of what a holder holds",
        "member that copies what another holds",
    ],
)
def test_definitions_that_read_state_would_give_something_else(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = REFUSED[name][0]
    assert code_digest(source, INDEX_ROOTS) == code_digest(STATEFUL, INDEX_ROOTS)
    monkeypatch.setattr(grafting._Plan, "_unsettled", lambda *arguments: None)
    planned = grafting.plan_graft.__wrapped__(STATEFUL, source)
    expected = Loaded(source).retrieve(QUERIES[0])
    assert Loaded(STATEFUL).take_in(planned).retrieve(QUERIES[0]) != expected


def test_one_memory_takes_in_revision_after_revision() -> None:
    names = [
        "member that retrieve uses",
        "lines moved",
        "class of retrieve",
        "helper renamed",
        "property",
        "docstrings",
    ]
    for query in QUERIES:
        memory, parent = Loaded(STATEFUL), STATEFUL
        for name in names:
            memory.take_in(plan(GRAFTED[name], parent))
            parent = GRAFTED[name]
        assert memory.retrieve(query) == Loaded(parent).retrieve(query)


def test_names_that_vanished_are_gone() -> None:
    memory = Loaded(STATEFUL).take_in(plan(GRAFTED["member removed"]))
    assert not hasattr(memory.memory, "fetch")
    memory = Loaded(STATEFUL).take_in(plan(GRAFTED["helper renamed"]))
    assert not hasattr(memory.module, "rank")


def test_state_stays_the_same_objects() -> None:
    memory = Loaded(STATEFUL)
    before = memory.memory, memory.module.SEEN, memory.module.Memory, memory.module.MemoryUnit, memory.memory.shared
    memory.take_in(plan(GRAFTED["retrieve"]))
    after = memory.memory, memory.module.SEEN, memory.module.Memory, memory.module.MemoryUnit, memory.memory.shared
    assert all(one is other for one, other in zip(before, after, strict=True))


SINGLE = DISPATCHING.replace(
    "class Memory(Base):", "class Memory:\n    _join = lambda self, lines: chr(10).join(lines)"
)
BASES = (STATEFUL, SINGLE, DENSE, *(library.source(name) for name in ("seed", "naive_rag_dates", "bm25_rag")))


class Trials:
    """Chains of random edits; what can be grafted is, and gives what a memory of its own gives."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.outcomes: Counter[str] = Counter()

    def run(self, count: int) -> None:
        for number in range(count):
            parent = BASES[number % len(BASES)]
            edits = []
            for _ in range(self.rng.randrange(3)):
                edit = random_edit(parent, self.rng, self.rng.choice(KINDS))
                edits.append(edit.name)
                parent = edit.source
            edit = random_edit(parent, self.rng, KINDS[number % len(KINDS)])
            self.compare(parent, edit.source, " > ".join([*edits, edit.name]))

    def compare(self, parent: str, source: str, story: str) -> None:
        planned = plan_graft(parent, source)
        if isinstance(planned, NotReusable):
            self.outcomes["refused"] += 1
            return
        try:
            Loaded(parent)
            Loaded(source)
        except Exception:
            self.outcomes["broken"] += 1
            return
        for query in ({"query_text": "harbour"}, {"query_text": "fail deep"}):
            expected = Loaded(source).retrieve(query)
            before = Loaded(parent).retrieve(query)
            found = Loaded(parent).take_in(planned).retrieve(query)
            assert found == expected, f"after {story}:\n{parent}\n=======\n{source}"
            self.outcomes["told apart" if before != expected else "alike"] += 1


def test_random_revisions_give_what_memories_of_their_own_give() -> None:
    trials = Trials(seed=1)
    trials.run(100)
    assert trials.outcomes["told apart"] > 10
    assert trials.outcomes["refused"] > 10


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
def test_thousands_of_random_revisions_give_what_memories_of_their_own_give(part: int) -> None:
    trials = Trials(seed=100 + part)
    trials.run(1000)
    print(dict(trials.outcomes))
    assert trials.outcomes["told apart"] > 100
