"""The table of floors in docs/gpu.md is the one that bench/floors.py computes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from prismem_core.bench import floors

DOCS = Path(__file__).resolve().parents[2] / "docs" / "gpu.md"


def test_the_table_is_the_computed_one() -> None:
    text = DOCS.read_text(encoding="utf-8")
    found = re.search(r"<!-- floors -->\n(.*?)<!-- /floors -->", text, re.DOTALL)
    assert found is not None
    assert found[1] == floors.markdown(), "write it anew with: python -m bench.floors"


@pytest.mark.parametrize(
    ("work", "gpu", "milliseconds", "bound"),
    [
        (floors.top_k(1, 10**6, 1024, 100), floors.A100, 1.00, "bytes"),
        (floors.top_k(64, 10**6, 1024, 100), floors.H200, 0.43, "bytes"),
        (floors.top_k(1024, 10**6, 1024, 100), floors.A100, 6.72, "operations"),
        (floors.top_k(1024, 10**6, 4096, 100), floors.H200, 8.48, "operations"),
        (floors.mmr_select(256, 200, 1024, 25), floors.A100, 0.052, "bytes"),
        (floors.segment_max_similarity(10**4, 3, 102.5, 4096, 1), floors.H200, 5.3, "bytes"),
        (floors.segment_max_similarity(10**4, 3, 102.5, 4096, 16), floors.A100, 0.81, "bytes"),
    ],
)
def test_floors_worked_out_by_hand(work: floors.Work, gpu: floors.Gpu, milliseconds: float, bound: str) -> None:
    assert work.seconds(gpu) * 1e3 == pytest.approx(milliseconds, rel=0.02)
    assert work.bound(gpu) == bound


def test_codes_of_eight_bits_cannot_take_less_than_half_of_the_rows_time() -> None:
    rows = floors.top_k(1, 10**6, 1024, 100)
    eight, four = (floors.top_k_codes(10**6, 1024, 10, bits) for bits in (8, 4))
    for gpu in (floors.A100, floors.H200):
        assert eight.seconds(gpu) > 0.5 * rows.seconds(gpu)
        assert four.seconds(gpu) < 0.3 * rows.seconds(gpu)


def test_every_number_of_a_device_is_marked() -> None:
    """No row of the goals claims a device's number without a record in bench/results."""
    text = DOCS.read_text(encoding="utf-8")
    rows = re.findall(r"^\| .* \| (.*) \|$", text[text.index("| number | goal | from a device |") :], re.MULTILINE)[2:]
    assert len(rows) == 9
    results = DOCS.parents[1] / "bench" / "results"
    devices = [path for path in results.glob("*.jsonl") if '"part": "timing"' in path.read_text(encoding="utf-8")]
    assert devices or set(rows) == {"not measured"}
