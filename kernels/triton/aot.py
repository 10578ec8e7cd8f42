"""Compile the variants that launchers use, for an architecture that need not be there, and read their machine code.

    python -m prismem_core.kernels.triton.aot --sm 80 --sm 90 top_k        # all variants of an op, or of all ops
    python -m prismem_core.kernels.triton.aot --sm 90 --name top_k/float16  # those whose name holds a text

A module of an op has `variants(sm)`. What a variant may say in `notes`, to be excused from a rule with a reason:
"mma" (sm_90: instructions of a warp where those of a warp group do not fit), "loads" (no 128-bit loads).
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prismem_core.errors import NoImplementation
from prismem_core.kernels import machine_code
from prismem_core.kernels.machine_code import MachineCode
from prismem_core.kernels.triton.launch import INTERPRETED, Variant

OPS = ("row_scales", "top_k", "similarity", "segment_max_similarity", "segment_mean", "mmr_select", "codes")
"""Modules of this package that have `variants`."""

ARCHITECTURES = (80, 90)
"""Compute capabilities that kernels are tuned for."""


@dataclass(frozen=True)
class Compiled:
    """A variant as the compiler left it: `shared` is bytes a block, with what is asked for at launch.

    `complaints` says which rules it breaks; `code` is None where it does not compile at all.
    """

    op: str
    name: str
    sm: int
    triton: str
    warps: int
    stages: int
    batched: bool
    shared: int
    seconds: float
    code: MachineCode | None
    complaints: tuple[str, ...]


def variants(ops: Sequence[str], sm: int, name: str = "") -> Iterator[Variant]:
    """The variants of these ops for an architecture whose name holds a text."""
    for op in ops:
        module = importlib.import_module(f"prismem_core.kernels.triton.{op}")
        yield from (variant for variant in module.variants(sm) if name in variant.name)


def compile_variant(variant: Variant, sm: int) -> Compiled:
    """Compile one variant in this process, which must not be in interpreter mode, and read its machine code."""
    if INTERPRETED:
        raise NoImplementation("TRITON_INTERPRET is set, and interpreted kernels cannot be compiled; unset it")
    import triton

    start = time.perf_counter()
    try:
        kernel = _compile(variant, sm)
    except Exception as error:  # whatever the compiler dislikes is a finding about the variant
        reason = f"does not compile: {type(error).__name__}: {' '.join(str(error).split())[:500]}"
        return _result(variant, sm, triton.__version__, 0, time.perf_counter() - start, None, (reason,))
    seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(kernel.asm["cubin"])
        (code,) = machine_code.read(path)
    shared = max(int(kernel.metadata.shared), code.shared)
    complaints = tuple(broken_rules(code, shared, variant))
    return _result(variant, sm, triton.__version__, shared, seconds, code, complaints)


def _result(
    variant: Variant,
    sm: int,
    version: str,
    shared: int,
    seconds: float,
    code: MachineCode | None,
    complaints: tuple[str, ...],
) -> Compiled:
    return Compiled(
        variant.op,
        variant.name,
        sm,
        version,
        variant.warps,
        variant.stages,
        variant.batched,
        shared,
        round(seconds, 2),
        code,
        complaints,
    )


def _compile(variant: Variant, sm: int) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = variant.kernel.arg_names
    given = {**variant.signature, **dict.fromkeys(variant.constants, "constexpr")}
    if missing := [name for name in names if name not in given]:
        raise ValueError(f"the variant says nothing of the arguments {', '.join(missing)}")
    if unknown := sorted({*given, *variant.aligned} - set(names)):
        raise ValueError(f"the kernel has no arguments {', '.join(unknown)}")
    source = ASTSource(
        fn=variant.kernel,
        signature={name: given[name] for name in names},
        constexprs={(names.index(name),): value for name, value in variant.constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in variant.aligned},
    )
    options: dict[str, Any] = {"num_warps": variant.warps, "num_stages": variant.stages}
    if variant.registers is not None:
        options["maxnreg"] = variant.registers
    return triton.compile(source, target=GPUTarget("cuda", sm, 32), options=options)


def broken_rules(code: MachineCode, shared: int, variant: Variant) -> Iterator[str]:
    """What a shipped variant must not do."""
    yield from machine_code.broken_rules(code, shared)
    if variant.batched and not code.mma + code.wgmma:
        yield "no tensor-core instruction"
    elif variant.batched and code.sm == 90 and not code.wgmma and "mma" not in variant.notes:
        yield 'no tensor-core instruction of a warp group; give the reason as the note "mma"'
    if not code.wide_loads + code.bulk_loads and "loads" not in variant.notes:
        yield 'neither 128-bit nor bulk loads; give the reason as the note "loads"'


def compile_all(
    ops: Sequence[str] = OPS, architectures: Iterable[int] = ARCHITECTURES, name: str = ""
) -> list[Compiled]:
    """Compile in another process, which sees kernels as the compiler does whatever the mode of this one.

    NoImplementation says what to install where triton or something that a module of an op needs is missing.
    """
    words = [word for sm in architectures for word in ("--sm", str(sm))]
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    # Later versions of triton change the default.
    environment.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    command = [sys.executable, "-m", __spec__.name, "--json", "--name", name, *words, *ops]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        if "ModuleNotFoundError" in last and "prismem_core" not in last:
            raise NoImplementation(f"kernels cannot be compiled ({last}); pip install 'prismem-core[gpu]' brings it")
        raise NoImplementation(f"kernels cannot be compiled: {last}")
    return [from_json(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]


def from_json(record: dict[str, Any]) -> Compiled:
    """What `asdict` made of a result."""
    code = None if record["code"] is None else MachineCode(**record["code"])
    return Compiled(**{**record, "code": code, "complaints": tuple(record["complaints"])})


def line(result: Compiled) -> str:
    """A result in one line."""
    head = f"{result.name:44s} sm_{result.sm} {result.warps}w{result.stages}s {result.seconds:5.1f}s "
    code = result.code
    if code is None:
        return head + "; ".join(result.complaints)
    return (
        f"{head} REG {code.registers:3d} STACK {code.stack} LOCAL {code.local} MMA {code.mma} WGMMA {code.wgmma} "
        f"LD128 {code.wide_loads}/{code.loads} TMA {code.bulk_loads} SHARED {result.shared} INSTR {code.instructions} "
        f"{'; '.join(result.complaints) or 'ok'}"
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compile variants of Triton kernels and read their machine code.")
    parser.add_argument("ops", nargs="*", help=f"by default {' '.join(OPS)}")
    parser.add_argument("--sm", type=int, action="append", help="compute capability, such as 90; may be repeated")
    parser.add_argument("--name", default="", help="only variants whose name holds this text")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    words = parser.parse_args()
    for sm in words.sm or ARCHITECTURES:
        for variant in variants(words.ops or OPS, sm, words.name):
            result = compile_variant(variant, sm)
            print(json.dumps(asdict(result)) if words.json else line(result), flush=True)


if __name__ == "__main__":
    main()
