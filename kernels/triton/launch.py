"""What a launch of a Triton kernel consists of: for launchers, the table of configurations and ahead-of-time checks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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


@contextmanager
def on(device: Any) -> Iterator[None]:
    """Launches inside go to the device, on torch's current stream there."""
    if INTERPRETED:
        yield
        return
    import torch

    with torch.cuda.device(device.index):
        yield


def sm_of(device: Any) -> int:
    """The compute capability, 80 or 90; 0 in the interpreter."""
    if INTERPRETED:
        return 0
    import torch

    major, minor = torch.cuda.get_device_capability(device.index)
    return int(10 * major + minor)


def processors(device: Any) -> int:
    """Streaming multiprocessors of the device."""
    if INTERPRETED:
        return 2
    import torch

    return int(torch.cuda.get_device_properties(device.index).multi_processor_count)


def power_of_two(number: int) -> int:
    """The least power of two that is at least `number`."""
    return 1 << max(number - 1, 0).bit_length()


def kind_of(tensor: Any) -> str:
    """The kind of rows of a torch tensor, as in POINTERS."""
    return str(tensor.dtype).removeprefix("torch.")
