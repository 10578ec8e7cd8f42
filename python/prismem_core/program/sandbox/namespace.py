"""The module namespace a program runs in: allowed imports, restricted builtins, its own source lines in tracebacks.

Restricting names makes clumsy programs fail early with a clear message. It is no boundary: attribute chains reach
everything the process holds. The process around it is what confines.
"""

from __future__ import annotations

import builtins
import linecache
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

from prismem_core.program.interface import ALLOWED_IMPORTS, ALLOWED_SUBMODULES, OUT_CHAR_BUDGET

PROGRAM_FILE = "<program>"
PROGRAM_MODULE = "memory_program"

_REMOVED = frozenset(
    [
        "open",
        "eval",
        "exec",
        "compile",
        "globals",
        "locals",
        "vars",
        "input",
        "breakpoint",
        "exit",
        "quit",
        "help",
        "copyright",
        "credits",
        "license",
    ]
)

_ALLOWED = frozenset(ALLOWED_IMPORTS + ALLOWED_SUBMODULES)

# Modules that C code of allowed ones imports while a program runs. C code names no wanted attributes and passes an
# empty list for them, which the import statement never does.
_IMPORTED_BY_C = frozenset({"_strptime", "calendar", "locale", "time", "unicodedata", "numpy"})


def load(source: str, *, restrict_names: bool) -> types.ModuleType:
    """Execute `source` as a fresh module; what it raises passes through, MemoryError of the parser as SyntaxError.

    Without `restrict_names` the program gets all builtins and imports whatever the process has loaded.
    """
    linecache.cache[PROGRAM_FILE] = (len(source), None, source.splitlines(keepends=True), PROGRAM_FILE)
    try:
        code = compile(source, PROGRAM_FILE, "exec", dont_inherit=True)
    except (MemoryError, RecursionError):
        raise SyntaxError("the source is nested too deeply to be parsed") from None
    module = types.ModuleType(PROGRAM_MODULE)
    if restrict_names:
        module.__dict__["__builtins__"] = _builtins()
    module.__dict__["OUT_CHAR_BUDGET"] = OUT_CHAR_BUDGET
    # dataclasses and typing look the module up to resolve string annotations.
    sys.modules[PROGRAM_MODULE] = module
    exec(code, module.__dict__)
    return module


def _builtins() -> dict[str, Any]:
    allowed = {name: value for name, value in vars(builtins).items() if name not in _REMOVED}
    allowed["__import__"] = _import
    return allowed


def _import(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> types.ModuleType:
    by_c = type(fromlist) is list and name in sys.modules and name.partition(".")[0] in _IMPORTED_BY_C
    if level != 0 or not (name in _ALLOWED or by_c):
        raise ImportError(
            f"import of {name!r} is not allowed in a memory program; allowed are {', '.join(ALLOWED_IMPORTS)}"
        )
    return builtins.__import__(name, globals, locals, fromlist or (), level)
