"""The whole check of a program: every golden vector, and failures of the steps that run it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prismem_core.program import library
from prismem_core.program.sandbox import Sandbox
from prismem_core.program.validation import ValidationLimits, gate, validate


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


@pytest.fixture
def seed() -> str:
    return library.source("seed")


def test_golden(golden: Callable[[str], Any], sandbox: Sandbox) -> None:
    vectors = golden("validation")
    assert vectors
    wrong = []
    for vector in vectors:
        report = validate(vector["source"], vector["parent"], sandbox=sandbox)
        if report.code != vector["expect"]:
            wrong.append((vector["name"], report.code, report.message))
    assert wrong == []


def test_the_gate_never_refuses_what_validate_calls_ok(attacks_dir: Path, sandbox: Sandbox) -> None:
    checked = 0
    for path in sorted(attacks_dir.glob("*.py")):
        source = path.read_bytes().decode("utf-8", "surrogateescape")
        # The others are refused by the same static steps, or take their time to end at a limit.
        if (
            path.name.startswith(("ok_", "schema_", "source_", "state_", "backend_b"))
            and gate(source).outcome == "reject"
        ):
            assert validate(source, sandbox=sandbox).code != "ok", path.name
            checked += 1
    if not checked:
        pytest.skip(f"no program of these kinds in {attacks_dir} is refused")


def edited(source: str, *edits: tuple[str, str]) -> str:
    for old, new in edits:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


RETRIEVE = '        return "\\n".join(self.memories)[:OUT_CHAR_BUDGET]\n'
INDEX = "        self.memories.extend(unit.memory_text for unit in units)\n"
UNIT = "class MemoryUnit:\n"
QUERY_METHOD = "    def retrieve(self, query: Query) -> str:\n"

CASES: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "module exits": ("load_error", [("class Memory:", "raise SystemExit(0)\n\n\nclass Memory:")]),
    "return outside a function": ("load_error", [("class Memory:", "return 1\n\n\nclass Memory:")]),
    "class is an instance": ("missing_definition", [("class Memory:", "Query = 3\n\n\nclass Memory:")]),
    "instruction of another kind": ("bad_instruction", [("class Memory:", "AnswerInstruction = 3\n\n\nclass Memory:")]),
    "instruction of enormous length": (
        "bad_instruction",
        [("class Memory:", "AnswerInstruction = 'x' * 20_001\n\n\nclass Memory:")],
    ),
    "instruction deleted": ("missing_definition", [("class Memory:", "del AnswerInstruction\n\n\nclass Memory:")]),
    "first failing group counts": (
        "bad_instruction",
        [
            ("class Memory:", "QueryPlanningInstruction = ' '\n\n\nclass Memory:"),
            ("query_text: str", "query_text: dict"),
        ],
    ),
    "string annotation": ("ok", [("memory_text: str", "memory_text: 'str'")]),
    "string annotation of another type": ("bad_schema", [("memory_text: str", "memory_text: 'dict[str, str]'")]),
    "string annotation of an unknown type": ("bad_schema", [("memory_text: str", "memory_text: 'Nowhere'")]),
    "bare list": ("bad_schema", [(UNIT, UNIT + "    tags: list\n")]),
    "nested dataclass": (
        "bad_schema",
        [(UNIT, "class Part:\n    a: str\n\n\n@dataclass\n" + UNIT + "    part: Part\n")],
    ),
    "schema by inheritance alone": (
        "bad_schema",
        [("@dataclass\nclass Query:", "@dataclass\nclass Base:\n    query_text: str\n\n\nclass Query(Base):")],
    ),
    "fields by inheritance": (
        "ok",
        [
            (
                "@dataclass\nclass Query:\n    query_text: str = field(\n",
                "@dataclass\nclass Base:\n    query_text: str = field(\n",
            ),
            ("class Memory:\n", "@dataclass\nclass Query(Base):\n    pass\n\n\nclass Memory:\n"),
        ],
    ),
    "init=False": (
        "bad_schema",
        [
            (
                "class Memory:",
                "@dataclass\nclass Query:\n    query_text: str = field(init=bool(0), default='')\n\n\nclass Memory:",
            )
        ],
    ),
    "InitVar": (
        "bad_schema",
        [("import dataclass, field", "import dataclass, field, InitVar"), (UNIT, UNIT + "    x: InitVar[str]\n")],
    ),
    "decorated later": (
        "ok",
        [("@dataclass\nclass Query:", "class Query:"), ("class Memory:", "dataclass(Query)\n\n\nclass Memory:")],
    ),
    "keyword-only and frozen": (
        "ok",
        [("@dataclass\nclass MemoryUnit", "@dataclass(frozen=True, kw_only=True)\nclass MemoryUnit")],
    ),
    "tuple default": (
        "ok",
        [
            (UNIT, "class MemoryUnit:\n    tags: list[str] = field(default_factory=tuple)\n"),
            ("    memory_text: str = field(\n", "    memory_text: str = field(\n        default='',\n"),
        ],
    ),
    "generator": ("bad_signature", [(RETRIEVE, "        yield ''\n")]),
    "method assigned as a lambda": (
        "ok",
        [(QUERY_METHOD, "    retrieve = lambda self, query: ''\n\n    def other(self, query: Query) -> str:\n")],
    ),
    "method of a base": (
        "ok",
        [
            (
                "class Memory:",
                "class Base:\n    def index(self, units, raw_text):\n        self.memories += [raw_text[:9]]\n\n\n"
                "class Memory(Base):",
            ),
            ("    def index(self, units: list[MemoryUnit], raw_text: str) -> None:\n" + INDEX, ""),
        ],
    ),
    "annotations are not checked": ("ok", [(QUERY_METHOD, "    def retrieve(self, query: int) -> bytes:\n")]),
    "positional-only self": ("ok", [(QUERY_METHOD, "    def retrieve(self, /, query: Query) -> str:\n")]),
    "positional-only query": ("bad_signature", [(QUERY_METHOD, "    def retrieve(self, query: Query, /) -> str:\n")]),
    "property": ("bad_signature", [(QUERY_METHOD, "    @property\n" + QUERY_METHOD)]),
    "exception in index": ("smoke_error", [(INDEX, "        units[0].missing\n")]),
    "exception for an empty list": ("smoke_error", [(INDEX, "        units[0]\n")]),
    "exit in retrieve": ("smoke_error", [(RETRIEVE, "        raise SystemExit\n")]),
    "exception before a wrong type": (
        "smoke_error",
        [(RETRIEVE, "        self.n = getattr(self, 'n', 0) + 1\n        return 1 // (3 - self.n)\n")],
    ),
    "wrong type before a length": (
        "retrieve_type",
        [
            (
                RETRIEVE,
                "        self.n = getattr(self, 'n', 0) + 1\n        return 'x' * 17000 if self.n == 1 else None\n",
            )
        ],
    ),
    "length before statefulness": (
        "retrieve_length",
        [
            (
                RETRIEVE,
                "        self.n = getattr(self, 'n', 0) + 1\n"
                "        return 'x' * 17000 if self.n == 3 else str(self.n)\n",
            )
        ],
    ),
    "index returns before retrieve fails": (
        "index_return",
        [(INDEX, "        return 0\n"), (RETRIEVE, "        raise ValueError\n")],
    ),
    "text subclass": (
        "ok",
        [
            ("class Memory:", "class Text(str):\n    pass\n\n\nclass Memory:"),
            (RETRIEVE, "        return Text('x')\n"),
        ],
    ),
    "stateful through the class": (
        "retrieve_stateful",
        [
            ("    def __init__", "    seen = []\n\n    def __init__"),
            (RETRIEVE, "        self.seen.append(1)\n        return str(len(self.seen))\n"),
        ],
    ),
    "embed of a text": ("smoke_error", [(INDEX, "        self.backend.embed('text')\n")]),
    "embed of nothing": ("ok", [(INDEX, "        assert self.backend.embed([]).shape[0] == 0\n")]),
    "ask answers": (
        "ok",
        [
            (
                RETRIEVE,
                "        assert self.backend.ask('a', json_object=True) == '{}'\n"
                "        return self.backend.ask('a', 'b')\n",
            )
        ],
    ),
    "unit vectors": (
        "ok",
        [
            (
                RETRIEVE,
                "        v = self.backend.embed(['a', 'b', 'a'])\n"
                "        assert abs((v * v).sum() - 3) < 1e-4 and (v[0] == v[2]).all() and abs(v[0] @ v[1]) < 0.9\n"
                "        return ''\n",
            )
        ],
    ),
    "optional fields have values": (
        "ok",
        [
            (UNIT, "class MemoryUnit:\n    n: int | None\n    t: list[str] | None\n"),
            (
                INDEX,
                "        assert all(len(u.memory_text) >= 20 and u.n is not None and u.t for u in units)\n"
                "        assert len({u.memory_text for u in units}) == len(units)\n",
            ),
        ],
    ),
    "two asks in index": ("ok", [(INDEX, "        self.backend.ask('a'), self.backend.ask('b')\n")]),
    "three asks in index": ("backend_calls", [(INDEX, "        [self.backend.ask('a') for _ in range(3)]\n")]),
    "four embeds in index": ("ok", [(INDEX, "        [self.backend.embed(['a']) for _ in range(4)]\n")]),
    "five embeds in index": ("backend_calls", [(INDEX, "        [self.backend.embed(['a']) for _ in range(5)]\n")]),
    "four asks and sixteen embeds in retrieve": (
        "ok",
        [
            (
                RETRIEVE,
                "        [self.backend.ask('a') for _ in range(4)]\n"
                "        [self.backend.embed(['a']) for _ in range(16)]\n        return ''\n",
            )
        ],
    ),
    "five asks in retrieve": (
        "backend_calls",
        [(RETRIEVE, "        [self.backend.ask('a') for _ in range(5)]\n        return ''\n")],
    ),
    "seventeen embeds in retrieve": (
        "backend_calls",
        [(RETRIEVE, "        [self.backend.embed(['a']) for _ in range(17)]\n        return ''\n")],
    ),
    "exception at scale": (
        "smoke_error",
        [(INDEX, INDEX + "        if len(self.memories) > 1000:\n            raise ValueError\n")],
    ),
    "wrong type at scale": (
        "retrieve_type",
        [(RETRIEVE, "        return None if len(self.memories) > 1000 else ''\n")],
    ),
    "type before calls at scale": (
        "retrieve_type",
        [
            (
                RETRIEVE,
                "        [self.backend.ask('a') for _ in range(5)]\n"
                "        return None if len(self.memories) > 1000 else ''\n",
            )
        ],
    ),
    "memory at scale": ("smoke_error", [(INDEX, INDEX + "        self.big = bytearray(8 << 30)\n")]),
}


@pytest.mark.parametrize("name", CASES)
def test_dynamic_steps(name: str, seed: str, sandbox: Sandbox) -> None:
    code, edits = CASES[name]
    source = edited(seed, *edits)
    report = validate(source, sandbox=sandbox, limits=ValidationLimits(cpu_seconds=5.0))
    assert report.code == code, report
    if code == "ok":
        assert gate(source).outcome != "reject"
    else:
        assert report.message


@pytest.mark.slow
def test_a_module_that_never_ends(seed: str, sandbox: Sandbox) -> None:
    source = edited(seed, ("class Memory:", "while True:\n    pass\n\n\nclass Memory:"))
    assert gate(source).outcome == "flag"
    assert validate(source, sandbox=sandbox).code == "too_slow"


def test_slow_at_scale_alone(seed: str, sandbox: Sandbox) -> None:
    source = edited(
        seed,
        (
            INDEX,
            "        total = 0\n        for i in range(600_000 if len(units) > 2 else 1):\n            total += i\n",
        ),
    )
    report = validate(source, sandbox=sandbox, limits=ValidationLimits(cpu_seconds=1.0))
    assert report.code == "too_slow", report
    assert "processor time" in report.message


def test_a_failure_names_the_programs_own_line(seed: str, sandbox: Sandbox) -> None:
    source = edited(seed, (RETRIEVE, "        return query.nothing\n"))
    report = validate(source, sandbox=sandbox)
    assert report.line == source.splitlines().index("        return query.nothing") + 1
    assert "nothing" in report.message
    assert "/" not in report.message


def test_a_parent_counts_by_its_syntax(seed: str, sandbox: Sandbox) -> None:
    assert validate("\n# note\n" + seed, seed, sandbox=sandbox).code == "no_change"
    assert validate('"""Another docstring."""\n' + seed, seed, sandbox=sandbox).code == "ok"
    assert validate(seed, "def f(:", sandbox=sandbox).code == "ok"
    assert validate("import os\n" + seed, "import os\n" + seed, sandbox=sandbox).code == "no_change"


def test_a_sandbox_of_its_own(seed: str) -> None:
    assert validate(seed).ok
