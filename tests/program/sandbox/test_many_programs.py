"""Programs in a row, a third of them hostile: the sandbox holds no more after them than before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from attack_runs import HERE, UNCONFINED_KINDS
from processes import running

import prismem_core

ATTACKS = HERE.parents[1] / "attacks"


GROWTH_KIB = {"engine_kib": 12_000, "zygote_kib": 4_000}
"""What memory may grow from the first measurement to the last: an allocator's slack, a fraction of one worker."""


def hostile(*, quick: bool) -> dict[str, str]:
    """Attacks; `quick` leaves out those that a limit ends."""
    found = {}
    for path in sorted(ATTACKS.glob("*.py")):
        kind = path.stem.partition("_")[0]
        if kind != "ok" and not (quick and kind in UNCONFINED_KINDS):
            found[path.stem] = path.read_bytes().decode("utf-8", "surrogateescape")
    return found


@pytest.mark.parametrize(
    ("count", "every", "quick"),
    [(60, 20, True), pytest.param(1000, 50, False, marks=pytest.mark.soak)],
    ids=["60", "1000"],
)
def test_programs_in_a_row_leave_nothing(count: int, every: int, quick: bool, tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    paths = [str(Path(prismem_core.__file__).parent.parent), *(path for path in sys.path if path)]
    done = subprocess.run(
        [sys.executable, "-B", str(HERE / "many_programs.py"), str(folder), str(count)],
        input=json.dumps({"programs": hostile(quick=quick), "every": every}),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0
    *measured, last = map(json.loads, done.stdout.splitlines())
    for line in measured:
        print(line)
    assert last == {"finished": True, "processes": 0}
    assert [line["done"] for line in measured] == list(range(every, count + 1, every))
    assert measured[-1]["wrong"] == []
    # The zygote lived through all of them, and ended with the sandbox.
    assert {tuple(line["zygote"]) for line in measured} == {tuple(measured[0]["zygote"])}
    assert not running(set(measured[0]["zygote"]))
    assert {line["processes"] for line in measured} == {0}
    assert {line["descriptors"] for line in measured} == {measured[0]["descriptors"]}
    for name, most in GROWTH_KIB.items():
        assert max(line[name] for line in measured) - measured[0][name] <= most, name
    assert sorted(path.name for path in folder.rglob("*")) == ["canaries", "canary.txt"]
