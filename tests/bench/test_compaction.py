"""The count of what compaction saves: figures by hand, and that it notices what must not be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from prismem_core.bench import compaction
from prismem_core.clients.offline.embedders import HashingEmbedder
from prismem_core.evaluation.cases import Case, EvidenceView
from prismem_core.evaluation.compaction import CaseTexts
from prismem_core.evolution.excerpts import Extent
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.datasets import load, write_jsonl
from prismem_core.tasks.history import History
from prismem_core.tasks.task import Dataset

EMBEDDER = HashingEmbedder()
RAIN = "\n".join(f"user: It rained on day {i}." for i in range(200))
UNITS = (*(f'{{"memory_text": "It rained on day {i}."}}' for i in range(100)), '{"memory_text": "Ann left in May"}')
CASE = Case(
    "q1", Capability.TEMPORAL, (), "When did Ann leave?", "In May", "In June", 0.0, None, {},
    f"{RAIN}\nIn May Ann left.",
    (
        EvidenceView("Ann left in May.", f"{RAIN}\nuser: Ann left in May. Bye!", UNITS),
        EvidenceView("It rained on day 7.", f"{RAIN}\nuser: Ann left in May. Bye!", UNITS),
        EvidenceView("unmapped", ""),
    ),
)  # fmt: skip


def measured(case: Case, extent: Extent = compaction.SHOWN) -> compaction.Measured:
    return compaction.measure(case, CaseTexts(EMBEDDER, [case]), EMBEDDER, extent)


def test_a_case_by_hand() -> None:
    found = measured(CASE)
    assert found.faults == []
    assert found.parts["retrieved_text"][0] == len(CASE.retrieved_text)
    assert found.parts["original_text"][0] == len(CASE.evidence[0].original_text), "a source counts once"
    assert found.parts["extracted_as"][0] == sum(map(len, UNITS)) + len(UNITS) - 1
    assert all(2000 < shown <= 2400 for _, shown in found.parts.values())
    assert found.best_units == (2, 2)
    assert found.sentences == {"retrieved_text": (1, 1), "original_text": (2, 2)}
    saved = sum(whole - shown for whole, shown in found.parts.values())
    assert 0 <= found.size[0] - found.size[1] - saved < 1000, "the rest is newlines and quotes, escaped"
    assert found.reduction == 1 - found.size[1] / found.size[0]
    whole = measured(CASE, compaction.WHOLE)
    assert (whole.reduction, whole.faults) == (0, [])


def test_what_must_not_be_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CaseTexts, "units", lambda self, case, position, budget: list(UNITS[:8]))
    assert measured(CASE).faults == ["q1: the unit most like piece 1 is not shown"]
    monkeypatch.undo()
    monkeypatch.setattr(CaseTexts, "excerpt", lambda self, case, text, budget: text)
    whole = len(CASE.retrieved_text), len(CASE.evidence[0].original_text)
    assert measured(CASE).faults == [
        f"q1: an excerpt has {size} characters, 2400 are allowed" for size in (whole[0], whole[1], whole[1])
    ]
    monkeypatch.setattr(CaseTexts, "excerpt", lambda self, case, text, budget: text[:10] or text)
    short = replace(CASE, retrieved_text="It rained on day 7.", evidence=())
    assert measured(short).faults == ["q1: a text within its budget was changed"]
    fenced = replace(CASE, retrieved_text=f"```\n{RAIN}\n```", evidence=())
    assert measured(fenced).faults == ["q1: a fence was cut"]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The first sessions of a conversation of the sample with some of their questions."""
    sample = load("sample")
    history_id = sample.default_split["train"][0]
    history = History(history_id, sample.histories[history_id].sessions[:3])
    text = "\n".join(session.text for session in history.sessions)
    tasks = [
        t for t in sample.tasks
        if t.history_id == history_id and t.evidence and t.twin is None and all(e in text for e in t.evidence)
    ]  # fmt: skip
    path = tmp_path / "small.jsonl"
    write_jsonl(
        Dataset("small", {history_id: history}, tuple(tasks[:4]), "", {"train": (history_id,)}, sample.reply_words),
        path,
    )
    return path


def test_the_training_questions_are_measured_and_the_entry_replaced(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results/compaction.json"
    arguments = ["--data", str(small), "--programs", "bm25_rag", "--results", str(results)]
    expected = 0
    for _ in range(2):
        expected = compaction.main(arguments)
        [entry] = json.loads(results.read_text())
        assert entry["programs"]["bm25_rag"]["cases"] == entry["questions"] == 4
        assert entry["all"]["faults"] == 0
        best, shown = entry["all"]["best_units"]
        assert best == shown > 0
        assert expected == (0 if entry["all"]["mean_reduction"] >= 0.4 else 9)
        assert f"| bm25_rag | 4 | {entry['all']['characters'][0]:,} |" in capsys.readouterr().out
    compaction.write(results, {**entry, "name": "another"})
    assert [own["name"] for own in json.loads(results.read_text())] == sorted(["another", entry["name"]])


def test_errors_say_what_is_wrong(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "split.json"
    empty.write_text(json.dumps({"train": [], "valid": [], "test": [load(small).tasks[0].history_id]}))
    assert compaction.main(["--data", "no/such/file"]) == 3
    assert "no/such/file" in capsys.readouterr().err
    assert compaction.main(["--data", str(small), "--split", str(empty)]) == 3
    assert "the train part of data set" in capsys.readouterr().err
    assert compaction.main(["--data", "sample", "--programs", "no_such_program"]) == 3
    assert "no program at no_such_program" in capsys.readouterr().err


def test_results_that_cannot_be_written_are_told_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*given: object) -> None:
        raise AssertionError("nothing is measured")

    monkeypatch.setattr(compaction, "run", work)
    other = tmp_path / "other.json"
    for path, said in (
        (Path("/proc/x/c.json"), "--results: cannot write in /proc/x: "),
        (other / "c.json", f"--results: cannot write in {other}: "),
        (tmp_path, "is a folder; name a file"),
        (other, "holds no results of this program"),
    ):
        for text in ("[" * 2000, '{"a": 1}', "[3]"):
            other.write_text(text)
            assert compaction.main(["--data", "sample", "--results", str(path)]) in (2, 3)
            told = capsys.readouterr().err
            assert said in told and told.count("\n") == 1
            assert other.read_text() == text
