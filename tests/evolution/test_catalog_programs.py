"""Catalogue programs: one source a design, read back exactly; edits as diffs; what the generated code does."""

from __future__ import annotations

import ast
import dataclasses
import math
import random
import re
import sys
import types
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from prismem_core.evolution.catalog import features as design_types
from prismem_core.evolution.catalog.clauses import ANSWER
from prismem_core.evolution.catalog.detect import detect, is_own
from prismem_core.evolution.catalog.diffs import difference, draft
from prismem_core.evolution.catalog.edit import Edit
from prismem_core.evolution.catalog.edits import BY_NAME, EDITS
from prismem_core.evolution.catalog.features import SEED, Features, canonical
from prismem_core.evolution.catalog.render import render
from prismem_core.evolution.catalog.signals import CAPABILITY_HINTS, SENTENCES
from prismem_core.program import library
from prismem_core.program.patch import apply_patch
from prismem_core.program.sandbox import Sandbox
from prismem_core.program.validation import gate, validate
from prismem_core.tasks.text import content_stems

BUDGET = 16000
HYBRID = SEED.having({"lexical": "stemmed", "dense": True, "dates": True})
DOMAINS: dict[str, tuple[Any, ...]] = {
    "granularity": get_args(design_types.Granularity),
    "passages": get_args(design_types.Passages),
    "lexical": get_args(design_types.Lexical),
    "fusion": get_args(design_types.Fusion),
    "neighbours": get_args(design_types.Neighbours),
    "diversity": get_args(design_types.Diversity),
    "order": get_args(design_types.Order),
    "sub_queries": get_args(design_types.SubQueries),
    "floor": (None, 0.0, 1.0),
    "cap": (0, 40),
    "dense_weight": (0.3, 0.5, 0.7),
}


def random_design(rng: random.Random) -> Features:
    names = [f.name for f in dataclasses.fields(Features) if f.name != "answer"]
    changes: dict[str, Any] = {name: rng.choice(DOMAINS.get(name, (False, True))) for name in names}
    return SEED.having({**changes, "answer": tuple(name for name in ANSWER if rng.random() < 0.4)})


def start_of(edit: Edit) -> Features:
    """A design that the edit fits, as near to the hybrid one as possible."""
    undone = {"cap": 40, "standing": True, "neighbours": "all", "order": "time", "granularity": "sentence"}
    for base in (SEED, HYBRID, HYBRID.having({**undone, "answer": tuple(ANSWER)})):
        if edit.applied(base) is not None:
            return base
    raise AssertionError(f"no start for {edit.name}")


class Backend:
    """Embeddings over a few words: a text's row counts them."""

    WORDS = ("cat", "dog", "piano", "paris", "lisbon", "bread")

    def embed(self, texts: list[str]) -> np.ndarray:
        rows = np.array(
            [[float(text.lower().count(word)) for word in self.WORDS] + [0.01] for text in texts], np.float32
        )
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def indexed(design: Features, sessions: list[list[dict[str, Any]]]) -> tuple[Any, types.ModuleType]:
    """A memory of the design's program that has indexed the sessions, and its module."""
    module = types.ModuleType("catalog_program")
    module.OUT_CHAR_BUDGET = BUDGET  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    exec(compile(render(design), "program", "exec"), module.__dict__)
    memory = module.Memory(Backend())
    for units in sessions:
        names = {f.name for f in dataclasses.fields(module.MemoryUnit)}
        memory.index([module.MemoryUnit(**{k: v for k, v in unit.items() if k in names}) for unit in units], "raw")
    return memory, module


def build(design: Features, sessions: list[list[dict[str, Any]]]) -> Callable[..., str]:
    """The `retrieve` of such a memory over keyword arguments of Query; fields the program lacks are left out."""
    memory, module = indexed(design, sessions)
    query_names = {f.name for f in dataclasses.fields(module.Query)}
    return lambda **query: str(memory.retrieve(module.Query(**{k: v for k, v in query.items() if k in query_names})))


def unit(text: str, **more: Any) -> dict[str, Any]:
    return {"memory_text": text, "session_date": "8 May 2023", "speaker": text.partition(":")[0], **more}


DIALOGUE = [
    [unit("Ann: I bought a piano."), unit("Bob: How lovely."), unit("Ann: The cat sleeps on it.")],
    [unit("Bob: I flew to Lisbon.", session_date="3 June 2023"), unit("Ann: Bring bread.", session_date="3 June 2023")],
]


def test_default_design_is_the_seed_program() -> None:
    seed = library.source("seed")
    assert render(SEED) == seed
    assert detect(seed) == SEED
    assert is_own(seed)


def test_designs_are_read_back_from_their_source() -> None:
    rng = random.Random(7)
    for _ in range(400):
        design = random_design(rng)
        source = render(design)
        ast.parse(source)
        assert canonical(design) == design
        assert detect(source) == design
        assert render(detect(source)) == source
        assert max(map(len, source.split("\n"))) <= 124, "no line longer than the seed's longest"


