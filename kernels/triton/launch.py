"""What a launch of a Triton kernel consists of: for launchers, the table of configurations and ahead-of-time checks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") == "1"
"""Whether kernels run in the interpreter, on the CPU; triton reads the setting when a kernel is defined."""

POINTERS = {"float32": "*fp32", "float16": "*fp16", "bfloat16": "*bf16", "int8": "*i8", "uint8": "*u8"}
"""Types of pointers in signatures, by the kind of rows."""


@dataclass(frozen=True)
class Config:
    """Tile sizes and resources of one launch: queries x keys x dimensions a tile, warps, pipeline stages, how rows are
    loaded ("pointer" or "descriptor").
    """

    block_queries: int
    block_keys: int
    block_dim: int
    warps: int = 4
    stages: int = 3
    loads: str = "pointer"


@dataclass(frozen=True)
class Variant:
    """A kernel as a launcher specialises it: what is needed to compile it without a device.

    `signature` maps each argument that is no constant to its type ("*fp16", "i32", "tensordesc<fp16[128,64]>");
    `aligned` names those divisible by 16; `batched` says that tensor-core instructions are expected.
    """

    name: str
    op: str
    kernel: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    aligned: tuple[str, ...] = ()
    warps: int = 4
    stages: int = 3
    batched: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)
