"""The checked-in limits of each variant, and what a compiled one may not exceed; run as a script, it writes them.

    python -m tests.kernels.aot.limits            # limits that hold for what is on record and for the triton installed
    python -m tests.kernels.aot.limits --anew     # for the triton installed alone

A limit holds at every version of triton that the checks use: registers and shared memory are the most of all of them,
rounded up to what the hardware hands out, instructions the least.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("table.json")
AT_MOST = {"registers": 8, "shared": 1024}
AT_LEAST = ("mma", "wgmma", "wide_loads", "bulk_loads")


def on_record() -> dict[str, dict[str, int]]:
    """Limits by "op: name sm_90"."""
    table: dict[str, dict[str, int]] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table


def key(result: Any) -> str:
    """The name of a compiled variant in the table, which begins with its op."""
    name = result.name.removeprefix(result.op).lstrip(" /")
    return f"{result.op}: {name} sm_{result.sm} {result.warps}w{result.stages}s"


def amounts(result: Any) -> dict[str, int]:
    """What the limits of a compiled variant speak of."""
    return amounts_of(result.code, result.shared)


def amounts_of(code: Any, shared: int) -> dict[str, int]:
    """What limits speak of."""
    return {"shared": shared} | {name: getattr(code, name) for name in ("registers", *AT_LEAST)}


def exceeded(found: dict[str, int], limits: dict[str, int]) -> list[str]:
    """Each limit that does not hold, in words."""
    over = [f"{name}: {found[name]}, at most {limits[name]}" for name in AT_MOST if found[name] > limits[name]]
    return over + [f"{name}: {found[name]}, at least {limits[name]}" for name in AT_LEAST if found[name] < limits[name]]


def joined(found: dict[str, int], before: dict[str, int] | None) -> dict[str, int]:
    """Limits that hold for what was found and for those before."""
    limits = {name: -(-found[name] // step) * step for name, step in AT_MOST.items()}
    limits |= {name: found[name] for name in AT_LEAST}
    if before is not None:
        limits = {name: (max if name in AT_MOST else min)(value, before[name]) for name, value in limits.items()}
    return limits


def main() -> None:
    """Write the table."""
    from prismem_core.kernels.triton.aot import compile_all

    before = {} if "--anew" in sys.argv[1:] or not TABLE.is_file() else on_record()
    results = compile_all()
    if broken := [f"{key(result)}: {'; '.join(result.complaints)}" for result in results if result.complaints]:
        sys.exit("no limits for variants that break a rule:\n" + "\n".join(broken))
    table = {key(result): joined(amounts(result), before.get(key(result))) for result in results}
    write(TABLE, table)
    print(f"{len(table)} variants in {TABLE.name}")


def write(path: Path, table: dict[str, dict[str, int]]) -> None:
    """One line a kernel, so that a change shows as one."""
    lines = [f"  {json.dumps(name)}: {json.dumps(limits)}" for name, limits in table.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
