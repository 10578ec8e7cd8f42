"""The check that runs nothing: steps 1-5 of validation and what the syntax tree decides of steps 7-10.

Its time is bounded by the size, depth and node count that `parse_module` allows, each pass being linear in them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from prismem_core.errors import ProgramError
from prismem_core.program.interface import Interface
from prismem_core.program.syntax import parse_module, shape
from prismem_core.program.validation.access import access_faults, string_constants
from prismem_core.program.validation.advice import advice
from prismem_core.program.validation.collection_use import collection_faults
from prismem_core.program.validation.definitions import definition_fault
from prismem_core.program.validation.imports import import_faults
from prismem_core.program.validation.origins import Origins
from prismem_core.program.validation.report import Finding, GateReport

_SHOWN = 5


@dataclass(frozen=True)
class StaticResult:
    """Outcome of steps 1-5: the code (`ok` if all passed), what to say of it, and what later steps need."""

    code: str
    message: str = ""
    line: int | None = None
    tree: ast.Module | None = None
    origins: Origins | None = None
    warnings: tuple[Finding, ...] = ()


def gate(source: str, interface: Interface = "paper") -> GateReport:
    """Whether a program is refused, accepted with warnings or accepted, by its text alone.

    Never refuses what `validate` calls `ok`. Raises nothing, whatever the text.
    """
    result = check_static(source, interface=interface)
    if result.code == "ok" and result.tree is not None and result.origins is not None:
        fault = definition_fault(result.tree, result.origins)
        if fault is not None:
            code, finding = fault
            return GateReport("reject", code, finding.message, finding.line or None, result.warnings)
        return GateReport("flag" if result.warnings else "pass", "ok", "", None, result.warnings)
    return GateReport("reject", result.code, result.message, result.line, ())


def check_static(source: str, parent: str | None = None, interface: Interface = "paper") -> StaticResult:
    """Steps 1-5 of validation."""
    if not source.strip():
        return StaticResult(
            "empty_source", "the source is empty; a program defines two schemas, Memory and three instructions"
        )
    try:
        return _check(source, parent, interface)
    except ProgramError as error:
        return StaticResult(error.code, str(error), error.line)
    except RecursionError:
        return StaticResult("syntax_error", "the source is nested too deeply; split long expressions")


def _check(source: str, parent: str | None, interface: Interface) -> StaticResult:
    tree = parse_module(source)
    if parent is not None and _same(tree, parent):
        return StaticResult("no_change", "the program is its parent but for comments and layout; change what it does")
    if faults := import_faults(tree):
        return _refusal("forbidden_import", faults)
    origins = Origins(tree)
    faults = access_faults(source, tree, origins, interface)
    if interface == "engine":
        faults = sorted([*faults, *collection_faults(tree, origins)])
    if faults:
        return _refusal("forbidden_access", faults)
    return StaticResult("ok", tree=tree, origins=origins, warnings=advice(tree, origins, string_constants(tree)))


def _same(tree: ast.Module, parent: str) -> bool:
    try:
        return shape(tree) == shape(parse_module(parent))
    except ProgramError:
        # A parent that does not parse is no reason to refuse a child that does.
        return False


def _refusal(code: str, faults: list[Finding]) -> StaticResult:
    shown = "; ".join(str(fault) for fault in faults[:_SHOWN])
    rest = len(faults) - _SHOWN
    return StaticResult(code, shown + (f"; and {rest} more" if rest > 0 else ""), faults[0].line or None)
