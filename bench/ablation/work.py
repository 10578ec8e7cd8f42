"""Brings the runs of an ablation to their end, each in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from prismem_core.errors import PrismemError
from prismem_core.runs.run import MANIFEST, read_run

from .plan import Place
from .reading import is_finished

INTERRUPTED = 130
POLL_SECONDS = 0.1
STOPS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


class Stopped(Exception):
    """The ablation was asked to stop, and the run under way has ended in order."""


def finish(
    places: Sequence[Place], sets: Sequence[str], more: Sequence[str], tell: Callable[[str], None]
) -> dict[str, str]:
    """Start or resume every run that is not finished, one after the other; what kept a run from its end, by its place.

    `sets` are `KEY=VALUE` of new runs, `more` further words for `prismem evolve`. A run that fails costs the others
    nothing. Raises Stopped after an interrupt, once the run under way has ended.
    """
    failed: dict[str, str] = {}
    for number, place in enumerate(places, 1):
        label = f"[{number}/{len(places)}] {place.title}"
        try:
            words = _command(place, sets, more)
        except PrismemError as error:
            failed[place.title] = str(error)
            tell(f"{label}: {error}")
            continue
        if words is None:
            tell(f"{label}: finished before")
            continue
        tell(f"{label}: {words[3]}")
        began = time.monotonic()
        code = follow(words, place)
        if code == 0:
            tell(f"{label}: finished in {time.monotonic() - began:.0f} s")
        else:
            failed[place.title] = why = f"exit code {code}: {_last_line(place)}"
            tell(f"{label}: {why}")
    return failed


def _command(place: Place, sets: Sequence[str], more: Sequence[str]) -> list[str] | None:
    """What brings a run to its end; None where it is there already."""
    prismem = [sys.executable, "-m", "prismem_core"]
    if (place.directory / MANIFEST).exists():
        if is_finished(read_run(place.directory)):
            return None
        return [*prismem, "resume", str(place.directory)]
    source = place.source
    words = [*prismem, "evolve", "--data", source.path, *([] if source.split is None else ["--split", source.split])]
    words += ["--strategy", place.strategy, "--seed", str(place.seed), "--run", str(place.directory)]
    words += ["--cache", str(place.cache), *(word for pair in sets for word in ("--set", pair)), *more]
    return words


def follow(words: Sequence[str], place: Place) -> int:
    """Run a command to its end with its output in the run's log; the exit code.

    A Ctrl-C (or the end of the terminal) is handed on once to the run, which then ends in order; the next one ends it
    at once. Either way Stopped is raised when it has ended.
    """
    place.log.parent.mkdir(parents=True, exist_ok=True)
    # A group of its own: the terminal's Ctrl-C reaches the run once, from here.
    with place.log.open("ab") as output, _held_back() as asked:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, process_group=0
        )
        told = 0
        while (code := process.poll()) is None:
            if len(asked) > told:
                told = len(asked)
                process.send_signal(signal.SIGINT)
            time.sleep(POLL_SECONDS)
    if asked:
        raise Stopped
    return code


@contextmanager
def _held_back() -> Iterator[list[int]]:
    """The signals that ask this process to stop, noted in a list for as long as a run is under way."""
    asked: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(number)

    before = {number: signal.signal(number, note) for number in STOPS}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _last_line(place: Place) -> str:
    """The last thing a run's log says, and where the rest of it is."""
    lines = [line for line in place.log.read_text(errors="replace").splitlines() if line.strip()]
    return f"{lines[-1] if lines else 'it printed nothing'} (log: {place.log})"
