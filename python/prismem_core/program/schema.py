"""Check a model's reply against the schema of a memory unit or a query (PrisMem appendix A.4)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prismem_core.program.interface import FieldSpec

_ERRORS_SHOWN = 8
_NAME_SHOWN = 60


@dataclass(frozen=True)
class SchemaResult:
    """`errors` holds every (code, field) in field order, extra fields sorted last; `value` is None unless `ok`."""

    ok: bool
    errors: list[tuple[str, str | None]]
    value: dict[str, Any] | None

    @property
    def words(self) -> str:
        """The first errors on one line; names that a model invented are cut, with what cannot be shown written out."""
        shown = [f"{code} {_shown(name or '')}".strip() for code, name in self.errors[:_ERRORS_SHOWN]]
        return "; ".join(shown) + ("; and more" if len(self.errors) > _ERRORS_SHOWN else "")


def _shown(name: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name[:_NAME_SHOWN])


def check_json(raw: str, schema: Sequence[FieldSpec]) -> SchemaResult:
    """The object in the JSON text `raw`, with defaults filled in.

    Codes: `invalid_json` and `not_object` (field None), then those of `check_value`. Of a repeated key the last counts.
    """
    try:
        parsed = json.loads(raw)
    except (ValueError, RecursionError):
        return SchemaResult(False, [("invalid_json", None)], None)
    return check_value(parsed, schema)


def check_value(obj: Any, schema: Sequence[FieldSpec]) -> SchemaResult:
    """As `check_json`, for JSON data already parsed.

    Codes: `not_object`; by field `missing_field`, `wrong_type`, `nonfinite`, `extra_field`. A default the program must
    fill in itself (`opaque_default`) is left out of the value.
    """
    if not isinstance(obj, dict):
        return SchemaResult(False, [("not_object", None)], None)
    errors: list[tuple[str, str | None]] = []
    value: dict[str, Any] = {}
    for spec in schema:
        if spec.name not in obj:
            if not spec.has_default:
                errors.append(("missing_field", spec.name))
            elif not spec.opaque_default:
                value[spec.name] = list(spec.default) if isinstance(spec.default, list) else spec.default
            continue
        code, item = _check_field(obj[spec.name], spec)
        if code:
            errors.append((code, spec.name))
        value[spec.name] = item
    known = {spec.name for spec in schema}
    errors.extend(("extra_field", key) for key in sorted(str(key) for key in obj if key not in known))
    return SchemaResult(not errors, errors, None if errors else value)


def _check_field(item: Any, spec: FieldSpec) -> tuple[str, Any]:
    """An error code ("" if none) and the value to keep."""
    if item is None and spec.optional:
        return "", None
    if spec.type == "float" and type(item) in (int, float):
        try:
            number = float(item)
        except OverflowError:
            return "nonfinite", None
        return ("", number) if math.isfinite(number) else ("nonfinite", None)
    if spec.type == "list[str]":
        fits = isinstance(item, list) and all(type(part) is str for part in item)
        return ("", list(item)) if fits else ("wrong_type", None)
    plain = {"str": str, "int": int, "bool": bool}
    return ("", item) if type(item) is plain.get(spec.type) else ("wrong_type", None)
