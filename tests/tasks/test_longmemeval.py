"""LongMemEval: histories in order of time, evidence, dates, irregular instances, packs, and files of gigabytes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from prismem_core.digests import digest_bytes
from prismem_core.errors import DataError
from prismem_core.tasks import datasets
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.datasets import load, write_jsonl
from prismem_core.tasks.datasets.json_items import json_items
from prismem_core.tasks.task import Dataset


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


INSTANCE: dict[str, Any] = {
    "question_id": "q1",
    "question_type": "single-session-user",
    "question": " Where is my bike? ",
    "answer": 7,
    "question_date": "2023/05/30 (Tue) 08:08",
    "haystack_dates": ["2023/05/20 (Sat) 10:00", "2023/05/10 (Wed) 09:00", "2023/05/20 (Sat) 10:00"],
    "haystack_session_ids": ["answer_9", "padding_1", "padding_2"],
    "haystack_sessions": [
        [said("user", "My bike is in hall 7.", has_answer=True), said("assistant", "Good.", has_answer=False)],
        [said("user", "Hello")],
        [said("assistant", "Recap.")],
    ],
    "answer_session_ids": ["answer_9"],
}


def changed(**fields: Any) -> dict[str, Any]:
    return {**INSTANCE, **fields}


def loaded(tmp_path: Path, *instances: Any) -> Dataset:
    path = tmp_path / "longmemeval_x.json"
    path.write_text(json.dumps(list(instances)), encoding="utf-8")
    return load(path)


def test_sessions_are_sorted_and_their_ids_tell_nothing(tmp_path: Path) -> None:
    dataset = loaded(tmp_path, INSTANCE)
    shown = [session.text for session in dataset.histories["q1"].sessions]
    assert shown == [
        "[Session 1: 2023/05/10 (Wed) 09:00]\nuser: Hello",
        "[Session 2: 2023/05/20 (Sat) 10:00]\nuser: My bike is in hall 7.\nassistant: Good.",
        "[Session 3: 2023/05/20 (Sat) 10:00]\nassistant: Recap.",
    ]
    assert "answer_9" not in "".join(shown)


def test_a_task_has_its_date_evidence_and_benchmark(tmp_path: Path) -> None:
    (task,) = loaded(tmp_path, INSTANCE).tasks
    assert (task.id, task.history_id, task.reference, task.metric) == ("q1", "q1", "7", "f1")
    assert (task.evidence, task.evidence_ids) == (("My bike is in hall 7.",), ("answer_9:1",))
    assert task.asked == "Where is my bike? (asked on 2023/05/30 (Tue) 08:08)"
    assert (task.benchmark, task.native_type, task.primary) == (
        "longmemeval",
        "single-session-user",
        Capability.FACTUAL_RETRIEVAL,
    )


def test_abstention_and_preference(tmp_path: Path) -> None:
    abstention = changed(question_id="q1_abs", question_type="temporal-reasoning")
    preference = changed(question_id="q2", question_type="single-session-preference", answer="Prefers brass bells.")
    dataset = loaded(tmp_path, abstention, preference)
    first, second = dataset.tasks
    assert (first.metric, first.primary, first.native_type) == (
        "abstention",
        Capability.ADVERSARIAL,
        "temporal-reasoning",
    )
    assert (second.metric, second.rubric) == ("rubric", ("Prefers brass bells.",))


def test_irregular_instances_are_kept_and_reported(tmp_path: Path) -> None:
    dataset = loaded(
        tmp_path,
        INSTANCE,
        changed(question_id="unmarked", answer="x", haystack_sessions=[[said("user", "a")], [], [said("user", None)]]),
        changed(question_id="short", answer="x", haystack_dates=["soon"], question_date=None),
        changed(question_id="q1", answer=None),
        changed(question_id="twice", answer="x", haystack_session_ids=["answer_9", "answer_9", "s"]),
        changed(question_id="gone", answer="x", answer_session_ids=["nowhere"], question_type="riddle"),
        changed(question_id="late", answer="x", question_date="2023/05/15 (Mon) 00:00"),
        changed(question_id="none", question=None),
        changed(question_id="empty", haystack_sessions=[]),
        "no object",
    )
    assert list(dataset.histories) == ["q1", "unmarked", "short", "q1#3", "twice", "gone", "late", "none"]
    assert [task.id for task in dataset.tasks] == ["q1", "unmarked", "short", "q1#3", "twice", "gone", "late"]
    faults = [(item.record, item.kind) for item in dataset.irregularities if not item.variant]
    late = "session dated later than the question, kept"
    assert faults == [
        ("q1", "answer that is no text read as text"),
        ("unmarked session padding_1", "session without turns left out"),
        ("unmarked session padding_2", "turn without text kept"),
        ("unmarked", "no turn is marked as evidence"),
        ("short", "lists of the haystack differ in length, all sessions kept"),
        ("short session answer_9", "session date of another form kept as text"),
        ("short session padding_1", "session date of another form kept as text"),
        ("short session padding_2", "session date of another form kept as text"),
        ("short", "question without a date"),
        ("q1", "question id repeated, second one renamed"),
        ("q1#3", "answer missing"),
        ("twice", "session id repeated in its haystack, renamed"),
        ("gone", "unknown question type taken for factual retrieval"),
        ("gone", "evidence session that is not in the haystack"),
        ("late session answer_9", late),
        ("late session padding_2", late),
        ("none", "question without text left out"),
        ("empty", "lists of the haystack differ in length, all sessions kept"),
        ("empty", "instance that has no session with turns left out"),
        ("instance 9", "instance that is no object left out"),
    ]
    variants = {item.kind for item in dataset.irregularities if item.variant}
    assert variants == {"session that begins with the assistant", "haystack out of order of time, sorted"}
    assert dataset.irregularities[0].file == "longmemeval_x.json"
    assert [session.timestamp for session in dataset.histories["short"].sessions] == ["soon", "", ""]


def test_a_session_without_a_date_stays_behind_the_one_before(tmp_path: Path) -> None:
    dates = ["2023/05/20 (Sat) 10:00", "unknown", "2023/05/10 (Wed) 09:00"]
    dataset = loaded(tmp_path, changed(haystack_dates=dates))
    assert [session.timestamp for session in dataset.histories["q1"].sessions] == [dates[2], dates[0], dates[1]]


def test_a_pack_has_several_questions_on_one_history(tmp_path: Path) -> None:
    pack = changed(questions=["A?", "B?"], answers=["a", "b"], answer_session_ids=[["answer_9"], ["padding_1"]])
    del pack["question"], pack["answer"]
    dataset = loaded(tmp_path, pack)
    assert len(dataset.histories) == 1
    assert [(t.id, t.reference, t.native_type, t.benchmark, t.evidence_ids) for t in dataset.tasks] == [
        ("q1/q000", "a", "single-session-user", "longmemeval", ("answer_9:1",)),
        ("q1/q001", "b", "multi-question-pack", "", ()),
    ]


def test_a_question_index_says_that_it_has_no_histories(tmp_path: Path) -> None:
    path = tmp_path / "index.json"
    path.write_text(json.dumps([{"id": "a", "query": "?", "gold_answers": [1], "gold_ids": []}]), encoding="utf-8")
    with pytest.raises(DataError, match="question index of LongMemEval: 1 questions without their histories"):
        load(path)


def test_json_lines_of_instances(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    lines = [json.dumps(INSTANCE), json.dumps(changed(question_id="q2"))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert [task.id for task in load(path).tasks] == ["q1", "q2"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_large_file_is_read_item_by_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    instances = [changed(question_id=f"q{n}", answer=f"ä {n}") for n in range(50)]
    data = json.dumps(instances, ensure_ascii=False, indent=1).encode()
    path = tmp_path / "longmemeval_m.json"
    path.write_bytes(gzip.compress(data) if packed else data)
    whole = load(path)
    monkeypatch.setattr(datasets, "LARGE_BYTES", 10)
    monkeypatch.setattr("prismem_core.tasks.datasets.json_items._CHUNK_BYTES", 700)
    monkeypatch.setattr("prismem_core.tasks.datasets.source.Source.text", lambda *_: pytest.fail("read at once"))
    streamed = load(path)
    assert streamed == whole
    assert streamed.digest == digest_bytes(path.read_bytes())
    first, second = (streamed.histories[key].sessions[0].turns for key in ("q1", "q2"))
    assert first is second  # sessions that haystacks share are in memory once


@pytest.mark.parametrize(
    "content, message",
    [
        (b'[{"a": 1}, {"b": ', "is not valid JSON"),
        (b'[{"a": 1}', "ends in the middle of its list"),
        (b'{"a": 1}', "holds no JSON list"),
        (b"[\xff]", "not UTF-8"),
        (gzip.compress(b'[{"a": 1}]' * 100, mtime=0)[:30], "damaged gzip"),
    ],
)
def test_damaged_large_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        list(json_items(path))
    assert "\n" not in str(error.value)


def test_json_lines_keep_the_benchmark_and_the_date(tmp_path: Path) -> None:
    dataset = loaded(tmp_path, INSTANCE, changed(question_id="q2_abs"))
    write_jsonl(dataset, tmp_path / "copy.jsonl")
    assert load(tmp_path / "copy.jsonl").tasks == dataset.tasks


def test_real_instances(data_dir: Path) -> None:
    dataset = load(data_dir / "longmemeval" / "longmemeval_s_2.json.gz")
    sizes = {key: (len(h.sessions), sum(len(s.turns) for s in h.sessions)) for key, h in dataset.histories.items()}
    assert sizes == {"852ce960": (39, 396), "ba358f49": (41, 409)}
    update, synthesis = dataset.tasks
    assert (update.reference, update.native_type, update.primary.letter) == ("$400,000", "knowledge-update", "T")
    assert (synthesis.reference, synthesis.primary.letter) == ("33", "M")
    assert len(update.evidence) == len(synthesis.evidence) == 2
    assert update.asked_at == "2023/12/18 (Mon) 04:17"
    for history in dataset.histories.values():
        times = [session.timestamp for session in history.sessions]
        assert times == sorted(times)


def test_the_real_oracle_instance(data_dir: Path) -> None:
    dataset = load(data_dir / "longmemeval" / "longmemeval_oracle_1.json")
    (task,) = dataset.tasks
    assert (task.id, task.metric, task.primary.letter) == ("gpt4_70e84552_abs", "abstention", "A")
    assert [session.id for session in dataset.histories[task.history_id].sessions] == ["1", "2"]


def test_the_real_pack(data_dir: Path) -> None:
    dataset = load(data_dir / "longmemeval" / "multiquestion_pack_2.json.gz")
    assert (len(dataset.histories), len(dataset.tasks)) == (2, 18)
    single = load(data_dir / "longmemeval" / "longmemeval_s_2.json.gz")
    assert {k: h.digest for k, h in dataset.histories.items()} == {k: h.digest for k, h in single.histories.items()}
    assert dataset.repairs["answer that the benchmark contradicts, kept"] == 1
