"""Make the recorded example anew: `python -m tests.jobs.record_example`, from the root of the checkout.

A scripted server answers an evaluation whose calls are recorded.
"""

from __future__ import annotations

from pathlib import Path

from tests.scripted_server.fixture import ScriptedServer

from prismem_core.jobs.evaluation_job import evaluate_programs
from prismem_core.jobs.settings import load_job_settings

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "recorded"
PROGRAMS = ["seed", "bm25_rag"]
PORT = 8000


def record(folder: Path, target: Path) -> None:
    """Record the evaluation of `PROGRAMS` on the conversations in `folder`, from a server on `PORT`."""
    server = ScriptedServer()
    try:
        server.kill()
        server.port = PORT
        server.start()
        job, _ = load_job_settings(None, {"chat": server.model(), "embedder": "hashing", "record": str(target)}, {})
        evaluate_programs(PROGRAMS, str(folder / "conversations.jsonl"), None, "all", job)
    finally:
        server.stop()


if __name__ == "__main__":
    path = FOLDER / "evaluate.jsonl"
    path.unlink(missing_ok=True)
    record(FOLDER, path)
