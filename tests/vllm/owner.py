"""A program that has an engine and ends as it is told: `python -m tests.vllm.owner MODEL END`.

END is `asks` (calls without end, until a signal comes), `aborts` (dies with calls under way) or `ends` (without closing
what it opened). It says `asked` when the first reply is there; the last two then wait for a line.
"""

from __future__ import annotations

import os
import sys


def main(model: str, end: str) -> None:
    """Ask the model in the directory `model`, and end."""
    from prismem_core.roles.protocols import ChatRequest
    from tests.vllm.conftest import ENGINE, Place, make_chat

    chat = make_chat(Place("in-process", f"vllm:{model}", {"engine": ENGINE}), temperature=1.0)
    short = ChatRequest("ask", "", "Say a word.", {}, None, 5)
    long = [ChatRequest("ask", "", f"Say number {i}.", {}, None, 3000) for i in range(8)]
    said = False
    while end != "ends" or not said:
        for _ in chat.complete_each([short] if end == "ends" else [short, *long]):
            if not said:
                said = True
                print("asked", flush=True)
                if end != "asks":
                    sys.stdin.readline()
                if end == "aborts":
                    os.abort()


if __name__ == "__main__":
    main(*sys.argv[1:])
