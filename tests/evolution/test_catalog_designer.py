"""The catalogue designer: what it diagnoses, which edit it picks, how it learns from the run and merges specialists."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from prismem_core.evaluation.cases import Case, EvidenceView, TaskDiagnostics
from prismem_core.evaluation.diagnostics_table import DiagnosticsRow, DiagnosticsTable, Lengths
from prismem_core.evolution.catalog.choice import experience, program_mark
from prismem_core.evolution.catalog.detect import detect, is_own
from prismem_core.evolution.catalog.edits import BY_NAME, EDITS
from prismem_core.evolution.catalog.features import SEED, Features
from prismem_core.evolution.catalog.render import render
from prismem_core.evolution.catalog.signals import read_signals
from prismem_core.evolution.catalog_designer import CatalogDesigner
from prismem_core.evolution.designer import (
    Attempt,
    Designer,
    IntegrationBrief,
    ParentBrief,
    RevisionRecord,
    SpecialistView,
)
from prismem_core.program.patch import apply_patch
from prismem_core.tasks.capability import Capability

F, T, P, M, A = Capability
HYBRID = SEED.having({"lexical": "stemmed", "dense": True})
DATED = HYBRID.having({"dates": True, "answer": ("dates",)})
LOW = {F: 0.4, T: 0.4, M: 0.4, A: 0.4}


def case(question: str, capability: Capability = F, **more: Any) -> Case:
    values: dict[str, Any] = {
        "task_id": question,
        "primary": capability,
        "secondary": (),
        "question": question,
        "reference": "piano",
        "predicted": "violin",
        "score": 0.1,
        "diagnostics": TaskDiagnostics(0.9, 0.9, 0.9),
        "query_plan": {},
        "retrieved_text": "Ann: I bought a fine old piano.",
        "evidence": (evidence("I bought a fine old piano."),),
    }
    return Case(**{**values, **more})


def evidence(snippet: str, *before: str) -> EvidenceView:
    return EvidenceView(snippet, "\n".join(["[Session 1]", *before, f"Ann: {snippet}"]))


def brief(
    design: Features = HYBRID,
    target: Capability | None = None,
    cases: Sequence[Case] = (),
    tried: Sequence[RevisionRecord] = (),
    **more: Any,
) -> ParentBrief:
    values: dict[str, Any] = {
        "stage": "cold_start" if target is None else "refinement",
        "iteration": 3,
        "parent_id": "n02",
        "source": render(design),
        "target": target,
        "accuracy": LOW,
        "train": 0.4,
        "table": None,
        "lengths": Lengths(200.0, 15000.0),
        "cases": tuple(cases),
        "explored": (),
        "tried": tuple(tried),
        "seed": 5,
    }
    return ParentBrief(**{**values, **more})


def record(
    edit: str,
    after: Mapping[Capability, float],
    before: Mapping[Capability, float] = LOW,
    target: Capability | None = None,
    **more: Any,
) -> RevisionRecord:
    values: dict[str, Any] = {
        "iteration": 1,
        "parent_id": "n00",
        "program_id": "n01",
        "target": target,
        "diagnosis": "",
        "summary": BY_NAME[edit].summary,
        "components": (),
        "accuracy": after,
        "train": None,
        "valid": None,
        "outcome": "retained",
        "details": {"edit": edit, "before": {str(c): v for c, v in before.items()}, "program": "other"},
    }
    return RevisionRecord(**{**values, **more})


def chosen(of: ParentBrief, feedback: Sequence[Attempt] = ()) -> str:
    designer = CatalogDesigner()
    revision = designer.revise(of, designer.diagnose(of), feedback)
    return "" if revision is None else str(revision.details["edit"])


def test_it_is_a_designer() -> None:
    assert isinstance(CatalogDesigner(), Designer)


def test_a_blind_program_gets_a_ranking_first() -> None:
    designer = CatalogDesigner()
    of = brief(SEED, cases=[case("What did Ann buy?")])
    diagnosis = designer.diagnose(of)
    assert "ignores the query" in diagnosis.text and "n02 scores 0.400" in diagnosis.text
    revision = designer.revise(of, diagnosis, [])
    assert revision is not None
    assert detect(apply_patch(of.source, revision.code)).ranked
    assert revision.summary == BY_NAME[revision.details["edit"]].summary


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (case("When did Ann buy the piano?", T, reference="7 May 2023"), {"date-lines"}),
        (case("What does Ann hope?", A, reference="", predicted="a dog"), {"decline-unknown-person"}),
        (case("What instruments does Ann play?", M, reference="piano, flute"), {"list-answers"}),
        (case("Can you recommend a book?", P, reference="Response should be short"), {"standing-notes"}),
        (
            case("Have I used Flask?", A, reference="You gave contradictory information about this."),
            {"both-sides", "negation-query"},
        ),
        (case("Is Ann a pianist?", F, reference="Yes, she is"), {"yes-or-no"}),
        (case("What did Ann say?", F, reference="word " * 40, predicted="short"), {"full-details"}),
        (
            case(
                "What makes Ann happy?",
                retrieved_text="Bob: What did you buy for the house?",
                evidence=(evidence("A fine old piano.", "Bob: What did you buy for the house?"),),
            ),
            {"neighbours-of-first", "smoothed-scores", "window-embeddings"},
        ),
    ],
    ids=lambda value: value.question if isinstance(value, Case) else "",
)
def test_the_edit_answers_what_the_cases_show(shown: Case, expected: set[str]) -> None:
    several = [dataclasses.replace(shown, task_id=str(i)) for i in range(4)]
    assert chosen(brief(target=shown.primary, cases=several)) in expected


def test_a_declined_question_is_told_apart_from_an_invented_answer() -> None:
    declined = case("What did Ann buy?", predicted="No information available")
    rightly = case("What did Bob buy?", A, reference="", predicted="No information available.")
    signals = read_signals(brief(target=F, cases=[declined]), HYBRID).strength
    assert signals["denied"] == pytest.approx(0.45) and "invented" not in signals
    assert "denied" not in read_signals(brief(target=A, cases=[rightly]), HYBRID).strength


def test_the_table_shows_a_miss_where_retrieval_falls_behind_extraction() -> None:
    def signals(d_ret: float) -> Mapping[str, float]:
        table = DiagnosticsTable({F: DiagnosticsRow(10, 0.4, 0.95, 0.95, d_ret)}, Lengths(200.0, 15000.0))
        return read_signals(brief(table=table, accuracy={F: 0.4}), HYBRID).strength

    assert signals(0.6)["missed"] > signals(0.9)["missed"] + 0.3
    assert "misread" in signals(0.9)


def test_decisions_repeat_and_follow_the_seed() -> None:
    of = brief(target=F, cases=[case("What did Ann buy?", retrieved_text="")])
    assert [chosen(of) for _ in range(3)] == [chosen(of)] * 3
    assert len({chosen(dataclasses.replace(of, seed=seed)) for seed in range(40)}) > 1


def test_a_program_is_not_proposed_twice() -> None:
    of = brief(SEED)
    designer = CatalogDesigner()
    seen: list[str] = []
    tried: list[RevisionRecord] = []
    for _ in range(6):
        now = dataclasses.replace(of, tried=tuple(tried))
        revision = designer.revise(now, designer.diagnose(now), [])
        assert revision is not None
        source = apply_patch(of.source, revision.code)
        assert source not in seen
        assert revision.details["program"] == program_mark(source)
        seen.append(source)
        tried.append(record(str(revision.details["edit"]), LOW, details=revision.details))


def test_feedback_of_the_iteration_leads_to_another_edit() -> None:
    of = brief(SEED)
    first = chosen(of)
    failed = Attempt(3, 0, BY_NAME[first].summary, "", "validation:load_error", "boom")
    assert chosen(of, [failed]) not in ("", first)


def test_nothing_left_to_propose_is_said() -> None:
    of = brief(HYBRID)
    feedback = [Attempt(3, i, edit.summary, "", "patch:noop", "") for i, edit in enumerate(EDITS)]
    assert chosen(of, feedback) == ""


def test_experience_follows_the_target() -> None:
    helped = record("variety", {**LOW, M: 0.44, F: 0.38})
    assert experience("variety", M, [helped]) == pytest.approx(2.0)
    assert experience("variety", F, [helped]) == pytest.approx(0.25)
    assert experience("variety", M, []) == pytest.approx(1.15)
    assert experience("recency", M, [helped]) == pytest.approx(1.15)
    broken = record("variety", {}, program_id=None, outcome="validation:load_error")
    assert experience("variety", M, [broken]) == pytest.approx(0.2)
    stopped = record("variety", {M: 0.4}, target=M, outcome="gate:target")
    assert experience("variety", M, [stopped]) == pytest.approx(0.5)


def test_a_failed_edit_makes_room_for_the_next() -> None:
    cases = [case(f"When did Ann buy the piano {i}?", T, reference="7 May 2023") for i in range(4)]
    assert chosen(brief(target=T, cases=cases)) == "date-lines"
    stopped = [record("date-lines", {T: 0.3}, target=T, outcome="gate:target")]
    assert chosen(brief(target=T, cases=cases, tried=stopped)) != "date-lines"


FOREIGN = """\
from dataclasses import dataclass

