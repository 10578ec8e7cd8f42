"""The journal: whole lines only, nothing lost, damage named."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from prismem_core.errors import RunError
from prismem_core.runs.events import (
    EVENTS,
    Diagnosed,
    IterationFinished,
    Revised,
    event_from_json,
    event_round_trip,
)
from prismem_core.runs.journal import Journal, read_journal

FIRST = Diagnosed(1, "n00", "weak", "temporal", {"edit": [1, 2.5, None, True]})
SECOND = Revised(1, "n00", 0, "a lone surrogate \ud800 and a \u2028 line", "@@\n+x\n", {})
END = IterationFinished(1, "cold_start", None, "n00", None, None, False, None, None, {}, None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    journal = Journal(tmp_path / "journal.jsonl", clock=lambda: "noon")
    for event in (FIRST, SECOND, END):
        journal.append(event)
    journal.close()
    journal.close()
    return tmp_path / "journal.jsonl"


def test_a_line_is_canonical_json_with_index_and_time(path: Path) -> None:
    line = path.read_bytes().splitlines(keepends=True)[0]
    assert line == (
        b'{"capability":"temporal","details":{"edit":[1,2.5,null,true]},"event":"diagnosed","index":0,'
        b'"iteration":1,"parent":"n00","text":"weak","time":"noon"}\n'
    )


def test_events_read_back_equal(path: Path) -> None:
    events, ends = read_journal(path)
    assert events == [FIRST, SECOND, END] and ends[-1] == path.stat().st_size


@pytest.mark.parametrize("tail", [b'{"event":"diag', b"\x00" * 40, b"\x00\x00\n", b'{"index":3}\n', b"\xff\xfe\n"])
def test_a_torn_last_line_is_cut_on_opening_and_ignored_on_reading(path: Path, tail: bytes) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    assert len(read_journal(path)[0]) == 3 and path.read_bytes() == whole + tail
    journal = Journal(path)
    journal.append(FIRST)
    journal.close()
    assert path.read_bytes().startswith(whole + b'{"capability"')
    assert read_journal(path)[0] == [FIRST, SECOND, END, FIRST]


@pytest.mark.parametrize("damage", ["flip", "deep", "drop", "swap", "unknown", "field"])
def test_damage_before_the_last_line_is_named_and_nothing_is_cut(path: Path, damage: str) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    value = json.loads(lines[1].decode("utf-8", "surrogatepass"))
    match damage:
        case "flip":
            lines[1] = lines[1].replace(b'"event"', b'"event', 1)
        case "deep":
            lines[1] = b"[" * 2000 + b"\n"
        case "drop":
            del lines[1]
            lines.append(lines[1].replace(b'"index":2', b'"index":3'))
        case "swap":
            lines[1], lines[0] = lines[0], lines[1]
        case "unknown":
            lines[1] = json.dumps({**value, "event": "rewritten"}).encode() + b"\n"
        case "field":
            del value["summary"]
            lines[1] = json.dumps(value).encode() + b"\n"
    damaged = b"".join(lines)
    path.write_bytes(damaged)
    number = 1 if damage == "swap" else 2
    with pytest.raises(RunError, match=rf"journal\.jsonl, line {number}: .*damaged or edited"):
        Journal(path)
    assert path.read_bytes() == damaged


def test_cut_keeps_the_first_events(path: Path) -> None:
    journal = Journal(path, clock=lambda: "later")
    assert journal.cut(1) == [SECOND, END]
    assert journal.cut(1) == []
    journal.append(END)
    assert journal.events == (FIRST, END)
    assert journal.cut(0) == [FIRST, END]
    journal.close()
    assert path.read_bytes() == b""


@pytest.mark.parametrize("room", [0, 1, 50])
def test_a_failed_write_leaves_no_trace(path: Path, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(path)
    before = path.read_bytes()
    real, left = os.write, [room]

    def write(file: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(file, data[: left[0]])
        left[0] -= written
        return written

    with monkeypatch.context() as patch:
        patch.setattr("prismem_core.runs.journal.os.write", write)
        with pytest.raises(RunError, match="No space left on device; the run is whole up to its last event"):
            journal.append(SECOND)
    assert path.read_bytes() == before and len(journal.events) == 3
    journal.append(SECOND)
    journal.close()
    assert read_journal(path)[0] == [FIRST, SECOND, END, SECOND]


def test_an_interrupt_between_two_halves_of_a_write_leaves_no_half(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(path)
    before = path.read_bytes()
    real, calls = os.write, []

    def write(file: int, data: bytes) -> int:
        calls.append(data)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(file, data[:10])

    with monkeypatch.context() as patch:
        patch.setattr("prismem_core.runs.journal.os.write", write)
        with pytest.raises(KeyboardInterrupt):
            journal.append(FIRST)
    journal.close()
    assert path.read_bytes() == before


def test_values_that_json_cannot_hold_are_not_written(path: Path) -> None:
    journal = Journal(path)
    before = path.read_bytes()
    for bad in (float("nan"), object()):
        with pytest.raises((ValueError, TypeError)):
            journal.append(Diagnosed(1, "n00", "x", None, {"bad": bad}))
    journal.close()
    assert path.read_bytes() == before


def test_a_missing_journal_says_that_it_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="it is not a run directory"):
        read_journal(tmp_path / "journal.jsonl")


def test_round_trip_sorts_keys_and_turns_tuples_into_lists() -> None:
    event = event_round_trip(Diagnosed(1, "n00", "x", None, {"b": (1, 2), "a": {"z": 1}}))
    assert isinstance(event, Diagnosed)
    assert list(event.details) == ["a", "b"] and event.details["b"] == [1, 2]


def test_every_kind_of_event_says_its_name() -> None:
    assert all(kind.name == name for name, kind in EVENTS.items()) and len(EVENTS) == 14
    assert {name for name, kind in EVENTS.items() if kind.checkpoint} == {
        "tasks_annotated",
        "run_started",
        "iteration_finished",
        "run_finished",
    }
    with pytest.raises(RunError, match="unknown event 'nonsense'; known: tasks_annotated, run_started"):
        event_from_json({"event": "nonsense"})
