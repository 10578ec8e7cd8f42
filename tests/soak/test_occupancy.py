"""A LoCoMo evaluation on a server with a second of latency: full slots, an engine out of the way, flat memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scripted_server.fixture import own_server

__all__ = ["own_server"]

pytestmark = pytest.mark.soak

SLOTS = 64
LATENCY_SECONDS = 1.0


def resident_mb(process: int) -> float:
    """Resident memory of a process; 0 where it has ended."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("VmRSS")), 0.0)


@pytest.mark.parametrize("judged", [False, True], ids=["lexical", "judged"])
def test_slots_are_full_and_the_engine_is_out_of_the_way(  # type: ignore[no-untyped-def]
    own_server, data_dir: Path, tmp_path: Path, judged: bool
) -> None:
    own_server.play(default={"latency": LATENCY_SECONDS})
    own_server.keep_bodies(False)
    command = [sys.executable, "-m", "prismem_core", "evaluate", "seed", "--data", str(data_dir / "locomo")]
    # A cache in memory would grow with what it holds.
    command += ["--cache", str(tmp_path / "cache")]
    command += ["--part", "all", "--json", "--chat", own_server.model(), "--embedder", own_server.model("rows")]
    command += ["--judge", own_server.model()] if judged else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    memory: list[float] = []
    while process.poll() is None and not _ended(process):
        memory.append(resident_mb(process.pid))
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    result = json.loads(output)
    total = result["timing"]["total"]
    print(
        json.dumps(result["timing"], indent=1), f"{max(memory):.0f} MB at most", own_server.state["peak"], "at a time"
    )
    assert result["programs"]["seed"]["scored"] == 1157
    assert total["occupancy"] >= 0.9
    assert total["own_share"] <= 0.1
    assert own_server.state["peak"] <= SLOTS
    # Modules for scoring are loaded late; beyond them a run holds what it has to hold: replies and retrieved texts.
    settled = max(memory[: max(1, len(memory) // 2)])
    assert max(memory) <= settled + 96
    assert result["models"]["total"]["input_tokens"] == own_server.totals["prompt_tokens"]
    assert result["models"]["total"]["output_tokens"] == own_server.totals["completion_tokens"]


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process ended within a second."""
    try:
        process.wait(1.0)
    except subprocess.TimeoutExpired:
        return False
    return True