def test_only_canonical_designs_are_rendered() -> None:
    with pytest.raises(ValueError, match="not canonical"):
        render(dataclasses.replace(SEED, smoothing=True))


def test_detection_survives_what_does_not_parse() -> None:
    assert detect("def broken(:\n") == SEED
    assert not is_own("def broken(:\n")


def test_catalogue_covers_all_components_and_signals() -> None:
    assert len(EDITS) >= 35
    assert len(BY_NAME) == len(EDITS) == len({edit.summary for edit in EDITS})
    assert {edit.component for edit in EDITS} == {"extraction", "indexing", "planning", "retrieval", "answer"}
    assert {name for edit in EDITS for name in edit.answers} == set(SENTENCES)
    assert {name for hints in CAPABILITY_HINTS.values() for name in hints} <= set(SENTENCES)


def test_the_documentation_lists_every_edit() -> None:
    text = (Path(__file__).parents[2] / "docs" / "catalog.md").read_text(encoding="utf-8")
    rows = [line for line in text.split("\n") if line.startswith("| `")]
    expected = [
        f"| `{e.name}` | {e.component} | {e.summary} | {', '.join(sorted(e.answers, key=lambda s: -e.answers[s]))} |"
        for e in EDITS
    ]
    assert rows == expected


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_edit_is_a_diff_that_the_patcher_applies(edit: Edit) -> None:
    source = render(start_of(edit))
    made = draft(source, edit)
    assert made is not None
    assert not made.rewritten
    assert apply_patch(source, difference(source, made.source)) == made.source
    assert detect(made.source) == made.design
    assert edit.applied(made.design) is None, "an edit does not apply twice"


def test_retrieval_edits_leave_indexing_alone() -> None:
    for edit in EDITS:
        start = start_of(edit)
        if edit.component != "retrieval" or edit.changes.get("diversity") == "sessions":
            continue
        before, after = (ast.parse(render(d)) for d in (start, edit.applied(start) or start))
        for name in ("__init__", "index"):
            assert _method(before, name) == _method(after, name), f"{edit.name} changes Memory.{name}"


def _method(module: ast.Module, name: str) -> str:
    memory = next(n for n in module.body if isinstance(n, ast.ClassDef) and n.name == "Memory")
    return ast.dump(next(n for n in memory.body if isinstance(n, ast.FunctionDef) and n.name == name))


def test_stemmer_is_porters() -> None:
    module: dict[str, Any] = {}
    source = render(SEED.having({"lexical": "stemmed"}))
    functions = {n.name: n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)}
    tables = [n for n in ast.parse(source).body if isinstance(n, ast.Assign)]
    parts = ast.Module([*tables, *(functions[name] for name in ("shape", "measure", "stem", "ends_short"))], [])
    exec(compile(parts, "stemmer", "exec"), module)
    words = "caresses ponies relational conditional rationally happily hopping falling controlling flies trouble sized feed agreed plastered motoring vietnamization predication operator decisiveness hopefulness callousness formality sensitivity sensibility electrical goodness revival allowance inference airliner adjustable replacement adjustment dependent adoption communism activate effective probate rate cease roll".split()  # noqa: E501, SIM905
    assert [module["stem"](word) for word in words] == [content_stems(word)[0] for word in words]


@pytest.mark.parametrize("lexical", ["plain", "stemmed"])
def test_lexical_scores_are_bm25(lexical: str) -> None:
    texts = [u["memory_text"] for session in DIALOGUE for u in session]
    question = "Where does the cat sleep, and where the piano?"
    split = content_stems if lexical == "stemmed" else lambda text: re.findall(r"\w+", text.lower())
    documents = [Counter(split(text)) for text in texts]
    mean = sum(map(Counter.total, documents)) / len(documents)
    expected = []
    for words in documents:
        score = 0.0
        for term in set(split(question)) & set(words):
            holding = sum(term in other for other in documents)
            rarity = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
            norm = 1.2 * (1 - 0.75 + 0.75 * words.total() / mean)
            score += rarity * words[term] * 2.2 / (words[term] + norm)
        expected.append(score)
    memory = indexed(SEED.having({"lexical": lexical}), DIALOGUE)[0]
    np.testing.assert_allclose(memory._lexical(question), expected, rtol=1e-12)


def test_dense_ranking_and_dates() -> None:
    retrieve = build(SEED.having({"dense": True, "dates": True}), DIALOGUE)
    assert retrieve(query_text="lisbon").split("\n")[0] == "[3 June 2023] Bob: I flew to Lisbon."


def test_neighbours_follow_their_hit() -> None:
    retrieve = build(HYBRID.having({"neighbours": "first", "dates": False}), DIALOGUE)
    assert retrieve(query_text="piano").split("\n")[:2] == ["Ann: I bought a piano.", "Bob: How lovely."]


def test_time_order_keeps_the_order_of_the_dialogue() -> None:
    retrieve = build(HYBRID.having({"order": "time", "dates": False}), DIALOGUE)
    assert retrieve(query_text="lisbon") == "\n".join(u["memory_text"] for session in DIALOGUE for u in session)


