"""A server that is killed in the middle of a run and started again: the run goes on, and nothing is paid twice."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from prismem_core.errors import RoleError
from tests.faults.conftest import Evolution, evaluate_talks
from tests.scripted_server.fixture import ScriptedServer


def answered(server: ScriptedServer) -> Counter[str]:
    """How often each request of the pipeline was answered, over all lives of the server."""
    entries = [e for e in server.logged_on_disk() if e["delivered"] and e["purpose"] in ("extract", "plan", "answer")]
    return Counter(json.dumps(e["body"], sort_keys=True) for e in entries)


class Killed:
    """Kills a server once so many requests have come and some are under way, while `work` runs beside."""

    def __init__(self, server: ScriptedServer, work: Any) -> None:
        self.failure: BaseException | None = None
        self._server = server
        self._thread = threading.Thread(target=self._run, args=(work,))
        self._thread.start()

    def at(self, arrived: int, under_way: int) -> None:
        """Kill the server then."""
        self._server.wait(arrived=arrived, under_way=under_way)
        self._server.kill()

    def join(self) -> None:
        """Wait for the work."""
        self._thread.join(180)
        assert not self._thread.is_alive()

    def _run(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:
            self.failure = error


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_evaluation_waits_for_a_server_that_comes_back(
    own_server: ScriptedServer, talks: Path, tmp_path: Path, stream: bool
) -> None:
    task = {"model": own_server.model(), "concurrency": 2, "retries": 30, "stream": stream, "structured": "json_schema"}
    expected = evaluate_talks(talks, task=task)
    own_server.play({"skip": 4, "do": {"hold": True}})
    own_server.clear()
    before = len(own_server.logged_on_disk())
    got: list[dict[str, Any]] = []
    killed = Killed(own_server, lambda: got.append(evaluate_talks(talks, task=task)))
    killed.at(arrived=6, under_way=2)
    own_server.start()
    killed.join()
    assert killed.failure is None
    assert got[0]["programs"] == expected["programs"]
    later = own_server.logged_on_disk()[before:]
    tokens = [sum(e[name] for e in later if e["delivered"]) for name in ("prompt_tokens", "completion_tokens")]
    total = got[0]["models"]["total"]
    assert [total["input_tokens"], total["output_tokens"]] == tokens


def test_a_run_resumes_with_a_server_that_was_gone(own_server: ScriptedServer, talks: Path, tmp_path: Path) -> None:
    evolution = Evolution(own_server, talks, tmp_path / "run")
    task = {"concurrency": 2, "retries": 1, "structured": "json_schema"}
    evolution.start(models={"task": task})
    journal = evolution.journal()
    whole = answered(own_server)
    paused = evolution.another()
    for arrived in (3, 9):
        own_server.clear()
        own_server.play({"skip": arrived, "do": {"hold": True}})
        first = not paused.directory.exists()
        killed = Killed(own_server, (lambda: paused.start(models={"task": task})) if first else paused.resume)
        killed.at(arrived=arrived + 1, under_way=1)
        killed.join()
        assert isinstance(killed.failure, RoleError)
        own_server.start()
    paused.resume()
    assert paused.journal() == journal
    both = answered(own_server)
    # Both runs asked the same, and each asked it once.
    assert {body: count * 2 for body, count in whole.items()} == dict(both)
    report = paused.report()["models"]["roles"]["chat"]
    assert report["calls"] == sum(whole.values())
