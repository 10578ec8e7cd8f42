"""`prismem kernels`: what the kernels for GPUs compile to, and which configurations suit a device."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from prismem_core.jobs.kernel_report import KernelRow

app = typer.Typer(help="Look at the kernels for GPUs: their machine code, the configurations of a device.")


@app.command("report")
def report_command(
    ops: Annotated[
        list[str] | None, typer.Argument(help="Ops, such as top_k; all by default.", show_default=False)
    ] = None,
    sm: Annotated[list[int] | None, typer.Option("--sm", help="Compute capability, 80 or 90; both by default.")] = None,
    name: Annotated[str, typer.Option("--name", help="Only variants whose name holds this text.")] = "",
    library: Annotated[
        Path | None, typer.Option("--library", help="Show the kernels of this CUDA library instead.", exists=True)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Compile every shipped variant and show registers, spills, tensor-core instructions, loads and shared memory.

    No GPU is needed, only triton. Exit code 1 if a variant breaks a rule (docs/gpu.md).
    """
    from prismem_core.jobs.kernel_report import library_rows, triton_rows

    rows = triton_rows(ops or [], sm or [], name) if library is None else library_rows(library)
    if as_json:
        for row in rows:
            print(json.dumps(asdict(row)))
    else:
        _show(rows)
    if any(row.verdict != "ok" for row in rows):
        raise typer.Exit(1)


@app.command("tune")
def tune_command(
    output: Annotated[Path, typer.Argument(help="File to write; an existing one is added to.", show_default=False)],
    ops: Annotated[
        list[str] | None, typer.Option("--op", help="A row of the table, such as top_k; may be repeated.")
    ] = None,
    kinds: Annotated[
        list[str] | None, typer.Option("--dtype", help="float32, float16 or bfloat16; may be repeated.")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="Stop after this time.", min=1)] = 900.0,
) -> None:
    """Measure configurations of the Triton kernels on this machine's GPU and write those that are faster than the
    checked-in ones; PRISMEM_KERNEL_TABLE=FILE uses them.
    """
    from prismem_core.errors import NoImplementation

    for needed in ("torch", "triton"):
        if importlib.util.find_spec(needed) is None:
            raise NoImplementation(
                f"kernels tune: {needed} is not installed; pip install 'prismem-core[gpu]' brings it"
            )
    from prismem_core.bench.device import tuning

    def tell(found: tuning.Tuned) -> None:
        sm, op, kind, dim, queries = found.key
        gain = found.seconds_before / found.seconds
        print(f"{op} {kind} d<={dim} queries<={queries} sm_{sm}: {gain:.2f}x after {found.tried} tries")

    count = tuning.run(output, ops or [], kinds or [], seconds, tell)
    print(f"{count} rows in {output}" if count else "nothing is faster than what is checked in; no file was written")


def _show(rows: list[KernelRow]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    heads = "kernel sm warps registers spills mma wgmma 128-bit bulk shared instructions verdict"
    table = Table(*heads.split())
    for row in rows:
        code = row.code
        if code is None:
            table.add_row(Text(row.name), str(row.sm), str(row.warps), *[""] * 8, Text(row.verdict))
            continue
        numbers = [
            code["registers"],
            code["stack"] + code["local"],
            code["mma"],
            code["wgmma"],
            f"{code['wide_loads']} of {code['loads']}",
            code["bulk_loads"],
            row.shared,
            code["instructions"],
        ]
        warps = str(row.warps) if row.warps else ""
        table.add_row(Text(row.name), str(row.sm), warps, *map(str, numbers), Text(row.verdict))
    console = Console()
    # A pipe has no width: the table is wide enough to be read afterwards.
    (console if console.is_terminal else Console(width=200)).print(table)
    sources = ", ".join(dict.fromkeys(row.source for row in rows)) or "nothing"
    broken = sum(row.verdict != "ok" for row in rows)
    print(f"{len(rows)} kernels from {sources}; {f'{broken} break a rule' if broken else 'none breaks a rule'}")
