"""A vLLM server in its own process group: started, asked for its counters, killed and started again on its port."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

SURROUNDINGS = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "2",
}
_PATIENCE_SECONDS = 600.0
_COUNTER = re.compile(r"^(vllm:\w+)(?:\{[^}]*\})?\s+(\S+)$", re.MULTILINE)


class VLLMServer:
    """`vllm.entrypoints.openai.api_server` on 127.0.0.1, ready when the constructor returns."""

    def __init__(self, directory: Path, name: str, *, pooling: bool = False, max_model_len: int | None = None) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.name = name
        structured = '{"backend":"xgrammar","disable_any_whitespace":true}'
        self._command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(directory)]
        self._command += ["--served-model-name", name, "--host", "127.0.0.1", "--port", str(self.port)]
        self._command += ["--enforce-eager", "--dtype", "float32", "--max-num-seqs", "64"]
        self._command += ["--runner", "pooling"] if pooling else ["--structured-outputs-config", structured]
        # vLLM's CPU worker ends when a call has a seed and its prompt is read in chunks.
        self._command += [] if pooling else ["--no-enable-chunked-prefill"]
        self._command += ["--max-model-len", str(max_model_len)] if max_model_len else []
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the server)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """What clients take as base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def model(self) -> str:
        """The model as roles take it."""
        return f"openai:{self.name}@{self.url}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._process = subprocess.Popen(
            self._command,
            stdout=self._log,
            stderr=self._log,
            env=os.environ | SURROUNDINGS,
            start_new_session=True,
        )
        end = time.monotonic() + _PATIENCE_SECONDS
        while self._process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(urllib.error.URLError, OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5)
                return
            time.sleep(0.5)
        self._log.seek(0)
        said = self._log.read().decode("utf-8", "replace")[-3000:]
        self.kill()
        raise AssertionError(f"the vLLM server did not start: {said}")

    def kill(self) -> None:
        """End it at once, with all its processes."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    stop = kill

    def counters(self) -> dict[str, float]:
        """The sums of vLLM's counters by name."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            text = answer.read().decode("utf-8")
        found: dict[str, float] = {}
        for name, value in _COUNTER.findall(text):
            found[name] = found.get(name, 0.0) + float(value)
        return found

    def tokens(self) -> tuple[int, int]:
        """Tokens read and written since it was started."""
        counters = self.counters()
        return int(counters["vllm:prompt_tokens_total"]), int(counters["vllm:generation_tokens_total"])
