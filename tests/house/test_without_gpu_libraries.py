"""Everything but the kernels of GPUs works whether torch and triton are there or not, and with no driver."""

from __future__ import annotations

import pytest
from tests.house.absent import installed, run_without

HIDDEN = [
    pytest.param(("torch", "triton", "cupy"), id="neither"),
    pytest.param(("triton", "cupy"), id="torch alone"),
    pytest.param(("torch", "cupy"), id="triton alone"),
    pytest.param((), id="all that is installed"),
]

WORKS = """
import importlib, pkgutil
import numpy as np
import prismem_core
from prismem_core import VectorIndex, ops
rows = np.eye(4, 8, dtype=np.float32)
assert ops.top_k(rows[2:3], rows, 1).indices.tolist() == [[2]]
index = VectorIndex(8)
index.add(rows)
assert index.search(rows[1:2], 1).ids.tolist() == [[1]]
for name in [*prismem_core._HOMES, "ops", "errors"]:
    getattr(prismem_core, name)
names = [m.name for m in pkgutil.walk_packages(prismem_core.__path__, "prismem_core.")]
# An editable install shows the whole checkout below the package, and the CUDA library beside its launchers.
names = [name for name in names if ".libprismem" not in name and not name.startswith("prismem_core.tests")]
for name in names:
    if not name.endswith("__main__") and ".library." not in name and ".kernels.triton." not in name:
        importlib.import_module(name)
import sys
print(sorted({"torch", "triton", "cupy"} & set(sys.modules)))
"""


@pytest.mark.parametrize("hidden", HIDDEN)
def test_everything_but_the_kernels_works(hidden: tuple[str, ...]) -> None:
    assert run_without(hidden, WORKS) == "[]\n", "and none of them is imported unasked"


REFUSED = """
import numpy as np
from prismem_core import VectorIndex
from prismem_core.errors import ArgumentError, NoImplementation
for call in (
    lambda: VectorIndex(3, device="cuda"),
    lambda: VectorIndex.load("absent", device="cuda:0"),
    lambda: VectorIndex.open("absent", device="cuda:0"),
):
    try:
        call()
    except NoImplementation as error:
        print(error)
try:
    VectorIndex(3, device="gpu")
except ArgumentError:
    print("refused")
"""


@pytest.mark.parametrize("hidden", HIDDEN)
def test_an_index_on_a_device_says_what_is_missing(hidden: tuple[str, ...]) -> None:
    lines = run_without(hidden, REFUSED, CUDA_VISIBLE_DEVICES="").splitlines()
    assert len(lines) == 4
    assert lines[3] == "refused"
    for line in lines[:3]:
        if "torch" in hidden or not installed("torch"):
            assert "are held through torch, which cannot be imported" in line
            assert "install torch with CUDA, or leave out device" in line
        else:
            assert "no rows can be held on cuda" in line
            assert "`prismem doctor` says more" in line


CHOSEN = """
import numpy as np
from prismem_core import ops
from prismem_core.errors import NoImplementation

class Tensor:
    shape = (3, 4)
    def __dlpack_device__(self):
        return (2, 0)

Tensor.__module__ = "torch"
try:
    ops.top_k(Tensor(), Tensor(), 1)
except NoImplementation as error:
    print(error)
try:
    with ops.use("triton"):
        ops.top_k(np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32), 1)
except NoImplementation as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("hidden", "words"),
    [
        (("torch", "triton", "cupy"), "triton is not installed"),
        (("triton",), "triton is not installed"),
        (("torch",), "torch is not installed" if installed("triton") else "triton is not installed"),
    ],
    ids=["neither", "no triton", "no torch"],
)
def test_an_op_over_arrays_of_a_device_says_what_is_missing(hidden: tuple[str, ...], words: str) -> None:
    lines = run_without(hidden, CHOSEN).splitlines()
    assert len(lines) == 2
    assert all("top_k: no implementation for" in line and words in line for line in lines), lines
    assert "install what is missing or move the arrays" in lines[0]


NO_CORE = """
import sys
import numpy as np
from prismem_core.errors import NoImplementation

class NoCore:
    def find_spec(self, name, path=None, target=None):
        if name == "prismem_core._native":
            raise ImportError("made for another Python")

sys.meta_path.insert(0, NoCore())
from prismem_core.index import LexicalIndex, VectorIndex
for make in (lambda: VectorIndex(4), LexicalIndex):
    try:
        make()
    except NoImplementation as error:
        assert "the C++ core could not be loaded (made for another Python)" in str(error), error
        print("refused")
{more}
"""

ON_A_DEVICE = """
import tempfile
from tests.kernels.index.stand_ins import index_on_device
index = index_on_device(4)
index.add(np.eye(4, dtype=np.float32))
index.remove([0])
assert index.search(np.eye(4, dtype=np.float32), 1, filter=[1, 2]).ids[:3].tolist() == [[1], [1], [2]]
with tempfile.TemporaryDirectory() as folder:
    index.save(folder + "/index")
    print(len(open(folder + "/index", "rb").read()))
"""


def test_without_the_core_an_index_on_a_device_works() -> None:
    device = installed("torch")
    output = run_without((), NO_CORE.replace("{more}", ON_A_DEVICE if device else ""))
    assert output.split() == ["refused", "refused", *(["12288"] if device else [])]
