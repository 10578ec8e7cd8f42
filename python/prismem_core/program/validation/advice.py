"""What is allowed but deserves a warning: results that may not repeat, stored answers, texts that speak to a grader."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from prismem_core.program.interface import INSTRUCTION_NAMES
from prismem_core.program.syntax import docstring_of
from prismem_core.program.validation.origins import Origins
from prismem_core.program.validation.report import Finding
from prismem_core.program.validation.texts import fold

_CLOCK = frozenset({"now", "today", "utcnow"})
_SEEDED = frozenset(
    [
        "Generator",
        "default_rng",
        "seed",
        "RandomState",
        "SeedSequence",
        "BitGenerator",
        "PCG64",
        "PCG64DXSM",
        "MT19937",
        "Philox",
        "SFC64",
        "get_state",
        "set_state",
    ]
)
_DICT_ENTRIES = 150
_LIST_ENTRIES = 400
_TEXT_CHARS = 6000
_GRADER = re.compile(
    r"\b(grader|graders|grading|judge|judges|evaluator|evaluators|reference answers?|gold(en)? answers?|ground truth"
    r"|full (marks|score|credit)|scor(e|es|ing)|rubrics?|benchmark)\b",
    re.IGNORECASE,
)


def advice(tree: ast.Module, origins: Origins, constants: dict[str, str]) -> tuple[Finding, ...]:
    """Warnings in source order; none of them refuses a program."""
    found = {*_repeatability(tree, origins), *_tables(tree), *_patches(tree, origins)}
    found |= {*_loops(tree), *_instructions(tree, constants)}
    return tuple(sorted(found))


def _repeatability(tree: ast.Module, origins: Origins) -> Iterator[Finding]:
    seeded = False
    global_draws: list[Finding] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            for origin in origins.of(node):
                kind, _, place = origin.partition(":")
                module, _, member = place.rpartition(".")
                if kind == "member" and member in _CLOCK and module.startswith("datetime"):
                    yield Finding(node.lineno, f"{place} depends on the current time: results will not repeat")
                if kind == "member" and module == "numpy.random":
                    seeded = seeded or member == "seed"
                    if member not in _SEEDED:
                        global_draws.append(
                            Finding(node.lineno, f"{place} draws from global random state; use default_rng(seed)")
                        )
        if isinstance(node, ast.Call):
            yield from _unrepeatable_calls(node, origins)
    if not seeded:
        yield from global_draws


def _unrepeatable_calls(call: ast.Call, origins: Origins) -> Iterator[Finding]:
    constants = [part.value if isinstance(part, ast.Constant) else part for part in call.args]
    for origin in sorted(origins.of(call.func)):
        unseeded = not call.keywords and constants in ([], [None])
        if origin in ("member:numpy.random.default_rng", "member:numpy.random.RandomState") and unseeded:
            yield Finding(call.lineno, "a random generator without a seed: results will not repeat")
        if origin == "member:numpy.datetime64" and constants[:1] in (["now"], ["today"]):
            yield Finding(call.lineno, f"numpy.datetime64({constants[0]!r}) depends on the current time")
    if origins.is_builtin(call.func, "getattr") and len(call.args) > 1 and constants[1] in _CLOCK:
        for origin in sorted(origins.of(call.args[0])):
            if origin.startswith("member:datetime."):
                yield Finding(call.lineno, f"{origin[7:]}.{constants[1]} depends on the current time")


def _tables(tree: ast.Module) -> Iterator[Finding]:
    prose = {id(part.value) for node in ast.walk(tree) if isinstance(part := docstring_of(node), ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            size, limit = len(node.keys), _DICT_ENTRIES
        elif isinstance(node, ast.List | ast.Tuple | ast.Set):
            size, limit = len(node.elts), _LIST_ENTRIES
        elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in prose:
            size, limit = len(node.value), _TEXT_CHARS
        else:
            continue
        if size > limit:
            yield Finding(node.lineno, f"a literal of {size} entries or characters: stored answers do not carry over")


def _patches(tree: ast.Module, origins: Origins) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            base, name = node.value, node.attr
        elif isinstance(node, ast.Call) and any(
            origins.is_builtin(node.func, function) for function in ("setattr", "delattr")
        ):
            base = node.args[0] if node.args else node
            name = "attribute"
        else:
            continue
        for origin in sorted(origins.of(base)):
            kind, _, place = origin.partition(":")
            if kind in ("module", "member", "backend"):
                yield Finding(node.lineno, f"changes {place or kind}.{name}: only this worker will see it")


def _loops(tree: ast.Module) -> Iterator[Finding]:
    for statement in tree.body:
        if isinstance(statement, ast.For | ast.While):
            yield Finding(statement.lineno, "a loop at module level runs each time the program is loaded")


def _instructions(tree: ast.Module, constants: dict[str, str]) -> Iterator[Finding]:
    for statement in tree.body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            if isinstance(target, ast.Name) and target.id in INSTRUCTION_NAMES:
                match = _GRADER.search(fold(statement.value, constants) or "")
                if match:
                    yield Finding(statement.lineno, f"{target.id} speaks of grading ({match.group()!r})")
