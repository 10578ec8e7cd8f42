"""The engine's side of the process that an outside system runs in."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from prismem_core.errors import CandidateError, LimitError, SettingsError
from prismem_core.integrations.channel import Channel
from prismem_core.integrations.guard import ENVIRONMENT
from prismem_core.integrations.host import ONLINE
from prismem_core.integrations.systems import SystemSpec
from prismem_core.program.sandbox.frames import FrameError, printable
from prismem_core.tasks.history import Session

SILENCE_SECONDS = 600.0
"""Time that a system may compute between two words to the engine."""

_FAREWELL_SECONDS = 10.0
_SHOWN_CHARS = 400
_INHERITED = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT", "PRISMEM_CUDA_LIBRARY")


class AnswersModels(Protocol):
    """What answers the calls of a system: the roles of the job."""

    def chat(self, prompt: str, system: str, schema: Mapping[str, Any] | None) -> str: ...

    def embed(self, texts: list[str]) -> list[list[float]]: ...


class SystemProcess:
    """One system in a process without keys, home and network (unless `online`); its files are gone when it ends.

    A system's own fault is CandidateError (LimitError, where it was silent for too long); after one that ended the
    process, `alive` is false. What the models' side raises goes through, and the process is ended, so that no system
    goes on with half of what it asked for.
    """

    def __init__(self, spec: SystemSpec, *, online: bool = False, seconds: float = SILENCE_SECONDS) -> None:
        self.spec = spec
        self.alive = False
        self.contacts: list[str] = []
        self._seconds = seconds
        self._folder = Path(tempfile.mkdtemp(prefix="prismem-system-"))
        self._output = self._folder / "output.log"
        self._histories = 0
        try:
            self._start(online)
        except BaseException:
            self.kill()
            raise

    def _start(self, online: bool) -> None:
        home = self._folder / "home"
        home.mkdir()
        inherited = dict(os.environ) if online else {k: v for k, v in os.environ.items() if k in _INHERITED}
        places = {"HOME": home, "TMPDIR": home, "MEM0_DIR": home / "mem0", "XDG_CACHE_HOME": home / "cache"}
        environment = {
            **inherited,
            **ENVIRONMENT,
            **{name: str(path) for name, path in places.items()},
            # A class of the user's own may lie in the working directory.
            "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), os.getcwd()]),
            "PYTHONHASHSEED": "0",
            "PYTHONUNBUFFERED": "1",
        }
        mine, theirs = socket.socketpair()
        with theirs, self._output.open("wb") as output:
            command = [sys.executable, "-m", "prismem_core.integrations.host", str(theirs.fileno()), str(self._folder)]
            self._channel = Channel(mine, self._seconds)
            self._process = subprocess.Popen(
                [*command, *([ONLINE] if online else [])],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                # A Ctrl-C is for the engine, which ends this process in order.
                start_new_session=True,
            )
        self.alive = True

    def load(self) -> str:
        """Import the system; what it calls itself. SettingsError where it cannot be."""
        order = {"do": "load", "module": self.spec.module, "name": self.spec.class_name}
        try:
            found = self._call(order, _Nobody())
        except CandidateError as error:
            raise SettingsError(f"{self.spec.name} cannot be used: {error}") from None
        identity = str(found["identity"])
        # A class of the user's own changes without its name; an adapter here has the version of its package in it.
        return identity if self.spec.package else f"{identity}#{found['code'][:12]}"

    def begin(self, models: AnswersModels, described: Mapping[str, Any]) -> None:
        """Begin an empty memory, in an empty folder."""
        self._histories += 1
        folder = self._folder / f"memory-{self._histories}"
        folder.mkdir()
        self._call({"do": "begin", "folder": str(folder), "models": dict(described)}, models)

    def add(self, session: Session, models: AnswersModels) -> None:
        """Hand over one session."""
        turns = [[turn.id, turn.speaker, turn.text] for turn in session.turns]
        self._call({"do": "add", "id": session.id, "timestamp": session.timestamp, "turns": turns}, models)

    def retrieve(self, question: str, models: AnswersModels) -> str:
        """What the memory gives for a question."""
        found: str = self._call({"do": "retrieve", "question": question}, models)
        return found

    def end(self, models: AnswersModels) -> None:
        """Close the memory and delete its files."""
        self._call({"do": "close"}, models)
        shutil.rmtree(self._folder / f"memory-{self._histories}", ignore_errors=True)

    def _call(self, order: Mapping[str, Any], models: AnswersModels) -> Any:
        try:
            self._channel.send(dict(order))
            while True:
                message = self._channel.receive()
                if message is None:
                    raise CandidateError("died", f"its process ended{self._last_words()}")
                if "chat" in message:
                    self._channel.send({"answer": models.chat(**message["chat"])})
                elif "embed" in message:
                    self._channel.send({"answer": models.embed(message["embed"])})
                else:
                    break
        except TimeoutError:
            self.kill()
            raise LimitError("limit:wall", f"it said nothing for {self._seconds:.0f} seconds") from None
        except (ConnectionError, FrameError) as error:
            words = self._last_words()
            self.kill()
            raise CandidateError("died", f"its process cannot be spoken with ({error}){words}") from None
        except BaseException:
            self.kill()
            raise
        self.contacts = [printable(str(whom)) for whom in message.get("contacts", ())]
        if "failed" in message:
            raise CandidateError("error", printable(str(message["failed"]))[:_SHOWN_CHARS])
        return message.get("done")

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = self._output.read_text(encoding="utf-8", errors="replace").split("\n")
            said = [line.strip() for line in lines if line.strip()]
            return f"; it last said: {printable(said[-1])[:_SHOWN_CHARS]}" if said else ""
        return ""

    def kill(self) -> None:
        """End the process with its children at once and delete its files."""
        process = getattr(self, "_process", None)
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._put_away()

    def close(self) -> None:
        """Let the process end, and delete its files; one that does not end is killed."""
        if self.alive:
            self._channel.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_FAREWELL_SECONDS)
        self.kill()

    def _put_away(self) -> None:
        self.alive = False
        if hasattr(self, "_channel"):
            self._channel.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> SystemProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.kill()


class _Nobody:
    """A system that is being imported has no models yet."""

    def chat(self, prompt: str, system: str, schema: Mapping[str, Any] | None) -> str:
        raise CandidateError("protocol", "it called a model before a memory was begun")

    def embed(self, texts: list[str]) -> list[list[float]]:
        raise CandidateError("protocol", "it called a model before a memory was begun")
