"""What the checks know of collections: the interface that has them, and the calls they have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from prismem_core.program.components import code_digest, restart_stage
from prismem_core.program.interface import BACKEND_CALLS, COLLECTION_CALLS
from prismem_core.program.interface_prompt import interface_prompt
from prismem_core.program.sandbox import CollectionLimits, Sandbox
from prismem_core.program.sandbox.collection import Collection
from prismem_core.program.validation import ValidationLimits, gate, uses_collections, validate

HELD = """from dataclasses import dataclass, field

MemoryExtractionInstruction = "Extract."
QueryPlanningInstruction = "Plan."
AnswerInstruction = "Answer."


@dataclass
class MemoryUnit:
    memory_text: str = field(metadata={"description": "One fact"})


@dataclass
class Query:
    query_text: str


class Memory:
    def __init__(self, backend):
        self.texts = []
        self.notes = backend.collection()

    def index(self, units, raw_text):
        new = [unit.memory_text for unit in units]
        self.texts.extend(new)
        self.notes.add(new)

    def retrieve(self, query):
        hits = self.notes.search(query.query_text, 5)
        return "\\n".join(self.texts[i] for i, _ in hits)
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


def edited(old: str, new: str) -> str:
    assert HELD.count(old) == 1
    return HELD.replace(old, new)


def test_the_interface_decides(sandbox: Sandbox) -> None:
    assert gate(HELD, "engine").outcome == "pass"
    assert validate(HELD, sandbox=sandbox, interface="engine").code == "ok"
    for report in (gate(HELD), validate(HELD, sandbox=sandbox)):
        assert report.code == "forbidden_access"
        assert 'backend.collection needs interface="engine"; with interface="paper"' in report.message
        assert report.line == HELD.splitlines().index("        self.notes = backend.collection()") + 1


@pytest.mark.parametrize("name", ["store", "_worker", "collections", "embedder"])
def test_the_backend_has_no_other_attributes(name: str) -> None:
    report = gate(edited("backend.collection()", f"backend.{name}"), "engine")
    assert report.code == "forbidden_access"
    assert f"the backend has ask, embed and collection only, not {name}" in report.message


REFUSED = {
    "attribute of self": edited("self.notes.search(", "self.notes.query("),
    "hidden attribute": edited("self.notes.search(", "self.notes._request("),
    "another name for it": edited("hits = self", "notes = self.notes\n        notes.rows\n        hits = self"),
    "without a name": edited("self.texts = []", "self.texts = []\n        backend.collection().handle"),
    "bound late": edited("= backend.collection()", "= None\n        self.notes = backend.collection()").replace(
        "self.notes.add(", "self.notes.extend("
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_no_collection_has_is_refused(name: str) -> None:
    report = gate(REFUSED[name], "engine")
    assert report.code == "forbidden_access"
    assert f"a collection has {', '.join(COLLECTION_CALLS[:-1])} and {COLLECTION_CALLS[-1]} only" in report.message


DOUBTFUL = {
    "a field of the same name": edited("    query_text: str\n", "    query_text: str\n    notes: str = ''\n").replace(
        "hits = self", "query.notes.split()\n        hits = self"
    ),
    "another value for the name": edited(
        "self.texts = []", "self.texts = []\n        self.notes = ''.join('')"
    ).replace("hits = self", "self.notes.strip\n        hits = self"),
    "a record that has it": edited(
        "self.texts = []", "self.texts = namedtuple('T', 'notes')('x').notes.split()"
    ).replace("from dataclasses", "from collections import namedtuple\nfrom dataclasses"),
    "a parameter of the same name": edited(
        "hits = self", "(lambda notes: notes.strip())('x')\n        notes = self.notes\n        hits = self"
    ),
    "an item of a list": edited("hits = self", "[self.notes][0].search('x', 1)\n        hits = self"),
}


@pytest.mark.parametrize("name", DOUBTFUL)
def test_what_may_be_something_else_is_left_to_the_trial_run(name: str) -> None:
    report = gate(DOUBTFUL[name], "engine")
    assert report.outcome == "pass", report


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ("self.notes.search(query.query_text, 5)", "[self.notes][0].find('x')", "smoke_error", "no attribute 'find'"),
        ("self.notes.search(query.query_text, 5)", "self.notes.search('x', -1)", "smoke_error", "k must be from 0"),
        ("hits = self", "self.notes.add(['x'])\n        hits = self", "smoke_error", "read-only in retrieve()"),
        (
            "self.notes.add(new)",
            "for text in new: self.notes.add([text])",
            "backend_calls",
            "20 calls of collections; at most 8 are allowed: add or look for many texts in one call",
        ),
        (
            "hits = self",
            "for _ in range(17 * (len(self.texts) > 9)): self.notes.search('x', 1)\n        hits = self",
            "backend_calls",
            "calls of collections; at most 16 are allowed",
        ),
    ],
)
def test_the_trial_run_finds_the_rest(sandbox: Sandbox, old: str, new: str, code: str, message: str) -> None:
    limits = ValidationLimits(sessions=3, dimension=32)
    report = validate(edited(old, new), sandbox=sandbox, interface="engine", limits=limits)
    assert report.code == code, report
    assert message in report.message


def test_a_search_that_depends_on_the_search_before_is_found(sandbox: Sandbox) -> None:
    stateful = edited("hits = self", "self.texts[0] += '!'\n        hits = self")
    limits = ValidationLimits(sessions=1, dimension=32)
    assert validate(stateful, sandbox=sandbox, interface="engine", limits=limits).code == "retrieve_stateful"


def test_where_a_program_asks_for_a_collection() -> None:
    assert uses_collections(HELD) == HELD.splitlines().index("        self.notes = backend.collection()") + 1
    assert uses_collections(edited("backend.collection()", "self.collection()")) is None
    assert uses_collections(edited("backend.collection()", "getattr(self, '_backend').ask('x')")) is None


def test_a_change_of_the_search_keeps_the_collection() -> None:
    revised = edited("query.query_text, 5", "query.query_text, 9")
    assert restart_stage(HELD, revised) == "planning"
    index = ["Memory.__init__", "Memory.index", "MemoryUnit"]
    assert code_digest(HELD, index) == code_digest(revised, index)
    assert code_digest(HELD, ["Memory.retrieve"]) != code_digest(revised, ["Memory.retrieve"])
    assert restart_stage(HELD, edited("self.notes.add(new)", "self.notes.add(new[:9])")) == "indexing"


def test_the_table_of_calls_is_what_a_program_gets() -> None:
    public = {name for name in vars(Collection) if not name.startswith("_")}
    assert public == set(COLLECTION_CALLS)
    assert BACKEND_CALLS == {"paper": ("ask", "embed"), "engine": ("ask", "embed", "collection")}


def test_the_prompt_describes_collections_for_interface_engine_alone() -> None:
    paper, engine = interface_prompt("paper"), interface_prompt("engine")
    assert "collection." not in paper
    assert set(paper.splitlines()) < set(engine.splitlines())
    for call in COLLECTION_CALLS:
        assert f"`collection.{call}(" in engine
    for name in ("backend.ask(", "backend.embed(", "OUT_CHAR_BUDGET", "MemoryExtractionInstruction", "list[str]"):
        assert name in paper
    assert "goes up to 77." in interface_prompt("engine", CollectionLimits(pool=77))
