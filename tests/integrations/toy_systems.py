"""Memory systems for tests, as a user would write them: named as `python:tests.integrations.toy_systems:CLASS`."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from prismem_core.integrations.memory_system import Models
from prismem_core.tasks.history import Session


class Turns:
    """Keeps every turn; gives the ten that lie closest to the question."""

    identity = "turns 1 (top 10)"

    def __init__(self, models: Models, folder: Path) -> None:
        self.models = models
        self.folder = folder
        self.texts: list[str] = []
        self.rows: list[Any] = []

    def add(self, session: Session) -> None:
        texts = [f"[{session.timestamp}] {turn.speaker}: {turn.text}" for turn in session.turns]
        self.rows += list(self.models.embed(texts))
        self.texts += texts
        (self.folder / "turns.txt").write_text("\n".join(self.texts))

    def retrieve(self, question: str) -> str:
        if not self.texts:
            return ""
        (row,) = self.models.embed([question])
        best = sorted(range(len(self.texts)), key=lambda i: (-float(self.rows[i] @ row), i))[:10]
        return "\n".join(self.texts[i] for i in best)

    def close(self) -> None: ...


class Noted(Turns):
    """Has a model write a note on every session, too."""

    identity = "noted 1"

    def add(self, session: Session) -> None:
        super().add(session)
        schema = {"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]}
        note = self.models.chat(session.text, "Write a note.", schema)
        self.texts.append(f"note: {note}")
        self.rows += list(self.models.embed([note]))


class BreaksOnSecondSession(Turns):
    identity = "breaks 1"

    def add(self, session: Session) -> None:
        if self.texts:
            raise ValueError(f"cannot read session {session.id}")
        super().add(session)


class BreaksOnSomeQuestions(Turns):
    identity = "breaks sometimes 1"

    def retrieve(self, question: str) -> str:
        if "2" in question:
            raise KeyError(question)
        return super().retrieve(question)


class DiesOnSomeQuestions(Turns):
    identity = "dies sometimes 1"

    def retrieve(self, question: str) -> str:
        if "2" in question:
            print("the library crashed", file=sys.stderr, flush=True)
            os._exit(3)
        return super().retrieve(question)


class Sleeps(Turns):
    identity = "sleeps 1"

    def retrieve(self, question: str) -> str:
        time.sleep(3600)
        return ""


class GivesBytes(Turns):
    identity = "bytes 1"

    def retrieve(self, question: str) -> str:
        return b"no text"  # type: ignore[return-value]


class CallsHome(Turns):
    """Tries to tell somebody, as telemetry does: by name and by address, and takes no notice of a refusal."""

    identity = "calls home 1"

    def add(self, session: Session) -> None:
        for tell in (
            lambda: socket.create_connection(("telemetry.example", 443), 5),
            lambda: socket.create_connection(("127.0.0.1", int(os.environ.get("TOLD_PORT", "9"))), 5),
        ):
            try:
                tell().close()
            except OSError:
                continue
        super().add(session)


class ShowsItsSurroundings(Turns):
    """Retrieves what it sees of the process and leaves files wherever it can."""

    identity = "surroundings 1"

    def retrieve(self, question: str) -> str:
        Path.home().joinpath(".left-behind").write_text("x")
        names = " ".join(sorted(os.environ))
        return f"home={Path.home()} folder={self.folder} names={names}"


class Long(Turns):
    identity = "long 1"

    def retrieve(self, question: str) -> str:
        return "\n".join(["a line of the memory " * 10] * 200)


class SwallowsFailures(Noted):
    """Goes on without a reply, as many systems do."""

    identity = "swallows 1"

    def add(self, session: Session) -> None:
        try:
            super().add(session)
        except Exception:
            self.texts.append("nothing")


class NoIdentity(Turns):
    identity = ""
