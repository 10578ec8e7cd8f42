"""The manifest of an exported program: comment lines above the source, so that the file stays a program like any other.

    # prismem memory program, format 1: what follows as JSON is its manifest
    # {
    #   "digest": "<SHA-256 of the source below>",
    #   ...
    # }
    # end of the manifest

Comments change no key and no check: the file is validated, evaluated and started from as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from prismem_core.digests import digest_bytes
from prismem_core.errors import DataError

FORMAT_VERSION = 1
_NAME = "# prismem memory program, format "
_HEAD = f"{_NAME}{FORMAT_VERSION}: what follows as JSON is its manifest"
_END = "# end of the manifest"


def with_manifest(source: str, values: Mapping[str, Any]) -> str:
    """The text of a file with `values` (plain JSON) and the digest of `source` above it; equal input, equal text.

    A manifest that `source` has already is replaced.
    """
    source = body_of(source)
    manifest = {**values, "digest": source_digest(source)}
    # ASCII alone: no character of a summary can end a comment or look like other text.
    lines = json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=True, allow_nan=False).split("\n")
    return "\n".join([_HEAD, *(f"# {line}" for line in lines), _END, source])


def split_manifest(text: str) -> tuple[dict[str, Any] | None, str]:
    """(manifest, source) of a program file; (None, text) for a program without a manifest.

    Raises DataError for a manifest that is damaged, of another format, or that belongs to another source.
    """
    if not text.startswith(_NAME):
        return None, text
    head, *lines = text.split("\n")
    if head != _HEAD:
        raise DataError(f"its manifest begins with {head[:80]!r}; this version reads format {FORMAT_VERSION}")
    if _END not in lines:
        raise DataError("its manifest has no end: the file is cut short; export it again")
    end = lines.index(_END)
    try:
        values = json.loads("\n".join(line.removeprefix("# ") for line in lines[:end]))
        known = values["digest"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"its manifest is damaged ({error}); export it again") from None
    source = "\n".join(lines[end + 1 :])
    if known != source_digest(source):
        raise DataError(
            "its source is not the one its manifest speaks of: export it again, or remove the manifest's comment lines "
            "to use it as a program of your own"
        )
    return values, source


def body_of(text: str) -> str:
    """The source below a manifest, sound or not; the text itself where there is none."""
    if not text.startswith(_NAME):
        return text
    _, found, source = text.partition(f"\n{_END}\n")
    return source if found else text


def source_digest(source: str) -> str:
    """SHA-256 of a source, 64 hex digits: the digest of the program."""
    return digest_bytes(source.encode("utf-8", "surrogatepass"))
