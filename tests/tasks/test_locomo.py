"""LoCoMo: every irregular record of the data folder's README, on synthetic records and on the real ones."""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path
from typing import Any

import pytest

from prismem_core.errors import DataError
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.datasets import load
from prismem_core.tasks.datasets.locomo import is_locomo
from prismem_core.tasks.task import Dataset, Task


def turn(number: str, speaker: str, text: str, **more: Any) -> dict[str, Any]:
    return {"speaker": speaker, "dia_id": number, "text": text, **more}


SAMPLE: dict[str, Any] = {
    "sample_id": "conv-9",
    "qa": [
        {"question": "When did Ana paint?", "answer": 2022, "evidence": ["D1:1"], "category": 2},
        {"question": " What did Bo buy? ", "answer": " a boat ", "evidence": ["D2:1; D10:2"], "category": 1},
        {"question": "Which dog?", "answer": "a lab; or so", "evidence": ["D2:01 D1:2", "D1:2"], "category": 3},
        {"question": "Where?", "answer": "Rome", "evidence": ["D", "D:10:1", "D10:19"], "category": 4},
        {"question": "Why did Bo paint?", "adversarial_answer": "for peace", "evidence": ["D1:1"], "category": 5},
        {"question": "Where?", "adversarial_answer": "Rome", "answer": "No", "evidence": ["D10:1"], "category": 5},
        {"question": "How?", "answer": "slowly", "evidence": [], "category": 4},
        {"question": "What else?", "evidence": ["D1:1,D1:2"], "category": 4},
        {"question": "Odd?", "answer": "x", "evidence": [], "category": 9},
    ],
    "conversation": {
        "speaker_a": "Ana",
        "speaker_b": "Bo",
        "session_10_date_time": "1:56 pm on 8 May, 2023",
        "session_10": [turn("D10:1", "Ana", "We were in Rome."), turn("D10:2", "Bo", "I bought a boat.")],
        "session_1_date_time": "9:00 am on 1 January, 2023",
        "session_1": [
            turn("D1:1", "Ana", "I painted this in 2022.", blip_caption="a sunset", img_url=["u"], query="sun"),
            turn("D1:2", "Bo", "", blip_caption="a dog"),
        ],
        "session_2_date_time": "9:00 am on 2 January, 2023",
        "session_2": [turn("D2:1", "Bo", "I want a boat.")],
        "session_20_date_time": "9:00 am on 3 June, 2023",
    },
    "event_summary": {"events_session_1": {"Ana": ["SECRET EVENT"]}},
    "observation": {"session_1_observation": {"Ana": [["SECRET OBSERVATION", "D1:1"]]}},
    "session_summary": {"session_1_summary": "SECRET SUMMARY"},
}


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    path = tmp_path / "any name.txt"
    path.write_text(json.dumps([SAMPLE]), encoding="utf-8")
    return load(path)


def test_sessions_stand_in_order_of_their_numbers(dataset: Dataset) -> None:
    sessions = dataset.histories["conv-9"].sessions
    assert [session.id for session in sessions] == ["1", "2", "10"]
    assert sessions[2].timestamp == "1:56 pm on 8 May, 2023"


def test_turns_keep_names_and_captions(dataset: Dataset) -> None:
    assert dataset.histories["conv-9"].sessions[0].text == (
        "[Session 1: 9:00 am on 1 January, 2023]\nAna: I painted this in 2022. [image: a sunset]\nBo: [image: a dog]"
    )


def test_annotations_and_wrong_answers_are_nowhere(dataset: Dataset) -> None:
    everything = repr(dataset)
    assert "SECRET" not in everything
    assert "for peace" not in everything


