"""The doctor of data: what the README of the benchmark data lists, and files that changed."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from prismem_core.errors import DataError
from prismem_core.jobs.data_doctor import Diagnosis, Examined, examine_data
from prismem_core.jobs.data_fetch import file_sha256
from prismem_core.jobs.data_lock import LOCK_NAME, write_lock
from prismem_core.tasks.datasets import write_jsonl
from prismem_core.tasks.datasets.locations import LOCATIONS, Location, PublicFile
from prismem_core.tasks.datasets.sample import SAMPLE_PATH, load_sample

# The irregular records that the README of the data lists, copied from it by hand: (record, kind, what is there).
INTEGER = "answer that is no text read as text"
LOCOMO = {
    *((f"conv-26/q{n:03d}", INTEGER) for n in (1, 26, 40, 49, 72, 75)),
    *((f"conv-26/q{n:03d}", "answer of an adversarial question ignored") for n in (167, 178)),
    ("conv-26/q037", "several evidence ids in one string split"),
    ("conv-42/q088", "evidence id that names no turn dropped"),
    ("conv-43/q018", "misspelt evidence id mended"),
    ("conv-42/q058", "evidence id that names no turn dropped"),
    *((f"conv-26/q{n:03d}", "question without evidence") for n in (30, 46)),
    ("conv-30/q095", "question text repeated in its conversation, both kept"),
    ("conv-30/q022", "blanks around a question removed"),
    ("conv-30/q037", "blanks around an answer removed"),
    ("conv-30 session_15_observation", "observation with a list of ids, not used"),
    ("conv-43 session_8_observation", "observation with a list of ids, not used"),
    ("conv-43 session_21_observation", "observation with a list of ids, not used"),
    ("conv-44 session_27_observation", "observation with a list of ids, not used"),  # of two speakers
    ("conv-44 session_26_observation", "observation with joined ids, not used"),
}
DATES = {f"session_{n}_date_time" for n in range(20, 36)}
BEAM = {
    ("100K/4/event_ordering-1", "nested evidence ids flattened"),
    ("100K/13/event_ordering-1", "nested evidence ids flattened"),
    ("100K/18/event_ordering-1", "nested evidence ids flattened"),
    ("100K/18/summarization-0", "empty list of evidence ids"),
    ("100K/18/summarization-1", "empty list of evidence ids"),
    ("500K/1/knowledge_update-0", "evidence ids missing"),
    ("500K/29/event_ordering-1", "number of mentions differs from the rubric, rubric kept"),
    ("1M/7/event_ordering-0", "number of mentions differs from the rubric, rubric kept"),
    ("100K/1/temporal_reasoning-0", "rubric contradicts the reference, rubric kept"),
    ("100K/14/temporal_reasoning-0", "rubric contradicts the reference, rubric kept"),
}


@pytest.fixture(scope="module")
def kept() -> dict[str, Diagnosis]:
    return {}


@pytest.fixture
def real(data_dir: Path, kept: dict[str, Diagnosis]) -> dict[str, Examined]:
    if "real" not in kept:
        kept["real"] = examine_data([data_dir])
    return {Path(source.path).relative_to(data_dir).as_posix(): source for source in kept["real"].examined}


def test_everything_there_loads(real: dict[str, Examined], kept: dict[str, Diagnosis]) -> None:
    assert {name: (s.conversations, s.sessions, s.turns, s.questions) for name, s in real.items()} == {
        "beam": (15, 84, 6732, 300),
        "locomo/locomo10_first6.json": (6, 156, 3435, 1157),
        "longmemeval/longmemeval_oracle_1.json": (1, 2, 24, 1),
        "longmemeval/longmemeval_s_2.json.gz": (2, 80, 805, 2),
        "longmemeval/multiquestion_pack_2.json.gz": (2, 80, 805, 18),
        "perltqa": (1, 6, 44, 41),
    }
    ((path, what),) = kept["real"].indexes
    assert path.endswith("longmemeval_question_index.json")
    assert "301 questions without their histories" in what
    assert (kept["real"].refused, kept["real"].exit_code) == ([], 1)


def test_locomo_is_irregular_where_the_readme_says_so(real: dict[str, Examined]) -> None:
    found = real["locomo/locomo10_first6.json"].irregular
    dates = [item for item in found if item.kind == "session date without a session ignored"]
    others = [(item.record, item.kind) for item in found if item not in dates]
    assert {item.field for item in dates} == DATES
    assert {item.record for item in dates} == {"conv-26"}
    assert set(others) == LOCOMO
    assert len(others) == len(LOCOMO) + 1  # session 27 of conv-44 twice
    shown = {item.record: item.found for item in found}
    assert [shown[f"conv-{n}"] for n in ("42/q088", "43/q018", "42/q058", "26/q037")] == [
        "D",
        "D:11:26",
        "D10:19",
        "D8:6; D9:17",
    ]
    assert real["locomo/locomo10_first6.json"].variants == ()


def test_beam_is_irregular_where_the_readme_says_so(real: dict[str, Examined]) -> None:
    found = real["beam"].irregular
    assert {(item.record, item.kind) for item in found} == BEAM
    assert len(found) == len(BEAM)
    shown = {item.record: item.found for item in found}
    assert shown["500K/29/event_ordering-1"] == "10 mentions, 8 points"
    assert shown["1M/7/event_ordering-0"] == "10 mentions, 5 points"
    assert shown["100K/1/temporal_reasoning-0"] == "reference 4 weeks, rubric 8 weeks"
    assert shown["100K/14/temporal_reasoning-0"] == "reference 11 days, rubric 17 days"


def test_what_the_readme_allows_stands_apart(real: dict[str, Examined]) -> None:
    variants = real["beam"].variants
    elsewhere = [v for v in variants if v.kind == "marker in a message that is no main question, cut"]
    small = [v.record.split()[0] for v in elsewhere if v.record.startswith("100K/")]
    assert sorted(small) == ["100K/1", *["100K/2"] * 5]
    repeated = {v.record for v in variants if v.kind == "index repeated in its chat, not used"}
    assert {chat for chat in repeated if chat.startswith("100K/")} == {"100K/1", "100K/4", "100K/11", "100K/19"}
    odd = {v.found for v in variants if v.kind == "marker with another index than two numbers, cut"}
    assert {"2,N/A", "5,14)", "2,22, 24"} <= odd
    assert real["beam"].mended == {"generation marker cut from a message": 2673}
    haystacks = real["longmemeval/longmemeval_s_2.json.gz"].variants
    order = [(v.record, v.found) for v in haystacks if v.kind == "haystack out of order of time, sorted"]
    assert order == [("852ce960", "steps back after 11, 16")]
    assert real["longmemeval/longmemeval_s_2.json.gz"].irregular == ()
    entities = {v.kind for v in real["perltqa"].variants}
    assert (entities, real["perltqa"].irregular) == ({"memory anchor with HTML entities, not used"}, ())


def test_the_other_sources(real: dict[str, Examined]) -> None:
    (pack,) = real["longmemeval/multiquestion_pack_2.json.gz"].irregular
    assert (pack.record, pack.found) == (
        "852ce960/q000",
        "$350,000: outdated value; the benchmark's answer is $400,000",
    )
    # The README says that no session is later than its question; this one is, by 21 minutes.
    (late,) = real["longmemeval/longmemeval_oracle_1.json"].irregular
    assert late.found == "2023/05/30 (Tue) 08:29, asked 2023/05/30 (Tue) 08:08"


def test_it_is_quick(data_dir: Path) -> None:
    start = time.process_time()
    examine_data([data_dir])
    assert time.process_time() - start < 15


def sample_in(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(SAMPLE_PATH, folder / "sample.jsonl"))


def test_a_regular_data_set_ends_with_0(tmp_path: Path) -> None:
    sample_in(tmp_path / "deep" / "er")
    diagnosis = examine_data([tmp_path])
    assert [source.questions for source in diagnosis.examined] == [251]
    assert diagnosis.exit_code == 0


def test_irregular_records_name_file_record_and_field(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(
        '{"type": "conversation", "id": "a", "sessions": [{"turns": [{"speaker": "Ana", "text": "Tea."}]}]}\n'
        '{"type": "question", "conversation": "a", "question": "Tea?", "answer": "yes", "capability": "P"}\n',
        encoding="utf-8",
    )
    diagnosis = examine_data([path])
    (source,) = diagnosis.examined
    assert [(item.where, item.kind) for item in source.irregular] == [
        ("mine.jsonl: a: session 1", "session without a time"),
        ("mine.jsonl: a/q000: evidence", "question without evidence"),
    ]
    assert diagnosis.exit_code == 1
    assert diagnosis.as_json()["sources"][0]["irregular"][1]["record"] == "a/q000"


def test_what_does_not_load_is_refused_and_the_rest_is_examined(tmp_path: Path) -> None:
    sample_in(tmp_path / "good")
    (tmp_path / "bad.json").write_text("[1, 2", encoding="utf-8")
    diagnosis = examine_data([tmp_path])
    assert len(diagnosis.examined) == 1
    ((path, reason),) = diagnosis.refused
    assert path.endswith("bad.json")
    assert "not valid JSON" in reason
    assert diagnosis.exit_code == 3


def test_paths_without_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no data at"):
        examine_data([tmp_path / "none"])
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    with pytest.raises(DataError, match="holds no data set"):
        examine_data([tmp_path])


@pytest.mark.parametrize("noted_by", ["manifest", "lock"])
def test_changed_bytes_are_refused_unless_accepted(tmp_path: Path, noted_by: str) -> None:
    file = sample_in(tmp_path)
    if noted_by == "manifest":
        entries = [{"path": file.name, "bytes": 1, "sha256": file_sha256(file)}]
        (tmp_path / "MANIFEST.json").write_text(json.dumps(entries), encoding="utf-8")
    else:
        write_lock(tmp_path, {file.name: {"sha256": file_sha256(file)}})
    assert examine_data([tmp_path]).exit_code == 0
    write_jsonl(load_sample(), file)  # the same data in other bytes
    with file.open("a", encoding="utf-8") as more:
        more.write("\n")
    for path in (tmp_path, file):
        diagnosis = examine_data([path])
        ((_, reason),) = diagnosis.refused
        assert "sample.jsonl changed" in reason
        assert (diagnosis.examined, diagnosis.exit_code) == ([], 3)
        accepted = examine_data([path], accept_changed=True)
        assert "sample.jsonl changed" in accepted.examined[0].changed[0]
        assert accepted.exit_code == 0
    file.unlink()
    missing = examine_data([tmp_path])
    assert missing.refused[0][1].endswith("and it is missing; fetch it again")


def test_a_file_with_a_public_name_and_other_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = sample_in(tmp_path)
    public = Location("known", "x", "r" * 40, "MIT", (PublicFile(file.name, "http://nowhere", "0" * 64, 1),))
    monkeypatch.setitem(dict_of(LOCATIONS), "known", public)
    ((_, reason),) = examine_data([file]).refused
    assert "bears the name of a file of known" in reason
    accepted = examine_data([file], accept_changed=True)
    assert accepted.examined[0].changed == ("sample.jsonl is not the pinned file of known",)


def dict_of(mapping: object) -> dict[str, Location]:
    assert isinstance(mapping, dict)
    return mapping


def test_a_damaged_lock_is_one_line(tmp_path: Path) -> None:
    sample_in(tmp_path)
    (tmp_path / LOCK_NAME).write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="is damaged; remove it and fetch again"):
        examine_data([tmp_path])