def test_people_of_the_question_come_first() -> None:
    sessions = [[unit("Bob: The cat is here."), unit("Ann: The cat is here."), unit("Ann: Yes.")]]
    retrieve = build(HYBRID.having({"people": True, "dates": False}), sessions)
    assert retrieve(query_text="cat", people=["Ann"]).startswith("Ann")
    assert retrieve(query_text="cat", people=[]).startswith("Bob")


def test_time_hint_prefers_its_month() -> None:
    sessions = [[unit("Ann: bread"), unit("Bob: Yes.")], [unit("Ann: bread", session_date="3 June 2023")]]
    retrieve = build(HYBRID.having({"time_hint": True}), sessions)
    assert retrieve(query_text="bread", time_hint="June 2023").startswith("[3 June")
    assert retrieve(query_text="bread", time_hint="").startswith("[8 May")


def test_standing_units_keep_their_place() -> None:
    filler = [unit(f"Ann: the cat and the cat number {i} " + "x" * 300, standing=False) for i in range(80)]
    note = unit("Bob: I always prefer bread." + " Really." * 40, standing=True)
    plain, standing = (build(HYBRID.having({"standing": s}), [[*filler, note]]) for s in (False, True))
    assert "prefer bread" not in plain(query_text="cat")
    assert standing(query_text="cat").startswith("[8 May 2023] Bob: I always prefer bread.")


@pytest.mark.parametrize("seed", range(16))
def test_retrieved_text_is_whole_lines_within_the_budget(seed: int) -> None:
    rng = random.Random(seed)
    ranking = {"lexical": "stemmed", "dense": rng.random() < 0.7} if seed % 4 else {"lexical": "none", "dense": False}
    design = random_design(rng).having(ranking)
    sessions = [
        [
            unit(
                f"Ann: {' '.join(rng.choices(Backend.WORDS, k=rng.randint(1, 90)))} {s}-{i}\nmore",
                topics=["cat", "dog"],
                standing=i % 3 == 0,
                event_date="7 May 2023",
            )
            for i in range(40)
        ]
        for s in range(6)
    ] + [[]]
    retrieve = build(design, sessions)
    query = {
        "query_text": "the cat in Paris",
        "sub_queries": ["cat", "paris", "dog"],
        "keywords": ["cat"],
        "people": ["Ann"],
        "time_hint": "May 2023",
        "negated": "never a cat",
        "asks_advice": True,
    }
    text = retrieve(**query)
    assert 0 < len(text) <= BUDGET
    assert retrieve(**query) == text, "retrieve changes nothing"
    if not design.ranked:
        return  # such a program prints units in order and cuts the text, as the seed does
    lines = text.split("\n")
    assert all(line.endswith("more") or "more (" in line or "Topics" in line for line in lines), "whole lines"
    assert build(design, [])(**query) == ""


def test_oversized_line_does_not_empty_the_text() -> None:
    sessions = [[unit("Ann: cat " + "x" * 20000), unit("Bob: a cat")]]
    assert build(HYBRID.having({"dates": False}), sessions)(query_text="cat") == "Bob: a cat"


def test_clauses_name_their_own_rule_only() -> None:
    """The words of `docs/offline.md` that switch a reader rule stand in the clause for that rule and in no other."""
    words = {
        "dates": ("date",),
        "lists": ("list", "comma"),
        "latest": ("most recent", "latest"),
        "sequence": ("order of events", "chronological order"),
        "details": ("all relevant details", "complete sentences"),
        "preferences": ("preferences", "standing instructions"),
        "both_sides": ("both sides", "contradict"),
        "yes_no": ("yes or no",),
        "abstain_speaker": ("No information available",),
        "abstain_unsupported": ("only when the memory clearly supports", "not mentioned"),
    }
    assert set(words) == set(ANSWER)
    for name, sentence in ANSWER.items():
        for other, triggers in words.items():
            assert any(trigger in sentence for trigger in triggers) == (other == name), (name, other)


@pytest.mark.slow
def test_every_edit_and_chains_of_edits_pass_validation() -> None:
    rng = random.Random(11)
    chains: list[tuple[str, Features, Features]] = []
    for edit in (edit for edit in EDITS if edit.changes):  # the others change an instruction's text only
        start = start_of(edit)
        chains.append((edit.name, start, edit.applied(start) or start))
    for _ in range(6):
        design, names = SEED, []
        while len(names) < 6:
            edit = rng.choice(EDITS)
            design, names = edit.applied(design) or design, [*names, edit.name]
        chains.append((" + ".join(names), SEED, design))
    with Sandbox() as sandbox:
        for name, parent, design in chains:
            source = render(design)
            assert gate(source).outcome == "pass", name
            report = validate(source, None if parent == design else render(parent), sandbox=sandbox)
            assert (report.code, report.warnings) == ("ok", ()), (name, report.message)