def test_questions(dataset: Dataset) -> None:
    seen = [
        (t.id, t.question, t.reference, t.native_type, t.primary.letter, t.metric, t.evidence_ids)
        for t in dataset.tasks
    ]
    assert seen == [
        ("conv-9/q000", "When did Ana paint?", "2022", "temporal", "T", "f1", ("D1:1",)),
        ("conv-9/q001", "What did Bo buy?", "a boat", "multi_hop", "M", "f1_multi", ("D2:1", "D10:2")),
        ("conv-9/q002", "Which dog?", "a lab; or so", "open_domain", "F", "f1_first", ("D2:1", "D1:2")),
        ("conv-9/q003", "Where?", "Rome", "single_hop", "F", "f1", ("D10:1",)),
        ("conv-9/q004", "Why did Bo paint?", "", "adversarial", "A", "abstention", ("D1:1",)),
        ("conv-9/q005", "Where?", "", "adversarial", "A", "abstention", ("D10:1",)),
        ("conv-9/q006", "How?", "slowly", "single_hop", "F", "f1", ()),
        ("conv-9/q007", "What else?", "", "single_hop", "F", "f1", ("D1:1", "D1:2")),
    ]


def test_evidence_is_the_turn_without_speaker_and_caption_unless_there_is_no_more(dataset: Dataset) -> None:
    assert dataset.task("conv-9/q007").evidence == ("I painted this in 2022.", "[image: a dog]")


def test_repairs_are_counted(dataset: Dataset) -> None:
    assert dataset.repairs == {
        "answer missing": 1,
        "answer of an adversarial question ignored": 1,
        "answer that is no text read as text": 1,
        "blanks around a question removed": 1,
        "blanks around an answer removed": 1,
        "evidence id that names no turn dropped": 2,
        "gap in the numbers of sessions": 1,
        "misspelt evidence id mended": 2,
        "question text repeated in its conversation, both kept": 1,
        "question without evidence": 1,
        "question without text or known category left out": 1,
        "session date without a session ignored": 1,
        "several evidence ids in one string split": 3,
    }


def test_adversarial_questions_have_twins(dataset: Dataset) -> None:
    assert dataset.task("conv-9/q004").twin == "conv-9/q000"
    assert dataset.task("conv-9/q005").twin == "conv-9/q003"
    assert dataset.task("conv-9/q003").twin is None


def test_damaged_structure_is_an_error_of_one_line(tmp_path: Path) -> None:
    for damage in ({"qa": {}}, {"conversation": []}, {"conversation": {"session_1": ["x"]}}, {"conversation": {}}):
        path = tmp_path / "broken.json"
        path.write_text(json.dumps([{**SAMPLE, **damage}]), encoding="utf-8")
        with pytest.raises(DataError) as error:
            load(path)
        assert "\n" not in str(error.value)


def test_missing_dates_ids_and_sessions_do_not_stop_the_loader(tmp_path: Path) -> None:
    sample = copy.deepcopy(SAMPLE)
    conversation = sample["conversation"]
    del conversation["session_10_date_time"], conversation["session_10"][0]["dia_id"]
    conversation["session_2"] = []
    path = tmp_path / "one.json"
    path.write_text(json.dumps(sample), encoding="utf-8")
    dataset = load(path)
    session = dataset.histories["conv-9"].sessions[1]
    assert (session.header, session.turns[0].id) == ("[Session 10]", "D10:1")
    assert dataset.repairs["session without a date"] == 1
    assert dataset.repairs["session without turns ignored"] == 1
    assert dataset.repairs["turn id missing or repeated, replaced by position"] == 1


def test_a_locomo_file_is_told_by_its_keys() -> None:
    assert is_locomo([SAMPLE])
    assert is_locomo(SAMPLE)
    assert not is_locomo([])
    assert not is_locomo([{"conversation": {}}])


@pytest.fixture(scope="module")
def real() -> dict[str, Dataset]:
    return {}


@pytest.fixture
def locomo(data_dir: Path, real: dict[str, Dataset]) -> Dataset:
    if "locomo" not in real:
        real["locomo"] = load(data_dir / "locomo" / "locomo10_first6.json")
    return real["locomo"]


