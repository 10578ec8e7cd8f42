"""A run killed anywhere and resumed writes the same journal, byte for byte but for the times."""

from __future__ import annotations

import errno
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_laboratory import Recorder, ScriptedDesigner, ScriptedLaboratory, source_of, task

from prismem_core.digests import digest
from prismem_core.errors import RoleError, RunError
from prismem_core.evolution.engine import EvolutionResult, evolve
from prismem_core.evolution.laboratory import Observer
from prismem_core.evolution.recipes import RECIPES
from prismem_core.evolution.settings import EvolutionSettings, build_settings
from prismem_core.runs.events import EVENTS, Event, RunFinished
from prismem_core.runs.run import Manifest, Run, read_run
from prismem_core.tasks.capability import CAPABILITIES

SETTINGS = build_settings({"T1": 2, "T2": 4, "T3": 2, "repair_attempts": 1, "K": 2})
MANIFEST = Manifest("0.1.0", SETTINGS.model_dump(), {"digest": "d" * 64}, {"chat": "scripted"})
TRAIN = [task(f"t{i}", CAPABILITIES[i % 5], [CAPABILITIES[(i + 1) % 5]] if i % 3 == 0 else []) for i in range(15)]
VALID = [task(f"v{i}", CAPABILITIES[i % 5]) for i in range(10)]

# What the coder says at (iteration, attempt). 1.0 does not apply, 3.0 is invalid, 4.0 breaks, 5 never applies.
SCRIPT: dict[tuple[int, int], str | None] = {
    (1, 0): None,
    (1, 1): "good-1",
    (2, 0): "good-2",
    (3, 0): "invalid-3",
    (3, 1): "good-3",
    (4, 0): "breaks-4",
    (4, 1): "good-4",
    (5, 0): None,
    (5, 1): None,
    (6, 0): "good-6",
    (7, 0): "worse-7",
    (8, 0): "best-8",
}
NAMES = ["seed", *(name for name in SCRIPT.values() if name)]


def score(name: str, task_id: str) -> float:
    """A fixed score: noise of 0..0.5 and a level that rises with the version."""
    level = {"best": 0.5, "worse": 0.0}.get(name.split("-")[0], 0.05 * int(name[-1]) if name[-1].isdigit() else 0.0)
    return round(min(1.0, level + int(digest(name, task_id)[:4], 16) / 0x1FFFF), 4)


def laboratory() -> ScriptedLaboratory:
    scores = {source_of(n): {t.id: score(n, t.id) for t in [*TRAIN, *VALID]} for n in NAMES}
    return ScriptedLaboratory(
        TRAIN, VALID, scores, {source_of("breaks-4"): "raise:target"}, {source_of("invalid-3"): "load_error"}
    )


def designer() -> ScriptedDesigner:
    def reply(iteration: int, attempt: int) -> str | None:
        name = SCRIPT[iteration, attempt]
        return None if name is None else source_of(name)

    return ScriptedDesigner(reply)


def go(run: Run | None, observer: Observer | None = None, settings: EvolutionSettings = SETTINGS) -> EvolutionResult:
    return evolve(laboratory(), designer(), source_of("seed"), settings, run, observer)


def clock() -> Callable[[], str]:
    """A clock that never says the same twice, so that a time elsewhere than in `time` shows."""
    ticks = itertools.count(int.from_bytes(os.urandom(4), "big"))
    return lambda: f"tick {next(ticks)}"


def without_times(path: Path) -> bytes:
    lines = []
    for line in path.read_bytes().splitlines():
        value = json.loads(line)
        assert value.pop("time")
        lines.append(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())
    return b"\n".join(lines)


