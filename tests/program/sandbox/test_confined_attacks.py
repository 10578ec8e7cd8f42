"""Attack programs run without the static check: each ends as its header says, by the layers of docs/security.md."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from prismem_core.errors import CandidateError
from prismem_core.program import library
from prismem_core.program.sandbox import Limits, Sandbox

# Kinds whose outcome the process, its limits and the engine's own measuring guarantee.
COVERED = {"backend", "cheat", "cpu", "exit", "mem", "ok", "out", "schema", "source", "state", "time"}

# Kinds that need a confinement by the kernel. A program of no known kind goes by its header: what asks for more than
# that its attempt fails is for the process and its limits, too.
KERNEL = {"ctypes", "env", "eval", "file", "format", "frame", "getattr", "import", "net", "proc", "secret", "unicode"}

# Of these, the following are stopped already and must stay so.
STOPPED = {
    "ctypes_exec_memory",
    "ctypes_numpy_ctypeslib",
    "env_os_environ",
    "env_proc_self",
    "eval_exec_compile",
    "file_codecs_through_json",
    "file_list_root",
    "file_numpy_fromfile",
    "file_numpy_load",
    "file_open_builtin",
    "file_subclasses_walk",
    "file_write_tofile",
    "format_string_attributes",
    "frame_walk_generator",
    "getattr_joined_name",
    "getattr_methodcaller",
    "import_dunder",
    "import_os",
    "import_through_globals",
    "net_tcp_connect",
    "net_urllib",
    "proc_many_forks",
    "proc_signal_handlers",
    "proc_subprocess",
    "proc_threads",
    "secret_eval_modules",
    "secret_gc_scan",
    "unicode_identifier",
}
STOPPED_WITH_OWN_USER = {"file_chmod", "proc_signal_engine"}

LIMITS = Limits(
    index_cpu_seconds=1.0,
    index_wall_seconds=8.0,
    retrieve_cpu_seconds=2.0,
    retrieve_wall_seconds=8.0,
    memory_bytes=512 << 20,
    retrieve_embed_texts=200,
)


@dataclass
class Canaries:
    """Things an attack may reach for, and traces it would leave."""

    folder: Path
    raw_text: str
    arrived: list[str] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.folder / "canary.txt"

    def traces(self) -> list[str]:
        found = list(self.arrived)
        found += [f"file {path.name}" for path in self.folder.iterdir() if path != self.file]
        if self.file.stat().st_mode & 0o777 != 0o666:
            found.append("mode of the canary file")
        return found


@pytest.fixture
def canaries(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Canaries]:
    folder = tmp_path_factory.mktemp("canaries")
    folder.chmod(0o777)
    tcp = socket.create_server(("127.0.0.1", 0))
    port = tcp.getsockname()[1]
    lines = {
        "canary_file": folder / "canary.txt",
        "canary_dir": folder,
        "canary_port": port,
        "canary_unix": "none",
        "engine_pid": os.getpid(),
    }
    found = Canaries(folder, "\n".join(f"{name}={value}" for name, value in lines.items()))
    found.file.write_text("CANARY-in-a-file\n")
    found.file.chmod(0o666)
    monkeypatch.setenv("CANARY_SECRET", "CANARY-in-the-environment")

    def listen() -> None:
        while True:
            try:
                connection, _ = tcp.accept()
            except OSError:
                return
            found.arrived.append("a connection")
            connection.close()

    before = signal.signal(signal.SIGUSR1, lambda *_: found.arrived.append("a signal"))
    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield found
    finally:
        signal.signal(signal.SIGUSR1, before)
        tcp.shutdown(socket.SHUT_RDWR)
        tcp.close()
        listener.join(5)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "attack" in metafunc.fixturenames:
        files = sorted(Path(metafunc.config.getoption("--attacks-dir")).glob("*.py"))
        metafunc.parametrize("attack", files, ids=[path.stem for path in files])


@pytest.mark.parametrize("names", ["restricted", "all"])
def test_an_attack_ends_as_its_header_says(
    attack: Path, names: str, request: pytest.FixtureRequest, backend: object, canaries: Canaries
) -> None:
    source = attack.read_bytes().decode("utf-8", "surrogateescape")
    header = re.search(r"^# runtime:(.*)$", source, re.MULTILINE)
    assert header, f"{attack.name} has no line '# runtime:'"
    wanted = {word.strip() for word in header[1].split(",")}
    _skip_if_not_covered(attack.stem, wanted)
    chosen: Sandbox = request.getfixturevalue("sandbox" if names == "restricted" else "bare_sandbox")
    outcomes, told = _run(chosen, source, backend, canaries)
    if names == "restricted":
        # The import or name that the attack starts with is refused before it gets further.
        wanted |= {"contained"}
    assert outcomes & wanted, f"{attack.stem} ended as {sorted(outcomes)}: {told}; wanted {sorted(wanted)}"
    assert not canaries.traces()
    assert "CANARY-" not in told
    # A failure may show the line of source that failed, which speaks of a leak in any case.
    assert outcomes & {"error"} or "LEAK:" not in told


def _skip_if_not_covered(stem: str, wanted: set[str]) -> None:
    kind = stem.partition("_")[0]
    if kind in COVERED or stem in STOPPED or (kind not in KERNEL and "contained" not in wanted):
        return
    if stem in STOPPED_WITH_OWN_USER and os.geteuid() == 0:
        return
    pytest.skip("needs a confinement by the kernel, which docs/security.md lists as not covered")


def _run(sandbox: Sandbox, source: str, backend: object, canaries: Canaries) -> tuple[set[str], str]:
    """Every word of attacks/README.md that describes how the run ended, and what was returned or told."""
    units = [{"memory_text": f"unit {number} other"} for number in range(10)]
    try:
        with sandbox.open(source, backend, LIMITS) as worker:  # type: ignore[arg-type]
            worker.index(units, canaries.raw_text)
            queries = ("first question", "second question", "first question")
            results = [worker.retrieve({"query_text": text})[0] for text in queries]
    except CandidateError as error:
        told = str(error)
        if error.kind == "error":
            return {"error", "contained"}, told
        # A breach of the protocol ends the process, as a death does.
        return ({"protocol", "died"} if error.kind == "protocol" else {error.kind}), told
    told = "\n".join(results)
    if results[-1].startswith("BLOCKED:"):
        return {"contained"}, told
    if results[0] == results[2]:
        return {"ok", "isolated", "independent"}, told
    return {"ok", "isolated"}, told


def test_the_engine_and_a_new_worker_go_on_after_attacks(sandbox: Sandbox, backend: object) -> None:
    with sandbox.open(library.source("seed"), backend) as worker:  # type: ignore[arg-type]
        worker.index([{"memory_text": "unit 0 other"}], "")
        assert "unit 0 other" in worker.retrieve({"query_text": "unit"})[0]
