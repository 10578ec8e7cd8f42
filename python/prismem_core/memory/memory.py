"""`Memory`: sessions go in, questions are answered, and what was paid for once is never paid for again."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import prismem_core
from prismem_core.cache import ExecutionCache
from prismem_core.digests import digest
from prismem_core.errors import (
    ArgumentError,
    CacheError,
    CandidateError,
    LimitError,
    RoleError,
    SavedMemoryError,
)
from prismem_core.jobs.isolation import OnIsolation, confine, untold
from prismem_core.jobs.model_tables import spec_of
from prismem_core.jobs.running_settings import over_running_settings, running_settings
from prismem_core.jobs.settings import JobSettings
from prismem_core.jobs.workbench import Workbench, role_identities
from prismem_core.memory.origin import Origin, origin_of_file, origin_of_program
from prismem_core.memory.saved import SavedMemory, write_saved
from prismem_core.memory.sessions import new_sessions
from prismem_core.memory.settings import (
    MODEL_ROLES,
    Settings,
    compare_roles,
    given_settings,
    named_in_errors,
    with_interface,
)
from prismem_core.pipeline.pipeline import ExtractedHistory, Progress
from prismem_core.pipeline.structured import without_reasoning
from prismem_core.pipeline.trace import Defect, Failure
from prismem_core.program.failure_words import explained
from prismem_core.program.program import Program
from prismem_core.tasks.datasets import load_histories
from prismem_core.tasks.history import History, Session
from prismem_core.tasks.task import Dataset

_LOGGER = logging.getLogger("prismem_core")
_ID = "memory"
# What answers a question, which is no part of a memory.
_NOT_SAVED = ("plan", "retrieve", "rerank", "answer")


@dataclass(frozen=True)
class Answer:
    """An answer, the retrieved text it was read from and the query that found it.

    `defect` is "", or `empty` or `cut` where the model said nothing or more than it may.
    """

    text: str
    retrieved: str
    query: Mapping[str, Any]
    defect: Defect = ""


@dataclass(frozen=True)
class Added:
    """What `add` took in: ids of the sessions that are new, the units made of them and how many were dropped.

    `problems` names what of the model's replies could not be used; the sessions' own texts are in the memory anyway.
    """

    sessions: tuple[str, ...]
    units: int = 0
    dropped: int = 0
    problems: tuple[str, ...] = field(default=())


class Memory:
    """A memory program with the sessions it remembers; a context manager.

    `program` is a name of the library, a file (exported or not) or a `Program`. `chat` and `embedder` name models as
    on the command line, `settings` whatever else a job may be told; without them the embedded default plays all roles.
    What an exported program was evolved with counts where nothing else is given. The program runs in the sandbox
    (`unsafe` as for jobs). `progress` is told of stages: (name, done, of how many), `on_isolation` what confines it.

    Methods may be called from any thread: questions are answered side by side, sessions are added one call after the
    other. A forked process must make its own. Raises SettingsError, DataError or ProgramError for what cannot be used.
    """

    def __init__(
        self,
        program: str | Path | Program = "seed",
        *,
        chat: str | None = None,
        embedder: str | None = None,
        settings: Settings | None = None,
        unsafe: bool = False,
        progress: Progress | None = None,
        on_isolation: OnIsolation = untold,
    ) -> None:
        given = given_settings(chat, embedder, settings)
        with _work_folder() as folder:
            self._open(origin_of_program(program), given, folder, unsafe, progress, on_isolation)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        chat: str | None = None,
        embedder: str | None = None,
        settings: Settings | None = None,
        unsafe: bool = False,
        progress: Progress | None = None,
        on_isolation: OnIsolation = untold,
    ) -> Memory:
        """The memory that `save` wrote, or a new one of an exported or other program file.

        A file never decides who is sent its texts: where a saved memory was made with models beyond the embedded
        default, name them again. With the same ones nothing is extracted anew. Raises SavedMemoryError for a file that
        is missing, damaged or neither of them.
        """
        memory = cls.__new__(cls)
        given = given_settings(chat, embedder, settings)
        with _work_folder() as folder:
            memory._open(origin_of_file(path, folder), given, folder, unsafe, progress, on_isolation)
        return memory

    def _open(
        self,
        origin: Origin,
        given: JobSettings,
        folder: Path,
        unsafe: bool,
        progress: Progress | None,
        on_isolation: OnIsolation,
    ) -> None:
        self._text = origin.text
        self._program = origin.program
        self._settings = with_interface(over_running_settings(origin.settings, given), given, origin)
        self._roles = role_identities(self._settings)
        compare_roles(origin, self._settings, self._roles)
        self._history = History(_ID, origin.sessions)
        self._adding = threading.Lock()
        self._building = threading.Lock()
        self._built = ""
        self._state = threading.Condition()
        self._users = 0
        self._closed = False
        self._owner = os.getpid()
        with ExitStack() as stack, _of_this_version(origin):
            confinement = stack.enter_context(
                confine(
                    self._settings.sandbox_require,
                    unsafe=unsafe,
                    interface=self._settings.interface,
                    on_isolation=on_isolation,
                )
            )
            nothing_asked = Dataset(_ID, {}, (), digest(_ID), {})
            self._bench = stack.enter_context(
                Workbench(
                    nothing_asked,
                    self._settings,
                    cache_directory=folder,
                    progress=progress,
                    confinement=confinement,
                    lasting=True,
                )
            )
            with named_in_errors(origin.name):
                self._interface = self._bench.pipeline.interface(self._program)
            stack.pop_all()
        self._folder = folder
        self._finalizer = weakref.finalize(self, _remove, folder, self._owner)

    @property
    def program(self) -> Program:
        """The program in service."""
        return self._program

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The sessions in the order in which they were added."""
        return self._history.sessions

    @property
    def roles(self) -> dict[str, str]:
        """What each role calls itself."""
        return dict(self._roles)

    @property
    def usage(self) -> dict[str, dict[str, int]]:
        """Calls and tokens since the memory was opened, by `role/stage`, of what was really asked of the models."""
        totals = self._bench.ledger.totals()
        return {f"{role}/{stage}": usage.to_dict() for (role, stage), usage in totals.items()}

    def add(self, *sessions: Any) -> Added:
        """Add sessions, the newest last; what the program extracts of them is paid for now.

        A session is a mapping with `turns` and perhaps `id` and `time`, or a list of turns; a turn is a mapping with
        `speaker` (or `role`), `text` (or `content`) and perhaps `id`. All or none are added: on an error the memory is
        as it was. A session that is there already (same id, same content) is passed over. Raises ArgumentError for
        another form, RoleError where a model fails.
        """
        with self._using(), self._adding:
            before = self._history
            new = new_sessions(sessions, before.sessions)
            if not new:
                return Added(())
            grown = History(_ID, (*before.sessions, *new))
            # Windows reach over sessions; a session by itself is cut as it is among others.
            part = History(_ID, tuple(new)) if self._interface.segmentation == "session" else grown
            extracted = self._bench.pipeline.extract(self._program, {_ID: part})[_ID]
            self._history = grown
            for history in (before, part):
                self._bench.pipeline.forget(history)
            return _added(new, extracted)

    def add_file(self, path: str | Path, conversation: str | None = None) -> Added:
        """Add the sessions of a conversation in a file or folder of any known format (docs/data.md).

        `conversation` is its id, needed where there are several. Raises DataError for a file that cannot be read,
        ArgumentError where the choice is not clear.
        """
        histories = load_histories(path)
        some = ", ".join([*list(histories)[:8], *(["..."] if len(histories) > 8 else [])])
        if conversation is None and len(histories) > 1:
            raise ArgumentError(f"{path} has {len(histories)} conversations; name one of them: {some}")
        chosen = next(iter(histories)) if conversation is None else conversation
        if chosen not in histories:
            raise ArgumentError(f"{path} has no conversation {chosen!r}; it has: {some}")
        return self.add(*histories[chosen].sessions)

    def build(self) -> None:
        """Have the memory built now, as the first question after a change would.

        What it takes beyond extraction (embeddings, calls of `index`) is paid for then. Raises CandidateError where the
        program fails, RoleError where a model does.
        """
        with self._present() as history:
            self._build(history)

    def ask(self, question: str) -> Answer:
        """The answer to a question, from what the program retrieves for it.

        Raises CandidateError where the program fails, RoleError where a model does, ArgumentError for no question.
        """
        if not isinstance(question, str) or not question.strip():
            raise ArgumentError(f"the question is {question!r:.60}; expected a text that is not blank")
        with self._present() as history:
            self._build(history)
            result = self._bench.pipeline.run(self._program, {_ID: history}, [(_ID, question.strip())])
        (trace,) = result.traces
        if trace.failure is not None:
            raise _error(trace.failure, self._settings)
        return Answer(without_reasoning(trace.answer), trace.retrieved, trace.query, trace.defect)

    def save(self, path: str | Path) -> None:
        """Write the memory as one file, whole or not at all; an older saved memory there is replaced.

        The file holds the program, the sessions and what was paid for to build the memory, which is built first;
        questions, answers and keys of models are not in it. Where it cannot be built it is saved all the same, with a
        warning. Raises SavedMemoryError where it cannot be written.
        """
        if not isinstance(path, (str, Path)):
            raise ArgumentError(f"the path is of type {type(path).__name__}; expected that of a file")
        try:
            self.build()
        except (CandidateError, RoleError) as error:
            _LOGGER.warning("%s is saved without all that building the memory takes: %s", path, error)
        with self._using(), tempfile.TemporaryDirectory(prefix="prismem-saving-") as name:
            sessions = self._history.sessions
            copy = Path(name) / "cache"
            self._bench.cache.export(copy)
            with ExecutionCache(copy) as cache:
                for stage in _NOT_SAVED:
                    cache.prune(stage=stage)
                cache.compact()
            specs = {role: spec_of(role, self._settings.model(role)) for role in MODEL_ROLES.values()}
            models = {role: str(spec) for role, spec in specs.items() if spec.kind != "offline"}
            saved = SavedMemory(self._text, running_settings(self._settings), self._roles, models, sessions)
            write_saved(Path(path), saved, copy, prismem_core.__version__)

    def close(self) -> None:
        """End the program's processes and the models' connections, once the calls under way have ended."""
        with self._state:
            first, self._closed = not self._closed, True
            self._state.wait_for(lambda: self._users == 0)
        if first:
            self._bench.close()
            self._finalizer()

    def __enter__(self) -> Memory:
        with self._using():
            return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _using(self) -> Iterator[None]:
        if os.getpid() != self._owner:
            raise ArgumentError("this memory belongs to the process that made it; open one of its own after a fork")
        with self._state:
            if self._closed:
                raise ArgumentError("this memory is closed; open it anew")
            self._users += 1
        try:
            yield
        finally:
            with self._state:
                self._users -= 1
                self._state.notify_all()

    @contextmanager
    def _present(self) -> Iterator[History]:
        """The history as it is now; where it grows meanwhile, what was kept of this one goes in the end."""
        with self._using():
            history = self._history
            try:
                yield history
            finally:
                if history is not self._history:
                    self._bench.pipeline.forget(history)

    def _build(self, history: History) -> None:
        """Whoever comes first after a change builds; those that come meanwhile wait for it."""
        if self._built == history.digest:
            return
        with self._building:
            if self._built == history.digest:
                return
            try:
                self._bench.pipeline.build(self._program, history)
            except CandidateError as error:
                raise _error(Failure("index", error.kind, str(error), error.line), self._settings) from None
            self._built = history.digest