MemoryExtractionInstruction = "Note what was said."
QueryPlanningInstruction = "Ask."
AnswerInstruction = "Answer from the notes."


@dataclass
class MemoryUnit:
    note: str


@dataclass
class Query:
    words: str


class Memory:
    def __init__(self, backend):
        self.notes = []

    def index(self, units, raw_text):
        self.notes.extend(unit.note for unit in units)

    def retrieve(self, query):
        return "\\n".join(self.notes)[:OUT_CHAR_BUDGET]
"""


def test_a_foreign_program_keeps_its_own_instruction() -> None:
    shown = [case(f"What does Ann hope {i}?", A, reference="", predicted="a dog") for i in range(4)]
    of = brief(target=A, cases=shown, source=FOREIGN)
    designer = CatalogDesigner()
    revision = designer.revise(of, designer.diagnose(of), [])
    assert revision is not None and revision.details["edit"] == "decline-unknown-person"
    result = apply_patch(FOREIGN, revision.code)
    assert "Answer from the notes." in result and "No information available" in result and "note: str" in result


def test_a_foreign_program_without_a_ranking_is_brought_into_the_catalogues_form() -> None:
    for source in (FOREIGN, FOREIGN.rstrip("\n")):
        of = brief(source=source, cases=[case("What did Ann buy?")])
        designer = CatalogDesigner()
        revision = designer.revise(of, designer.diagnose(of), [])
        assert revision is not None and revision.details["rewritten"]
        result = apply_patch(source, revision.code)
        assert is_own(result.rstrip("\n") + "\n") and detect(result).ranked


def integration(
    tried: Sequence[RevisionRecord], specialists: Mapping[Capability, tuple[str, Features]], base: Features = DATED
) -> IntegrationBrief:
    views = tuple(
        SpecialistView(c, name, render(design), 2, 0.05, LOW, "n01", False) for c, (name, design) in specialists.items()
    )
    return IntegrationBrief(18, "n05", render(base), LOW, 0.4, Lengths(200.0, 15000.0), views, (), tuple(tried), 5)


LINEAGE = [
    record("two-rankings", LOW, program_id="n01", valid=0.40),
    record("date-lines", LOW, program_id="n05", parent_id="n01", valid=0.45),
    record("list-answers", {**LOW, M: 0.45}, program_id="n06", parent_id="n05", valid=0.47),
    record("decline-unsupported", {**LOW, A: 0.5, T: 0.37}, program_id="n07", parent_id="n05", valid=0.42),
    record("recency", {**LOW, T: 0.42}, program_id="n08", parent_id="n01", valid=0.41),
]
SPECIALISTS = {
    M: ("n06", DATED.having({"answer": ("dates", "lists")})),
    A: ("n07", DATED.having({"answer": ("dates", "abstain_unsupported")})),
    T: ("n08", HYBRID.having({"recency": True})),
}


def test_integration_brings_in_what_the_base_lacks_and_narrows_after_a_rejection() -> None:
    designer = CatalogDesigner()
    of = integration(LINEAGE, SPECIALISTS)
    plan = designer.plan_integration(of)
    assert plan.details["edits"] == ["list-answers", "decline-unsupported", "recency"]
    assert "two-rankings" not in plan.text and "date-lines" not in plan.text

    attempts: list[Attempt] = []
    used: list[list[str]] = []
    for number in range(6):
        revision = designer.integrate(of, plan, attempts)
        if revision is None:
            break
        source = apply_patch(of.source, revision.code)
        used.append(list(revision.details["edits"]))
        fell = {**LOW, T: 0.3}
        attempts.append(Attempt(18, number, revision.summary, revision.code, "gate:drop", "", source, "n18", fell, 0.4))
    assert used[0] == ["list-answers", "decline-unsupported", "recency"]
    assert used[1] == ["list-answers", "recency"], (
        "what hurt the capability that fell, and the overall score, goes first"
    )
    assert len({tuple(names) for names in used}) == len(used)
    first = apply_patch(of.source, designer.integrate(of, plan, []).code)  # type: ignore[union-attr]
    assert detect(first) == DATED.having({"recency": True, "answer": ("dates", "lists", "abstain_unsupported")})


def test_integration_of_nothing_is_declined() -> None:
    designer = CatalogDesigner()
    of = integration(LINEAGE[:2], {})
    plan = designer.plan_integration(of)
    assert "nothing to bring in" in plan.text
    assert designer.integrate(of, plan, []) is None


def test_integration_leaves_out_what_cost_a_capability_too_much() -> None:
    dear = record("anonymous-lines", {**LOW, A: 0.0, T: 0.5}, program_id="n09", parent_id="n05", valid=0.35)
    lists = SPECIALISTS[M]
    of = integration([*LINEAGE, dear], {M: lists, T: ("n09", DATED.having({"anonymous": True}))})
    designer = CatalogDesigner()
    plan = designer.plan_integration(of)
    assert plan.details["edits"] == ["list-answers", "anonymous-lines"]
    revision = designer.integrate(of, plan, [])
    assert revision is not None and revision.details["edits"] == ["list-answers"]


def test_rounds_that_remain_try_what_helped_elsewhere() -> None:
    designer = CatalogDesigner()
    of = integration(LINEAGE, {A: SPECIALISTS[A]})
    plan = designer.plan_integration(of)
    assert plan.details["edits"] == ["decline-unsupported"]
    first = designer.integrate(of, plan, [])
    assert first is not None and first.details["edits"] == ["decline-unsupported"]
    source = apply_patch(of.source, first.code)
    rejected = Attempt(18, 0, first.summary, first.code, "gate:drop", "", source, "n18", {**LOW, T: 0.2}, 0.4)
    second = designer.integrate(of, plan, [rejected])
    assert second is not None and second.details["edits"] == ["list-answers", "recency"]
