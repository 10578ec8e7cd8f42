"""What the machine code of a kernel tells without a device: registers, spills, tensor-core and wide load instructions.

Works on any cubin, object or shared library that cuobjdump reads; the wheel of triton brings one.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from prismem_core.errors import NoImplementation

SHARED_LIMIT = {80: 163 * 1024, 86: 99 * 1024, 89: 99 * 1024, 90: 227 * 1024}
"""Bytes of shared memory that one block may have, by compute capability."""

REGISTER_LIMIT = 255
"""Registers that one thread may have."""


@dataclass(frozen=True)
class MachineCode:
    """One function of a compiled file.

    `registers` and `stack` (bytes) are per thread, `shared` (bytes) per block; the others count instructions of the
    listing: `local` those that touch the stack (LDL, STL), `mma` tensor-core instructions of a warp (HMMA, IMMA),
    `wgmma` those of a warp group (HGMMA, IGMMA), `wide_loads` LDG and LDGSTS of 128 bits, `bulk_loads` loads of the
    tensor memory accelerator (UTMALDG).
    """

    function: str
    sm: int
    registers: int
    stack: int
    shared: int
    instructions: int
    local: int
    mma: int
    wgmma: int
    loads: int
    wide_loads: int
    bulk_loads: int


_USAGE = re.compile(r"^\s*Function (\S+?):\s*\n(.*)$", re.MULTILINE)
_FUNCTION = re.compile(r"^\s*Function : (\S+)\s*$", re.MULTILINE)
_ARCHITECTURE = re.compile(r"^(?:arch = |\s*code for )sm_(\d+)", re.MULTILINE)
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)


def cuobjdump() -> str:
    """The path of cuobjdump: that of triton's wheel, else the one on PATH; NoImplementation where there is none."""
    spec = importlib.util.find_spec("triton")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        tool = Path(folder) / "backends" / "nvidia" / "bin" / "cuobjdump"
        if tool.is_file():
            return str(tool)
    found = shutil.which("cuobjdump")
    if found is None:
        raise NoImplementation("cuobjdump was not found; install triton, whose wheel brings it: pip install triton")
    return found


def read(path: Path) -> list[MachineCode]:
    """Every function of a cubin, object or library, in the order of the listing; `shared` is the static part.

    Raises NoImplementation where there is no cuobjdump, ValueError where it cannot read the file.
    """
    code = []
    listings = _by_architecture(_run("-sass", path))
    usages = _by_architecture(_run("-res-usage", path))
    for sm, listing in listings.items():
        # The usage of a lone cubin does not name its architecture.
        usage = _USAGE.findall(usages.get(sm, usages.get(0, "")))
        used = {name: dict(re.findall(r"\b([A-Z]+):(\d+)", line)) for name, line in usage}
        parts = _FUNCTION.split(listing)
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            code.append(_function(name, sm, used[name], _INSTRUCTION.findall(body)))
    if not code:
        raise ValueError(f"{path.name}: cuobjdump found no machine code in it")
    return code


def broken_rules(code: MachineCode, shared: int) -> Iterator[str]:
    """What no shipped kernel may do: spill, or ask for more than a block can have; `shared` is bytes a block."""
    if code.stack or code.local:
        yield f"spills: {code.stack} bytes of stack, {code.local} local loads and stores"
    if code.registers > REGISTER_LIMIT:
        yield f"{code.registers} registers a thread, at most {REGISTER_LIMIT}"
    if shared > SHARED_LIMIT.get(code.sm, shared):
        yield f"{shared} bytes of shared memory a block, at most {SHARED_LIMIT[code.sm]}"


def readable(function: str) -> str:
    """The name of a C++ kernel without its arguments and the namespaces of this project; as it is without c++filt."""
    tool = shutil.which("c++filt")
    if tool is None or not function.startswith("_Z"):
        return function
    name = subprocess.run([tool, function], capture_output=True, text=True).stdout.strip()
    name = re.sub(r"\(anonymous namespace\)::|_GLOBAL__N__\w+::|prismem::cuda::|^void ", "", name)
    return re.sub(r"\(.*\)$", "", name.replace("(int)", "")) or function


def _function(name: str, sm: int, used: Mapping[str, str], instructions: Iterable[str]) -> MachineCode:
    counts = Counter(instructions)

    def count(pattern: str) -> int:
        return sum(times for name, times in counts.items() if re.match(pattern, name))

    return MachineCode(
        function=name,
        sm=sm,
        registers=int(used["REG"]),
        stack=int(used["STACK"]),
        shared=int(used["SHARED"]),
        instructions=sum(counts.values()),
        local=count(r"(LDL|STL)\b"),
        mma=count(r"[HID]MMA\b"),
        wgmma=count(r"[HIQ]GMMA\b"),
        loads=count(r"LDG(STS)?\b"),
        wide_loads=count(r"LDG(STS)?\..*\b128\b"),
        bulk_loads=count(r"UTMALDG\b"),
    )


def _run(option: str, path: Path) -> str:
    done = subprocess.run([cuobjdump(), option, str(path)], capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{path.name}: cuobjdump {option} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout + done.stderr


def _by_architecture(text: str) -> dict[int, str]:
    """The text cut where that of another architecture begins; 0 for what stands before."""
    parts = _ARCHITECTURE.split(text)
    joined = {0: parts[0]}
    for sm, part in zip(parts[1::2], parts[2::2], strict=True):
        joined[int(sm)] = joined.get(int(sm), "") + part
    return joined