@contextmanager
def _of_this_version(origin: Origin) -> Iterator[None]:
    try:
        yield
    except CacheError as error:
        raise SavedMemoryError(
            f"{origin.name}: what it paid for cannot be read ({error}); open it with the version that saved it, or "
            "restore it from a copy"
        ) from error


def _added(sessions: list[Session], extracted: ExtractedHistory) -> Added:
    ids = {turn.id for session in sessions for turn in session.turns}
    segments = [s for group in extracted.groups for s in group.segments if ids.intersection(s.turn_ids)]
    found = [extracted.extractions[text] for text in dict.fromkeys(segment.text for segment in segments)]
    problems = [problem for one in found for problem in ((one.problem,) if one.problem else one.faults)]
    return Added(
        tuple(session.id for session in sessions),
        sum(len(one.units) for one in found),
        sum(one.dropped for one in found),
        tuple(problems),
    )


def _error(failure: Failure, settings: JobSettings) -> Exception:
    if failure.kind == "structured_output":
        return RoleError(
            f"the task model wrote no query that could be used, however often it was asked: {failure.message}"
        )
    line = f", line {failure.line}" if failure.line else ""
    words = explained(failure.kind, failure.message, settings.pipeline().limits)
    kind = LimitError if failure.kind.startswith("limit:") else CandidateError
    return kind(failure.kind, f"the program failed in {failure.stage}{line}: {words}", failure.line)


@contextmanager
def _work_folder() -> Iterator[Path]:
    """A folder of its own, which goes where the block raises."""
    folder = Path(tempfile.mkdtemp(prefix="prismem-memory-"))
    try:
        yield folder
    except BaseException:
        _remove(folder, os.getpid())
        raise


def _remove(folder: Path, owner: int) -> None:
    # A forked child must not take its parent's files away.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
