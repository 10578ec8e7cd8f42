"""The extension module links the C++ runtime and no other: an OpenMP or BLAS of its own would meet that of numpy."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from prismem_core import _native


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs readelf")
def test_no_second_runtime_is_linked() -> None:
    listing = subprocess.run(["readelf", "-d", _native.__file__], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.+?)\]", listing)
    assert needed
    known = r"lib(stdc\+\+|gcc_s|m|c|pthread|dl|rt)\.so(\.\d+)*|ld-linux.*"
    assert [name for name in needed if not re.fullmatch(known, name)] == []


THREADS = """
import numpy as np
{first}
from prismem_core import ops
rng = np.random.default_rng(0)
keys = rng.standard_normal((20000, 64), dtype=np.float32)
found = ops.top_k(keys[:4], keys, 5, normalize=True)
(keys @ keys[:100].T).sum()
{second}
again = ops.top_k(keys[:4], keys, 5, normalize=True)
assert (again.indices == found.indices).all() and (again.scores == found.scores).all()
print(found.indices[:, 0].tolist())
"""


WORK = {
    "faiss": "import faiss; rows = np.eye(8, dtype=np.float32); i = faiss.IndexFlatIP(8); i.add(rows)",
    "torch": "import torch; torch.randn(500, 500) @ torch.randn(500, 500)",
}


@pytest.mark.parametrize("library", list(WORK))
@pytest.mark.parametrize("order", ["before", "after"])
def test_results_do_not_change_beside_a_library_with_an_openmp_of_its_own(library: str, order: str) -> None:
    pytest.importorskip(library)
    work = WORK[library]
    first, second = (work, "") if order == "before" else ("", work)
    done = subprocess.run(
        [sys.executable, "-c", THREADS.format(first=first, second=second)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0, 1, 2, 3]\n"
