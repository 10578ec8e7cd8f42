"""An op is one stem everywhere: its contract, its C++ kernel and launcher, its test, its rows in the table."""

from __future__ import annotations

import re
from pathlib import Path

from prismem_core import ops

ROOT = Path(__file__).resolve().parents[2]
OPS = ROOT / "python" / "prismem_core" / "ops"
CSRC = ROOT / "csrc" / "ops"


def test_each_op_has_its_file_in_every_place() -> None:
    assert list(ops.OPS) == list(dict.fromkeys(name for name, _ in ops.IMPLEMENTATIONS))
    for name in ops.OPS:
        for path in (
            OPS / f"{name}.py",
            CSRC / f"{name}.cpp",
            CSRC / f"{name}_launch.cpp",
            ROOT / "tests" / "ops" / f"test_{name}.py",
        ):
            assert path.is_file(), f"op {name} lacks {path.relative_to(ROOT)}"


def test_each_op_has_its_rows_in_the_table() -> None:
    for name in ops.OPS:
        assert ops.IMPLEMENTATIONS[name, "cpu"] == f"prismem_core._native:{name}"
        assert ops.IMPLEMENTATIONS[name, "reference"] == f"prismem_core.ops.{name}:reference"


def test_no_kernel_is_without_an_op() -> None:
    launchers = {path.stem.removesuffix("_launch") for path in CSRC.glob("*_launch.cpp")}
    assert launchers == set(ops.OPS)
    listed = re.search(r"set\(PRISMEM_OPS ([^)]*)\)", (CSRC / "CMakeLists.txt").read_text(encoding="utf-8"))
    assert listed is not None
    assert sorted(listed[1].split()) == sorted(ops.OPS)
    binding = (ROOT / "csrc" / "python" / "bind_ops.cpp").read_text(encoding="utf-8")
    bound = set(re.findall(r'module\.def\("(\w+)"', binding)) - {"isas", "chosen_isa", "settings"}
    assert bound == set(ops.OPS)
