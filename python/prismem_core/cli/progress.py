"""Live progress of a run: iteration, stage, scores by capability, calls, reuse and time left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from prismem_core.runs.events import Accepted, Evaluated, Event, IterationFinished, ProgramAdded, Rejected, RunFinished
from prismem_core.tasks.capability import Capability


class Watched(Protocol):
    """What counts calls: those made, those asked for and those of them that the cache answered."""

    def usage(self) -> tuple[int, int, int]: ...


class ProgressObserver:
    """An observer that prints one line an iteration and, on a terminal, a live line of what is going on.

    Time left is the mean time of the iterations this process has finished, times those to come.
    """

    def __init__(self, console: Console, iterations: int) -> None:
        self._console = console
        self._iterations = iterations
        self._bench: Watched | None = None
        self._step = "starting"
        self._iteration = 0
        self._finished = 0
        self._began = time.monotonic()
        self._programs: dict[str, str] = {}
        self._means: dict[str, dict[str, float]] = {}
        self._last_reason = ""
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._bar_task: TaskID = self._bar.add_task("", total=None)
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4, transient=True)

    def __enter__(self) -> ProgressObserver:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def announce(self, text: str) -> None:
        """Print lines as they are."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def watch(self, bench: Watched) -> None:
        """Show the calls made, and the share of those asked for that the cache answered."""
        self._bench = bench

    def on_resume(self, events: Sequence[Event]) -> None:
        """Say where the run goes on."""
        for event in events:
            self._learn(event)
        done = max((e.iteration for e in events if isinstance(e, IterationFinished)), default=0)
        if done:
            self._console.print(f"going on after iteration {done} of {self._iterations}", highlight=False)

    def on_step(self, iteration: int, iterations: int, step: str) -> None:
        """Note what begins."""
        self._iteration, self._iterations, self._step = iteration, max(iterations, self._iterations), step

    def on_stage_progress(self, stage: str, done: int, total: int) -> None:
        """Note the items done of a pipeline stage."""
        self._bar.update(self._bar_task, description=stage, completed=done, total=total)

    def on_event(self, event: Event) -> None:
        """Print what an iteration came to."""
        self._learn(event)
        if isinstance(event, IterationFinished) and event.iteration > 0:
            self._finished += 1
            self._console.print(self._line(event), highlight=False, markup=False)
        elif isinstance(event, RunFinished):
            self._console.print(f"finished with {event.final}: {event.reason}", highlight=False, markup=False)
        elif isinstance(event, Evaluated) and event.program == "n00" and event.purpose == "full":
            self._console.print(f"start n00: {self._scores('n00')}", highlight=False, markup=False)

    def _learn(self, event: Event) -> None:
        if isinstance(event, ProgramAdded):
            self._programs[event.program] = event.summary
        elif isinstance(event, Rejected):
            self._last_reason = f"{event.reason}: {event.message}" if event.program is None else event.reason
        elif isinstance(event, Accepted):
            self._last_reason = ""
        elif isinstance(event, Evaluated):
            capabilities = event.details.get("capabilities", {})
            self._means[event.program] = {c: v["score"] for c, v in capabilities.items() if v["score"] is not None}

    def _line(self, event: IterationFinished) -> str:
        summary = self._programs.get(event.program or "", self._last_reason or "no candidate")
        verdict = "kept" if event.retained else f"not kept ({self._last_reason or 'no gain'})"
        target = f" {Capability(event.target).letter}" if event.target else ""
        scores = self._scores(event.program) if event.program else ""
        return (
            f"[{event.iteration:>2}/{self._iterations}] {event.stage}{target}: {event.parent or ''} -> "
            f"{event.program or '-'} {verdict}; {summary}; {scores}{self._cost()}{self._left()}"
        )

    def _scores(self, program: str) -> str:
        means = self._means.get(program, {})
        return " ".join(f"{Capability(c).letter} {v:.3f}" for c, v in means.items())

    def _cost(self) -> str:
        if self._bench is None:
            return ""
        made, asked, answered = self._bench.usage()
        reused = answered / asked if asked else 0.0
        return f"; {made:,} calls, {reused:.0%} reused"

    def _left(self) -> str:
        if not self._finished:
            return ""
        each = (time.monotonic() - self._began) / self._finished
        return f"; about {_clock(each * (self._iterations - self._iteration))} left"

    def _render(self) -> RenderableType:
        head = Text(f"iteration {self._iteration}/{self._iterations}: {self._step}{self._cost()}{self._left()}")
        return Group(head, self._bar)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    return f"{minutes}:{rest:02d} min"
