"""The static check of a program, which runs nothing."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from prismem_core.program.library import interface, names, source
from prismem_core.program.validation.static import gate

from ..contest import OURS, Competitor, Contest, Finding, Job, Work

OURS_NAME = "prismem check"
COMPILED = "compile alone"


def _prepare(quick: bool) -> Contest:
    programs = [(source(name), interface(name)) for name in names()]

    def check(competitor: Competitor, verdicts: Any) -> Finding:
        expected = [True] * len(programs)
        return Finding("" if verdicts == expected else f"verdicts {verdicts}")

    def ours() -> list[bool]:
        return [gate(program, offered).outcome != "reject" for program, offered in programs]

    def compiled() -> list[bool]:
        return [bool(compile(ast.parse(program), "<program>", "exec")) for program, _ in programs]

    return Contest(
        "the programs of the library",
        {"programs": len(programs), "lines": sum(program.count("\n") for program, _ in programs)},
        [
            Competitor(OURS_NAME, OURS, lambda: ours),
            Competitor(COMPILED, "python", lambda: compiled, "no check"),
        ],
        check,
        Work(),
    )


JOBS: Sequence[Job] = (Job("sandbox/static-check", "the static check of every program of the library", _prepare),)
