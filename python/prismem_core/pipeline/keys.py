"""What of a program decides each stage: the difference between `reuse="content"`, `"paper"` and `"off"` (P Table 6)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from prismem_core.digests import digest
from prismem_core.program.components import code_digest, stage_digests
from prismem_core.program.program import Program
from prismem_core.program.reachability import INDEX_ROOTS

Reuse = Literal["content", "paper", "off"]

RETRIEVE_ROOTS = ("Memory.retrieve", "Query")
"""The components whose code, with all it can run, decides what a query finds in a memory."""


# A run asks for the keys of its program at every stage, and a program comes back as the parent of the next.
_KEPT_PROGRAMS = 64


@dataclass(frozen=True)
class StageKeys:
    """What enters the keys beside the stage's own inputs: salts of the model calls, digests of the code."""

    extract: str
    index: str
    plan: str
    retrieve: str
    answer: str


@lru_cache(_KEPT_PROGRAMS)
def stage_keys(program: Program, reuse: Reuse) -> StageKeys:
    """Keys of a program.

    `content`: code counts by what is reachable, instructions and schemas by value, so equal work is shared whatever
    changed around it. `paper`: a stage is shared only while every component that Table 6 puts at or before it is
    unchanged. `off`: nothing is shared between programs that differ in a single character, which measures what reuse
    saves. Raises ProgramError (`syntax_error`) for a source that does not parse.
    """
    if reuse == "off":
        own = digest("off", program.digest)
        return StageKeys(own, own, own, own, own)
    index = code_digest(program.source, INDEX_ROOTS)
    retrieve = code_digest(program.source, RETRIEVE_ROOTS)
    if reuse == "content":
        return StageKeys("", index, "", retrieve, "")
    paper = stage_digests(program.source)
    return StageKeys(
        digest("paper", paper["extraction"]),
        digest("paper", paper["indexing"], index),
        digest("paper", paper["planning"]),
        digest("paper", paper["planning"], retrieve),
        digest("paper", paper["answer"]),
    )
