"""Every shipped variant compiles for sm_80 and sm_90 without a GPU, breaks no rule and keeps its limits on record."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

from . import limits

if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed: pip install triton", allow_module_level=True)
if importlib.util.find_spec("prismem_core.kernels") is None:
    pytest.skip("kernels/ is not installed: pip install -e .", allow_module_level=True)

aot = importlib.import_module("prismem_core.kernels.triton.aot")


@pytest.mark.parametrize("sm", aot.ARCHITECTURES)
@pytest.mark.parametrize("op", aot.OPS)
def test_variants_keep_their_limits(op: str, sm: int) -> None:
    results = aot.compile_all([op], [sm])
    assert results
    broken = {limits.key(result): result.complaints for result in results if result.complaints}
    assert broken == {}
    table = limits.on_record()
    assert {result.op for result in results} == {op}
    recorded = {name for name in table if name.startswith(f"{op}: ") and f" sm_{sm} " in name}
    assert {limits.key(result) for result in results} == recorded
    over = {
        limits.key(result): found
        for result in results
        if (found := limits.exceeded(limits.amounts(result), table[limits.key(result)]))
    }
    assert over == {}


def test_the_table_knows_no_other_op() -> None:
    assert {name.split(":")[0] for name in limits.on_record()} == set(aot.OPS)
