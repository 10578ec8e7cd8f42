"""The packaged sample set: reproducible, varied, and of use for every capability in every part."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from prismem_core.errors import DataError
from prismem_core.tasks.capability import CAPABILITIES, Capability
from prismem_core.tasks.datasets import load
from prismem_core.tasks.datasets.sample import SAMPLE_PATH
from prismem_core.tasks.datasets.sample_generator import weave
from prismem_core.tasks.datasets.sample_generator.grammar import Draw, parse_exchanges
from prismem_core.tasks.datasets.sample_generator.story import parse_story
from prismem_core.tasks.task import Dataset


@pytest.fixture(scope="module")
def sample() -> Dataset:
    return load("sample")


def test_the_packaged_file_is_what_the_generator_writes(tmp_path: Path) -> None:
    path = tmp_path / "sample.jsonl"
    weave.write(path)
    assert path.read_bytes() == SAMPLE_PATH.read_bytes()


def test_sizes(sample: Dataset) -> None:
    assert SAMPLE_PATH.stat().st_size < 1_000_000
    assert [len(sample.default_split[part]) for part in ("train", "valid", "test")] == [3, 2, 1]
    assert len(sample.tasks) >= 240
    for history in sample.histories.values():
        assert 8 <= len(history.sessions) <= 14
        # Well over what a reader is given at once (16,000 characters), or retrieval would not matter.
        assert sum(len(session.text) for session in history.sessions) > 26_000
        assert all(15 <= len(session.turns) <= 33 for session in history.sessions)


def test_every_part_has_every_capability(sample: Dataset) -> None:
    for ids in sample.default_split.values():
        counts = Counter(task.primary for task in sample.tasks if task.history_id in ids)
        assert all(counts[capability] >= 5 for capability in CAPABILITIES), counts


def test_secondary_labels_come_alone_and_in_pairs(sample: Dataset) -> None:
    counts = Counter(len(task.secondary) for task in sample.tasks if task.history_id in sample.default_split["train"])
    assert set(counts) == {0, 1, 2}
    assert len({task.secondary for task in sample.tasks}) >= 6


def test_every_question_has_evidence_and_an_answer_unless_it_expects_none(sample: Dataset) -> None:
    for task in sample.tasks:
        assert task.evidence
        assert bool(task.reference) != task.expects_abstention
        assert (task.primary is Capability.ADVERSARIAL) == task.expects_abstention


def test_questions_about_what_nobody_said_have_a_twin_on_the_same_turns(sample: Dataset) -> None:
    for task in sample.tasks:
        if task.expects_abstention:
            assert task.twin
            assert set(sample.task(task.twin).evidence_ids) & set(task.evidence_ids), task.question


def test_days_in_answers_are_spelled_one_way(sample: Dataset) -> None:
    day = r"(the [A-Z][a-z]+day before )?\d{1,2} [A-Z][a-z]+ 20\d\d"
    dated = [task for task in sample.tasks if re.fullmatch(day, task.reference)]
    assert len(dated) >= 50
    assert all(task.primary is Capability.TEMPORAL for task in dated)


def test_small_talk_does_not_repeat_within_a_conversation(sample: Dataset) -> None:
    for history in sample.histories.values():
        long_turns = [t.text for s in history.sessions for t in s.turns if len(t.text) > 90]
        assert len(long_turns) == len(set(long_turns))


def test_the_conversations_share_few_sentences(sample: Dataset) -> None:
    texts = {
        key: {t.text for s in h.sessions for t in s.turns if len(t.text) > 60} for key, h in sample.histories.items()
    }
    for first, second in pairwise(texts):
        shared = texts[first] & texts[second]
        assert len(shared) < 0.15 * len(texts[first]), (first, second)


def test_no_turn_shows_the_grammar(sample: Dataset) -> None:
    for history in sample.histories.values():
        for session in history.sessions:
            for turn in session.turns:
                assert not re.search(r"[\[\]|~<>]|[?!]\.|,\.|  | [.,]", turn.text), turn.text
                assert turn.text[-1] in '.?!"', turn.text
                assert turn.text[0].isupper() or turn.text[0] == '"', turn.text


def test_each_speaker_takes_turns_in_every_session(sample: Dataset) -> None:
    for history in sample.histories.values():
        for session in history.sessions:
            counts = Counter(turn.speaker for turn in session.turns)
            assert len(counts) == 2
            assert min(counts.values()) >= 10


def test_drawing_is_the_same_everywhere() -> None:
    draw = Draw("seed")
    assert [draw.below(100) for _ in range(6)] == [79, 93, 68, 89, 67, 62]
    assert Draw("seed").shuffled("abcdef") != Draw("other").shuffled("abcdef")


def test_linked_alternatives_are_drawn_together() -> None:
    (exchange,) = parse_exchanges("bit x\nX: [1~a|b] and [2~c|d], <Y>?\nY: [1~A|B] [2~C|D] [e?|f!].")
    seen = {tuple(text for _, text in exchange.render(Draw(str(i)), "Ann", "Bob")) for i in range(60)}
    assert len(seen) == 8
    assert {first for first, _ in seen} == {f"{x} and {y}, Bob?" for x in "ab" for y in "cd"}
    assert all(first[0].upper() + " " + first[6].upper() == second[:3] for first, second in seen)
    assert {second[4:] for _, second in seen} == {"e?", "f!"}


@pytest.mark.parametrize(
    "text",
    ["bit x\nZ: hello", "talk\nX: hi", "bit x", "bit x\nX: [a|b", "bit x\nX: [1~a|b]\nY: [1~a|b|c]"],
)
def test_small_talk_out_of_form_is_refused(text: str) -> None:
    with pytest.raises(DataError):
        parse_exchanges(text)


STORY = """conversation a-b
people Ann | Bob
part train

@ 2023-03-01 10:00
A: I sang last Tuesday. #sang
B: Nice.

@ 2023-03-08 23:05
B: I danced two weeks ago. #danced
"""


def test_days_are_counted_from_the_day_of_the_turn() -> None:
    story = parse_story(STORY + "\n? T+M | When? | {sang:last tue}; {danced:-2w}; {danced:-8d} | sang danced\n")
    (question,) = story.questions
    assert question.answer == "the Tuesday before 1 March 2023; two weeks before 8 March 2023; 28 February 2023"
    assert (question.capability.letter, [c.letter for c in question.secondary]) == ("T", ["M"])


@pytest.mark.parametrize(
    "line",
    [
        "? T | When? | x | nowhere",
        "? T | When? | x",
        "C: hello",
        "@ 2023-03-08 23:05\nA: again",
        "@ 2023-04-01 10:00\nA: x #sang",
    ],
)
def test_stories_out_of_form_are_refused(line: str) -> None:
    with pytest.raises(DataError):
        parse_story(STORY + "\n" + line + "\n")