def at(dataset: Dataset, conversation: int, position: int) -> Task:
    return dataset.task(f"conv-{conversation}/q{position:03d}")


def test_real_counts(locomo: Dataset) -> None:
    sizes = {key: (len(h.sessions), sum(len(s.turns) for s in h.sessions)) for key, h in locomo.histories.items()}
    assert sizes == {
        "conv-26": (19, 419),
        "conv-30": (19, 369),
        "conv-41": (32, 663),
        "conv-42": (29, 629),
        "conv-43": (29, 680),
        "conv-44": (28, 675),
    }
    counts = [sum(t.native_type == name for t in locomo.tasks) for name in ("multi_hop", "temporal", "open_domain")]
    assert counts == [172, 180, 53]
    assert sum(t.native_type == "single_hop" for t in locomo.tasks) == 480
    assert sum(t.primary is Capability.ADVERSARIAL for t in locomo.tasks) == 272
    assert len(locomo.tasks) == 1157
    assert locomo.reply_words == 32


def test_real_irregular_records(locomo: Dataset) -> None:
    assert all(at(locomo, 26, n).reference.isdigit() for n in (1, 26, 40, 49, 72, 75))
    assert [at(locomo, 26, n).reference for n in (167, 178)] == ["", ""]
    assert at(locomo, 26, 37).evidence_ids == ("D8:6", "D9:17")
    assert at(locomo, 42, 88).evidence_ids == ("D1:18", "D1:20")
    assert "D11:26" in at(locomo, 43, 18).evidence_ids
    assert "D10:19" not in at(locomo, 42, 58).evidence_ids
    assert at(locomo, 26, 30).evidence == at(locomo, 26, 46).evidence == ()
    repeated, original = at(locomo, 30, 95), at(locomo, 30, 61)
    assert repeated.question == original.question
    assert (repeated.twin, repeated.reference) == (original.id, "")
    assert at(locomo, 30, 22).question == at(locomo, 30, 22).question.strip()
    assert at(locomo, 30, 37).reference == at(locomo, 30, 37).reference.strip()


def test_real_repairs(locomo: Dataset) -> None:
    assert locomo.repairs == {
        "answer of an adversarial question ignored": 2,
        "answer that is no text read as text": 6,
        "blanks around a question removed": 1,
        "blanks around an answer removed": 1,
        "evidence id that names no turn dropped": 2,
        "misspelt evidence id mended": 1,
        "observation with a list of ids, not used": 5,
        "observation with joined ids, not used": 1,
        "question text repeated in its conversation, both kept": 1,
        "question without evidence": 2,
        "session date without a session ignored": 16,
        "several evidence ids in one string split": 1,
    }


def test_real_twins_share_the_evidence(locomo: Dataset) -> None:
    adversarial = [task for task in locomo.tasks if task.expects_abstention]
    shared = [t for t in adversarial if t.twin and set(locomo.task(t.twin).evidence_ids) & set(t.evidence_ids)]
    assert (len(adversarial), len(shared)) == (272, 269)
    assert all(t.twin and not locomo.task(t.twin).expects_abstention for t in adversarial)


def test_real_split_and_digest(locomo: Dataset) -> None:
    assert locomo.default_split == {
        "train": ("conv-26", "conv-30", "conv-41"),
        "valid": ("conv-42", "conv-43"),
        "test": ("conv-44",),
    }
    split = locomo.split()
    assert [len(part) for part in (split.train, split.valid, split.test)] == [497, 502, 158]


def test_the_digest_is_that_of_the_file(locomo: Dataset, data_dir: Path) -> None:
    manifest = json.loads((data_dir / "MANIFEST.json").read_text(encoding="utf-8"))
    assert locomo.digest in json.dumps(manifest)


def test_loading_is_quick(data_dir: Path) -> None:
    start = time.process_time()
    load(data_dir / "locomo" / "locomo10_first6.json")
    assert time.process_time() - start < 1.0
