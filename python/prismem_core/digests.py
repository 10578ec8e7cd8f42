"""Content digests: the same value gives the same 64 hex digits in every process and on every machine."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> bytes:
    """The one UTF-8 spelling of a JSON value: sorted keys, no blanks, no NaN (raises ValueError)."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode(
        "utf-8", "surrogatepass"
    )


def digest_bytes(data: bytes) -> str:
    """SHA-256 of `data`, 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def digest(*parts: Any) -> str:
    """SHA-256 of the canonical JSON of the list of `parts`; list borders count, dictionary order does not."""
    return digest_bytes(canonical_json(list(parts)))
