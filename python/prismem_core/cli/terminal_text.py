"""Texts of others as every terminal can show them."""

from __future__ import annotations

import sys


def terminal_text(text: str, keep: str = "") -> str:
    """The text with what is not printable, or not in the terminal's encoding, as an escape; `keep` stays as it is."""
    printable = "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )
    encoding = sys.stdout.encoding or "utf-8"
    return printable.encode(encoding, "backslashreplace").decode(encoding)
