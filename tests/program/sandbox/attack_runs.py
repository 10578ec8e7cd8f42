"""Attack programs in a configuration of the sandbox, as root or as an ordinary user: one process runs them all."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from canaries import SECRET
from ordinary_user import REFUSED

import prismem_core

HERE = Path(__file__).resolve().parent
_SECONDS = 900.0

UNCONFINED_KINDS = {
    *("backend", "cheat", "cpu", "die", "exit", "frames", "late", "lib", "limit", "mem"),
    *("ok", "out", "schema", "source", "state", "time"),
}
"""First words of the names of programs whose end does not depend on the kernel's confinement."""


@dataclass(frozen=True)
class Configuration:
    """How the sandbox is set up: `without` leaves layers off, `unsafe` allows that of seccomp.

    `brief` runs only programs that need the kernel's confinement, and asks each fewer questions.
    """

    name: str
    restrict_names: bool = False
    unsafe: bool = False
    without: tuple[str, ...] = ()
    brief: bool = False

    def __str__(self) -> str:
        return self.name.replace(" ", "-")

    @property
    def options(self) -> dict[str, Any]:
        """Further arguments of `Sandbox`."""
        return ({"unsafe": True} if self.unsafe else {}) | ({"without": self.without} if self.without else {})


@dataclass(frozen=True)
class Ended:
    """How one program ended: the words of README.md for each distinct kind of end, what came back, what it touched."""

    outcomes: list[list[str]]
    results: list[str]
    told: list[str]
    traces: list[str]

    def wrong(self, wanted: set[str]) -> str | None:
        """What breaks the header's promise or one that holds in every case; None if nothing does."""
        shown = f"ended as {self.outcomes} {self.results[:3]} {self.told[:3]}, wanted {sorted(wanted)}"
        if bites := self.bites():
            return f"{bites}; {shown}"
        if not self.outcomes or not all(wanted & set(words) for words in self.outcomes):
            return shown
        return None

    def bites(self) -> list[str]:
        """What the attack has reached."""
        found = list(self.traces)
        found += [f"result: {result[:200]}" for result in self.results if result.startswith("LEAK:")]
        found += [f"a canary in: {text[:200]}" for text in (*self.results, *self.told) if "CANARY-" in text]
        return found


@dataclass
class Run:
    """All programs in one configuration; `broken` tells why it did not come to its end."""

    ended: dict[str, Ended] = field(default_factory=dict)
    broken: str | None = None
    layers: dict[str, str] = field(default_factory=dict)


class NotHere(Exception):
    """The user cannot be had on this system; the message says why."""


class Runs:
    """The runs that the chosen tests ask for, each made once, as many at a time as there are processors."""

    def __init__(self, programs: dict[str, str], asked: Iterable[tuple[Configuration, str]]) -> None:
        self.programs = programs
        self._pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
        self._made = {
            (configuration, user): self._pool.submit(_run, self.of(configuration), configuration, user)
            for configuration, user in dict.fromkeys(asked)
        }

    def of(self, configuration: Configuration) -> dict[str, str]:
        """The programs that run in a configuration."""
        if not configuration.brief:
            return self.programs
        return {name: text for name, text in self.programs.items() if name.partition("_")[0] not in UNCONFINED_KINDS}

    def get(self, configuration: Configuration, user: str) -> Run:
        """The run as `user`, "root" or "ordinary"; skips where that user cannot be had."""
        try:
            return self._made[configuration, user].result()
        except NotHere as reason:
            pytest.skip(str(reason))

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _run(programs: dict[str, str], configuration: Configuration, user: str) -> Run:
    if user == "root" and os.geteuid() != 0:
        raise NotHere("needs root: the tests run as an ordinary user")
    folder = Path(tempfile.mkdtemp(prefix="prismem-attacks-"))
    command = [sys.executable, "-B", str(HERE / "attack_run.py"), str(folder)]
    if user == "ordinary" and os.geteuid() == 0:
        uid = _unused_uid()
        os.chown(folder, uid, uid)
        command = [sys.executable, str(HERE / "ordinary_user.py"), str(uid), *_read_folders(), "--", *command]
    paths = [str(Path(prismem_core.__file__).parent.parent), *(path for path in sys.path if path)]
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": os.pathsep.join(paths),
        "HOME": str(folder),
        "CANARY_SECRET": SECRET,
    }
    job = {
        "programs": programs,
        "restrict_names": configuration.restrict_names,
        "options": configuration.options,
        "brief": configuration.brief,
    }
    try:
        done = subprocess.run(
            command, input=json.dumps(job), env=environment, capture_output=True, text=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
        return _read(output.decode() if isinstance(output, bytes) else output, f"no end within {_SECONDS:g} s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if done.returncode == REFUSED:
        raise NotHere(done.stderr.strip())
    return _read(done.stdout, f"exit status {done.returncode}: {done.stderr[-2000:]}" if done.returncode else None)


def _read(output: str, broken: str | None) -> Run:
    run = Run()
    running = ""
    for line in map(json.loads, output.splitlines()):
        if "starting" in line:
            running = line["starting"]
        elif "finished" in line:
            run.layers = dict(line["layers"])
            if line["left"]:
                broken = f"{line['left']} processes were left running when the sandbox was closed"
            if line["sealed"]:
                broken = f"{line['sealed']} files of sealed rows were left open when the sandbox was closed"
        else:
            name = line.pop("name")
            run.ended[name] = Ended(**line)
    if broken:
        run.broken = f"{broken} (the last program was {running})"
    return run


def _unused_uid() -> int:
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    return next(uid for uid in range(54_321, 60_000) if uid not in taken)


def _read_folders() -> list[str]:
    """What an interpreter needs that runs the tests of this tree."""
    found = {sys.prefix, sys.base_prefix, str(HERE.parents[2]), str(Path(prismem_core.__file__).parents[1])}
    found.add(str(Path(np.__file__).parents[1]))
    link = Path(sys.executable)
    found.add(str(link.parent))
    while link.is_symlink():
        link = link.parent / link.readlink()
        found.add(str(link.parent))
    found.update(path for path in sys.path if os.path.isdir(path))
    return sorted(found)
