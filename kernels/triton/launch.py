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
    loaded ("pointer" or "descriptor"), and the most registers a thread may have.

    Without that limit the assembler spills a few values to reach the next step of occupancy.
    """

    block_queries: int
    block_keys: int
    block_dim: int
    warps: int = 4
    stages: int = 3
    loads: str = "pointer"
    registers: int = 255


@dataclass(frozen=True)
class Variant:
    """A kernel as a launcher specialises it: what is needed to compile it without a device.

    `signature` maps each argument that is no constant to its type ("*fp16", "i32", "tensordesc<fp16[128,64]>");
    `aligned` names those divisible by 16; `batched` says that tensor-core instructions are expected; `registers` is the
    most a thread may have, None where the launcher leaves it to the compiler.
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
    registers: int | None = None


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


def is_aligned(rows: Any) -> bool:
    """Whether rows (n, d) start at multiples of 16 elements, so that they are loaded 16 bytes at a time."""
    return bool(rows.data_ptr() % 16 == 0 and rows.stride(0) % 16 == 0 and rows.shape[1] % 16 == 0)


def is_describable(rows: Any) -> bool:
    """Whether a tensor descriptor can hold rows (n, d): aligned to 16 bytes, not overlapping, fewer than 2**31."""
    size = rows.element_size()
    stride = rows.stride(0) * size
    return bool(
        rows.data_ptr() % 16 == 0
        and stride % 16 == 0
        and rows.stride(0) >= rows.shape[1] > 0
        and 0 < rows.shape[0] < 2**31
    )


def described(rows: Any, block_rows: int, block_dim: int) -> Any:
    """A tensor descriptor of rows (n, d) with tiles (block_rows, block_dim); what lies outside reads as 0."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor(rows, list(rows.shape), [rows.stride(0), 1], [block_rows, block_dim])


def start(kernel: Any, programs: tuple[int, ...], arguments: Mapping[str, Any], config: Config) -> None:
    """Launch a kernel; arguments that are not there are None, which a kernel takes for "not this"."""
    values = {**dict.fromkeys(kernel.arg_names), **arguments}
    kernel[programs](**values, num_warps=config.warps, num_stages=config.stages, maxnreg=config.registers)


def variant(
    name: str,
    op: str,
    kernel: Any,
    arguments: Mapping[str, Any],
    config: Config,
    *,
    batched: bool = False,
    notes: Mapping[str, str] | None = None,
) -> Variant:
    """What `start` would compile for these arguments, which may be tensors without memory (of torch's device "meta").

    It repeats what triton does with arguments: None and 1 become constants, and 16 must divide what is aligned.
    """
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    aligned: list[str] = []
    for parameter in kernel.params:
        value = arguments.get(parameter.name)
        special = not parameter.do_not_specialize
        if parameter.is_constexpr or value is None or (special and isinstance(value, int) and value == 1):
            constants[parameter.name] = value
        elif isinstance(value, int):
            signature[parameter.name] = "i32" if -(2**31) <= value < 2**31 else "i64"
            if special and value % 16 == 0:
                aligned.append(parameter.name)
        elif isinstance(value, float):
            signature[parameter.name] = "fp32"
        elif hasattr(value, "block_shape"):
            kind = _ELEMENTS[kind_of(value.base)]
            signature[parameter.name] = f"tensordesc<{kind}{list(value.block_shape)}>".replace(" ", "")
        else:
            signature[parameter.name] = f"*{_ELEMENTS[kind_of(value)]}"
            if special and value.data_ptr() % 16 == 0:
                aligned.append(parameter.name)
    return Variant(
        name,
        op,
        kernel,
        signature,
        constants,
        tuple(aligned),
        config.warps,
        config.stages,
        batched,
        notes or {},
        config.registers,
    )


_ELEMENTS = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float64": "fp64",
    "int8": "i8",
    "uint8": "u8",
    "int32": "i32",
    "int64": "i64",
}