def derived(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for folder in ("programs", "patches", "evaluations")
        for path in sorted((directory / folder).iterdir())
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of an uninterrupted run."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    with Run.create(directory, MANIFEST, clock=clock()) as run:
        go(run)
    return directory


def stopped(tmp_path: Path, journal: bytes) -> Path:
    """A run directory whose process died when its journal held these bytes; derived files are lost too."""
    directory = tmp_path / "stopped"
    with Run.create(directory, MANIFEST):
        pass
    (directory / "journal.jsonl").write_bytes(journal)
    return directory


def test_the_script_visits_every_event_and_every_reason(whole: Path) -> None:
    events = read_run(whole).events
    # The engine is handed labels; who had them from a model wrote that down before it began.
    assert {event.name for event in events} == set(EVENTS) - {"tasks_annotated"}
    reasons = [event.reason for event in events if event.name == "rejected"]
    assert reasons == [
        "patch:no_hunks",
        "validation:load_error",
        "execution:error",
        "patch:no_hunks",
        "patch:no_hunks",
        "gate:gain",
    ]
    assert isinstance(events[-1], RunFinished) and events[-1].final == "n08"


@pytest.mark.parametrize("strategy", RECIPES)
def test_resume_after_every_event_and_inside_every_line(strategy: str, tmp_path: Path) -> None:
    settings = build_settings({**SETTINGS.model_dump(), "strategy": strategy, "seed": 5})
    whole = tmp_path / "whole"
    with Run.create(whole, MANIFEST, clock=clock()) as run:
        final = go(run, settings=settings).final
    journal = (whole / "journal.jsonl").read_bytes()
    expected, files = without_times(whole / "journal.jsonl"), derived(whole)
    ends = [0] + [i + 1 for i, byte in enumerate(journal) if byte == 0x0A]
    cuts = sorted(
        {*ends, *(end + (after - end) // 2 for end, after in itertools.pairwise(ends)), *(e - 1 for e in ends[1:])}
    )
    # All strategies share the engine: what differs between them is seen at a part of the places.
    for number, cut in enumerate(cuts if strategy == "prismem" else cuts[::5]):
        directory = stopped(tmp_path / str(number), journal[:cut])
        with Run.open(directory, clock=clock()) as run:
            result = go(run, settings=settings)
        assert result.final == final
        assert without_times(directory / "journal.jsonl") == expected, f"cut at byte {cut}"
        assert derived(directory) == files, f"cut at byte {cut}"


class StopAt:
    """An observer that raises at the n-th call, as a signal would."""

    def __init__(self, calls: int, error: BaseException) -> None:
        self.left, self.error = calls, error

    def _count(self, *_: Any) -> None:
        if self.left == 0:
            raise self.error
        self.left -= 1

    on_resume = on_step = on_event = on_stage_progress = _count


def test_an_interrupt_anywhere_leaves_a_journal_to_resume(whole: Path, tmp_path: Path) -> None:
    expected = without_times(whole / "journal.jsonl")
    counter = StopAt(10**6, KeyboardInterrupt())
    go(None, counter)
    for calls in range(0, 10**6 - counter.left, 5):
        directory = tmp_path / str(calls)
        with Run.create(directory, MANIFEST) as run, pytest.raises(KeyboardInterrupt):
            go(run, StopAt(calls, KeyboardInterrupt()))
        assert (directory / "journal.jsonl").read_bytes()[-1:] in (b"\n", b"")
        with Run.open(directory) as run:
            go(run)
        assert without_times(directory / "journal.jsonl") == expected


def test_a_failing_role_pauses_the_run(whole: Path, tmp_path: Path) -> None:
    class Flaky(ScriptedLaboratory):
        def evaluate(self, program_id: str, *rest: Any) -> Any:
            if program_id == "n06":
                raise RoleError("the provider does not answer")
            return super().evaluate(program_id, *rest)

    steady = laboratory()
    flaky = Flaky(TRAIN, VALID, steady.scores, steady.breaks, steady.invalid)
    directory = tmp_path / "run"
    with Run.create(directory, MANIFEST) as run:
        with pytest.raises(RoleError, match="does not answer"):
            evolve(flaky, designer(), source_of("seed"), SETTINGS, run)
        events = run.events
        assert events[-1].name == "program_added" and not run.finished
        # The same process may go on as well: nothing but the journal is carried over.
        go(run)
    assert without_times(directory / "journal.jsonl") == without_times(whole / "journal.jsonl")


def test_a_finished_run_returns_its_result_and_calls_nobody(whole: Path) -> None:
    busy = laboratory()
    with Run.open(whole) as run:
        before = (whole / "journal.jsonl").read_bytes()
        result = evolve(busy, designer(), source_of("seed"), SETTINGS, run)
    assert (result.final, busy.evaluations) == ("n08", [])
    assert result.source == source_of("best-8")
    assert (whole / "journal.jsonl").read_bytes() == before


def test_finished_iterations_are_not_evaluated_again(whole: Path, tmp_path: Path) -> None:
    lines = (whole / "journal.jsonl").read_bytes().splitlines(keepends=True)
    keep = max(
        i for i, line in enumerate(lines) if b'"event":"iteration_finished"' in line and b'"iteration":4,' in line
    )
    directory = stopped(tmp_path, b"".join(lines[: keep + 1]))
    busy, recorder = laboratory(), Recorder()
    with Run.open(directory) as run:
        evolve(busy, designer(), source_of("seed"), SETTINGS, run, recorder)
    assert [(p, purpose) for p, purpose, _ in busy.evaluations] == [
        ("n06", "target"),
        ("n06", "full"),
        ("n07", "full"),
        ("n08", "full"),
    ]
    assert len(recorder.resumed) == keep + 1
    assert [e.to_json() for e in recorder.resumed + recorder.events] == [e.to_json() for e in read_run(whole).events]


def test_a_resumed_designer_is_told_the_same(whole: Path, tmp_path: Path) -> None:
    uninterrupted = designer()
    evolve(laboratory(), uninterrupted, source_of("seed"), SETTINGS)
    lines = (whole / "journal.jsonl").read_bytes().splitlines(keepends=True)
    directory = stopped(tmp_path, b"".join(line for line in lines if int(json.loads(line)["iteration"]) < 8))
    resumed = designer()
    with Run.open(directory) as run:
        evolve(laboratory(), resumed, source_of("seed"), SETTINGS, run)
    # The spelling counts, key orders included: a designer may render any of it into a prompt.
    assert [repr(brief) for brief in resumed.briefs] == [repr(brief) for brief in uninterrupted.briefs[-1:]]
    assert repr(resumed.feedback) == repr(uninterrupted.feedback[-1:])


def test_without_a_run_directory_the_history_is_the_same(whole: Path) -> None:
    recorder = Recorder()
    go(None, recorder)
    assert [e.to_json() for e in recorder.events] == [e.to_json() for e in read_run(whole).events]


def test_a_full_disk_loses_nothing(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = without_times(whole / "journal.jsonl")
    real = os.write
    for room in (0, 700, 20_000):
        left = [room]

        def write(file: int, data: bytes, left: list[int] = left) -> int:
            if left[0] == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            written = real(file, data[: left[0]])
            left[0] -= written
            return written

        directory = tmp_path / str(room)
        with Run.create(directory, MANIFEST) as run:
            with monkeypatch.context() as patch:
                patch.setattr("prismem_core.runs.journal.os.write", write)
                with pytest.raises(RunError, match="No space left on device"):
                    go(run)
            assert (directory / "journal.jsonl").read_bytes()[-1:] in (b"\n", b"")
        with Run.open(directory) as run:
            go(run)
        assert without_times(directory / "journal.jsonl") == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": build_settings({**SETTINGS.model_dump(), "delta": 0.7})}, "other settings"),
        ({"seed": "NAME = 'another'\n"}, "other seed program"),
        ({"train": TRAIN[1:]}, "other training tasks"),
        ({"valid": VALID[1:]}, "other validation tasks"),
        ({"identity": "someone else"}, "other designer"),
    ],
)
def test_resume_refuses_other_inputs(whole: Path, change: dict[str, Any], message: str) -> None:
    lab, coder = laboratory(), designer()
    lab.train, lab.valid = change.get("train", TRAIN), change.get("valid", VALID)
    coder.identity = change.get("identity", coder.identity)
    with Run.open(whole) as run, pytest.raises(RunError, match=message):
        evolve(lab, coder, change.get("seed", source_of("seed")), change.get("settings", SETTINGS), run)


def test_event_kinds_survive_the_journal(whole: Path) -> None:
    recorder = Recorder()
    go(None, recorder)
    kinds: list[type[Event]] = [type(event) for event in recorder.events]
    assert kinds == [type(event) for event in read_run(whole).events]
