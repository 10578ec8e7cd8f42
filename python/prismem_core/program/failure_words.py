"""A failure in words that whoever wrote the program can act on: its kind, what was allowed, and what to do."""

from __future__ import annotations

import re

from prismem_core.program.interface import OUT_CHAR_BUDGET
from prismem_core.program.sandbox import Limits

_ADVICE = {
    "error": "mend the program at the line named; there may be no unit at all, and Optional fields may be None",
    "invalid": f"index() returns None, retrieve() a str of at most {OUT_CHAR_BUDGET} characters: cut it there",
    "limit:cpu": "do less in one call: prepare in index() what retrieve() needs, compute with numpy in place of loops, "
    "and compare no unit with every other",
    "limit:wall": "wait for nothing and loop for no condition that may never come",
    "limit:memory": "keep each text and each row once, rows in float32, and build nothing that grows with the square "
    "of the units",
    "limit:calls": "send many texts in one call of backend.embed, and call backend.ask rarely or never",
    "died": "the program must not leave the interpreter, recurse very deeply or reach around Python",
    "protocol": "speak to the engine through the methods of backend alone, and compute only while a call runs",
    "structured_output": "a model could not fill in the schema: use fewer and plainer fields, and describe each",
}
_ADDRESS_SPACE = "the program needs more memory than its limit"
_REFUSED = (
    "programs may not use files, sockets, processes, threads or signals: work on what index() and retrieve() are given"
)
_REFUSED_CALL = re.compile(r"^PermissionError\b|system call that memory programs may not make|can't start new thread")


def explained(kind: str, message: str, limits: Limits) -> str:
    """`message` with the kind of the failure before it, and behind it what was allowed and what to do.

    Kinds are those of CandidateError and LimitError; one without advice leaves the message as it is.
    """
    advice = _REFUSED if _REFUSED_CALL.search(message) else _ADVICE.get(kind)
    if advice is None:
        return message
    allowed = ""
    # Collections have a limit of their own, which their message names.
    if kind == "limit:memory" and _ADDRESS_SPACE in message:
        allowed = f"{limits.memory_bytes >> 20} MiB are allowed, interpreter and libraries included; "
    return f"{kind}: {message}; {allowed}to mend it: {advice}"
