"""The scripted server as a test sees it: started, told what to play, asked what it received, killed and restarted."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
_PATIENCE = 60.0


class ScriptedServer:
    """A server process on 127.0.0.1. `log_path` keeps what it received over kills and restarts."""

    def __init__(self, log_path: Path | None = None) -> None:
        self.port = 0
        self.log_path = log_path
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """What clients take as base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    def model(self, name: str = "scripted") -> str:
        """The specification of a model here, as roles take it."""
        return f"openai:{name}@{self.url}"

    def start(self) -> None:
        """Start the process, on the port of before if it was killed; its script is the default again."""
        command = [sys.executable, "-m", "tests.scripted_server", "--port", str(self.port)]
        if self.log_path is not None:
            command += ["--log", str(self.log_path)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.strip(), "the scripted server did not start"
        self.port = int(line)

    def kill(self) -> None:
        """End the process at once, connections and all."""
        assert self.process is not None
        self.process.kill()
        self._reap()

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.kill()

    def play(
        self,
        *rules: Mapping[str, Any],
        default: Mapping[str, Any] | None = None,
        rate: Mapping[str, float] | None = None,
        outage: Mapping[str, Any] | None = None,
    ) -> None:
        """Play a script from now on: rules such as `{"purpose": "extract", "times": 2, "do": {"status": 503}}`
        (`behaviour.Rule`, `behaviour.Behaviour`), the default behaviour, a rate limit (`per_second`, `burst`) and an
        outage of `seconds` from the next request on, or `after` so many.
        """
        self._control("script", {"rules": list(rules), "default": default or {}, "rate": rate, "outage": outage})

    def clear(self) -> None:
        """Forget what was received and counted so far."""
        self._control("clear")

    def reset(self) -> None:
        """Play well again, and forget."""
        self.play()
        self.clear()

    def release(self) -> None:
        """Let the requests that a behaviour holds go on."""
        self._control("release")

    def wait(self, arrived: int = 0, under_way: int = 0) -> None:
        """Return when so many requests have come and at least so many are under way."""
        self._control("wait", {"arrived": arrived, "under_way": under_way})

    def keep_bodies(self, keep: bool) -> None:
        """Whether requests are logged; turn it off for thousands of them."""
        self._control("keep", {"bodies": keep})

    @property
    def log(self) -> list[dict[str, Any]]:
        """The requests since the last `clear`, in the order of arrival."""
        found: list[dict[str, Any]] = self._control("log")
        return found

    def requests(self, endpoint: str = "chat", purpose: str = "") -> list[dict[str, Any]]:
        """The logged requests to an endpoint, of one purpose if it is given."""
        return [e for e in self.log if e["endpoint"] == endpoint and purpose in ("", e["purpose"])]

    @property
    def state(self) -> dict[str, Any]:
        """`totals` and `counters` (a model and endpoint), `arrived`, `under_way` and `peak`."""
        found: dict[str, Any] = self._control("state")
        return found

    @property
    def totals(self) -> dict[str, int]:
        """The server's own token counters, over all models."""
        found: dict[str, int] = self.state["totals"]
        return found

    def metrics(self) -> dict[str, float]:
        """The numbers of /metrics by name, summed over labels."""
        lines = self._get("/metrics").decode().splitlines()
        found: dict[str, float] = {}
        for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#")):
            found[name.split("{")[0]] = found.get(name.split("{")[0], 0.0) + float(value)
        return found

    def logged_on_disk(self) -> list[dict[str, Any]]:
        """The requests that ended, over all lives of the server."""
        assert self.log_path is not None
        lines: Sequence[str] = self.log_path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def _control(self, name: str, given: Any = None) -> Any:
        return json.loads(self._get(f"/control/{name}", json.dumps(given or {}).encode()))

    def _get(self, path: str, body: bytes | None = None) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        try:
            connection.request("POST" if body is not None else "GET", path, body)
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status == 200, content.decode()
            return content
        finally:
            connection.close()

    def _reap(self) -> None:
        assert self.process is not None
        self.process.wait(_PATIENCE)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self.process = None


@pytest.fixture(scope="module")
def server_process() -> Iterator[ScriptedServer]:
    """One server process for the tests of a module."""
    pytest.importorskip("uvicorn")
    server = ScriptedServer()
    yield server
    server.stop()


@pytest.fixture
def scripted_server(server_process: ScriptedServer) -> ScriptedServer:
    """A server that plays well and has received nothing."""
    server_process.reset()
    return server_process


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ScriptedServer]:
    """A server of the test's own, which may be killed; its log is kept on disk."""
    pytest.importorskip("uvicorn")
    server = ScriptedServer(tmp_path / "server.jsonl")
    yield server
    server.stop()
