"""Which imports a program may make (step 4 of validation)."""

from __future__ import annotations

import ast

from prismem_core.program.interface import ALLOWED_IMPORTS
from prismem_core.program.validation.modules import is_allowed
from prismem_core.program.validation.report import Finding


def import_faults(tree: ast.Module) -> list[Finding]:
    """Forbidden imports at any depth, in source order."""
    found = []
    allowed = ", ".join(ALLOWED_IMPORTS)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if not is_allowed(alias.name):
                    found.append(Finding(node.lineno, f"import of {alias.name} is not allowed; allowed are {allowed}"))
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                found.append(Finding(node.lineno, "relative imports are not allowed; a program is a single module"))
            elif not is_allowed(node.module or ""):
                found.append(Finding(node.lineno, f"import from {node.module} is not allowed; allowed are {allowed}"))
            elif any(alias.name == "*" for alias in node.names):
                found.append(Finding(node.lineno, f"star import from {node.module} is not allowed; name what is used"))
    return sorted(found)
