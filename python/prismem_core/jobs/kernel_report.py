"""What the compiled kernels look like, on a machine that need not have a GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismem_core.errors import ArgumentError, NoImplementation


@dataclass(frozen=True)
class KernelRow:
    """One compiled kernel: `code` counts registers, spills and instructions (`kernels.machine_code.MachineCode`).

    `shared` is bytes a block; `verdict` is "ok" or the rules it breaks; `code` is None where it does not compile.
    """

    source: str
    op: str
    name: str
    sm: int
    warps: int
    stages: int
    shared: int
    code: dict[str, Any] | None
    verdict: str


def triton_rows(ops: Sequence[str], architectures: Sequence[int], name: str) -> list[KernelRow]:
    """Every shipped variant of the Triton kernels, compiled now; NoImplementation where triton is missing."""
    from dataclasses import asdict

    from prismem_core.kernels.triton import aot

    if importlib.util.find_spec("triton") is None:
        raise NoImplementation(
            "kernels report: triton is not installed; install it with: pip install triton (a GPU is not needed)"
        )
    for op in ops:
        if op not in aot.OPS:
            raise ArgumentError(f"op: expected one of {', '.join(aot.OPS)}, got {op!r}")
    for sm in architectures:
        if sm not in aot.ARCHITECTURES:
            known = ", ".join(str(known) for known in aot.ARCHITECTURES)
            raise ArgumentError(f"--sm: kernels are tuned for {known}, got {sm}")
    found = aot.compile_all(ops or aot.OPS, architectures or aot.ARCHITECTURES, name)
    return [
        KernelRow(
            f"triton {row.triton}",
            row.op,
            row.name,
            row.sm,
            row.warps,
            row.stages,
            row.shared,
            None if row.code is None else asdict(row.code),
            "; ".join(row.complaints) or "ok",
        )
        for row in found
    ]


def library_rows(library: Path) -> list[KernelRow]:
    """Every kernel of a library that nvcc built; its cuobjdump comes with triton too."""
    from dataclasses import asdict

    from prismem_core.kernels import machine_code

    return [
        KernelRow(
            library.name,
            "",
            machine_code.readable(code.function),
            code.sm,
            0,
            0,
            code.shared,
            asdict(code),
            "; ".join(machine_code.broken_rules(code, code.shared)) or "ok",
        )
        for code in machine_code.read(library)
    ]
