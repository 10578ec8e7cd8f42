"""Fetching from a server of one's own: resuming, hashes, the lock, and one line for whatever goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from prismem_core.digests import digest_bytes
from prismem_core.errors import DataError
from prismem_core.jobs import data_fetch
from prismem_core.jobs.data_doctor import examine_data
from prismem_core.jobs.data_fetch import fetch, location
from prismem_core.jobs.data_lock import LOCK_NAME, read_lock
from prismem_core.tasks.datasets.locations import LOCATIONS, Location, PublicFile, check_known
from prismem_core.tasks.datasets.sample import SAMPLE_PATH

DATA = SAMPLE_PATH.read_bytes()
SHA256 = digest_bytes(DATA)
HALF = len(DATA) // 2


class Server(ThreadingHTTPServer):
    """Serves DATA; `cuts` says after how many bytes each of the next answers breaks off."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.cuts: list[int] = []
        self.status = 200
        self.body = DATA
        self.ranges = True
        self.asked: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        self.server.asked.append((self.path, wanted))
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.ranges else 0
        if self.server.status != 200:
            self.send_error(self.server.status)
            return
        body = self.server.body[start:]
        if wanted and self.server.ranges:
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(self.server.body) - 1}/{len(self.server.body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = self.server.cuts.pop(0) if self.server.cuts else len(body)
        self.wfile.write(body[:cut])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(data_fetch, "_PAUSE_SECONDS", 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def place(url: str, sha256: str | None = SHA256, size: int | None = len(DATA)) -> Location:
    return Location("mine", "x", "r" * 40, "MIT", (PublicFile("mine.jsonl", f"{url}/at/mine.jsonl", sha256, size),))


def test_a_file_is_fetched_once_and_checked(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    (first,) = fetch(place(server.url), tmp_path / "a", on_progress=lambda *step: seen.append(step))
    assert (first.path.read_bytes(), first.state, first.pinned) == (DATA, "fetched", True)
    assert seen[-1] == ("mine.jsonl", len(DATA), len(DATA))
    (again,) = fetch(place(server.url), tmp_path / "a")
    assert (again.state, server.asked) == ("present", [("/at/mine.jsonl", "")])
    assert read_lock(tmp_path / "a")["mine.jsonl"]["sha256"] == SHA256
    assert {path.name for path in (tmp_path / "a").iterdir()} <= {"mine.jsonl", LOCK_NAME, ".prismem-fetch.lock"}
    assert examine_data([tmp_path / "a"]).exit_code == 0


def test_a_lost_connection_is_gone_on_with(server: Server, tmp_path: Path) -> None:
    server.cuts = [HALF, 10]
    fetch(place(server.url), tmp_path)
    assert [wanted for _, wanted in server.asked] == ["", f"bytes={HALF}-", f"bytes={HALF + 10}-"]
    assert (tmp_path / "mine.jsonl").read_bytes() == DATA


def test_a_stopped_fetch_is_gone_on_with_later(server: Server, tmp_path: Path) -> None:
    server.cuts = [1000] * 10
    with pytest.raises(
        DataError, match=r"could not be fetched whole from 127\.0\.0\.1:.* fetch again to go on"
    ) as error:
        fetch(place(server.url), tmp_path)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "mine.jsonl").exists()
    server.cuts = []
    fetch(place(server.url), tmp_path)
    assert server.asked[-1][1] == "bytes=4000-"
    assert (tmp_path / "mine.jsonl").read_bytes() == DATA


def test_a_server_without_ranges_starts_anew(server: Server, tmp_path: Path) -> None:
    server.cuts, server.ranges = [HALF], False
    fetch(place(server.url), tmp_path)
    assert (tmp_path / "mine.jsonl").read_bytes() == DATA


def test_other_bytes_are_refused_unless_accepted(server: Server, tmp_path: Path) -> None:
    server.body = DATA + b"\n"
    known = place(server.url, size=None)
    with pytest.raises(DataError, match="the server sent other bytes than the pinned ones of mine"):
        fetch(known, tmp_path)
    assert not list(tmp_path.glob("mine*"))
    (taken,) = fetch(known, tmp_path, accept_changed=True)
    assert (taken.state, taken.pinned) == ("changed", False)
    with pytest.raises(DataError, match="holds other bytes than the pinned ones"):
        fetch(known, tmp_path)


def test_a_hash_that_nobody_pinned_is_noted_at_the_first_fetch(server: Server, tmp_path: Path) -> None:
    unknown = place(server.url, sha256=None, size=None)
    (first,) = fetch(unknown, tmp_path)
    assert (first.pinned, read_lock(tmp_path)["mine.jsonl"]["pinned"]) == (False, False)
    first.path.unlink()
    server.body = DATA + b"\n"
    with pytest.raises(DataError, match="the server sent other bytes"):
        fetch(unknown, tmp_path)


def test_refusals_and_pages_are_one_line(server: Server, tmp_path: Path) -> None:
    server.status = 404
    with pytest.raises(DataError, match=r"refuses mine.jsonl: 404 Not Found \(http"):
        fetch(place(server.url), tmp_path)
    assert len(server.asked) == 1
    server.status = 503
    with pytest.raises(DataError, match="could not be fetched whole"):
        fetch(place(server.url), tmp_path)
    server.status, server.body = 200, b"<html>log in</html>"
    with pytest.raises(DataError, match="is there a log-in page in between"):
        fetch(place(server.url, size=None), tmp_path)


def test_without_a_network_the_line_says_what_to_do(server: Server, tmp_path: Path) -> None:
    url = server.url
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError) as error:
        fetch(place(url), tmp_path)
    said = str(error.value)
    assert said.startswith("no network to 127.0.0.1:")
    assert str(tmp_path / "mine.jsonl") in said
    assert "--from" in said
    assert "\n" not in said


def test_a_mirror_serves_files_by_name(server: Server, tmp_path: Path) -> None:
    fetch(place("http://nowhere.invalid"), tmp_path, base=f"{server.url}/mirror/")
    assert server.asked == [("/mirror/mine.jsonl", "")]
    with pytest.raises(DataError, match="is no URL of http"):
        fetch(place(server.url), tmp_path, base="file:///etc")


def test_two_fetches_do_not_mix(server: Server, tmp_path: Path) -> None:
    from filelock import FileLock

    with FileLock(tmp_path / ".prismem-fetch.lock"), pytest.raises(DataError, match="another fetch writes into"):
        fetch(place(server.url), tmp_path)


def test_the_table_of_locations() -> None:
    for name, known in LOCATIONS.items():
        assert (known.name, len(known.revision)) == (name, 40)
        for file in known.files:
            assert known.revision in file.url
            assert file.url.startswith("https://")
            assert file.sha256 is None or (len(file.sha256) == 64 and file.size)
            assert "/" not in file.name
    with pytest.raises(DataError, match="no public data set 'x'; there are locomo, "):
        location("x")


def test_known_files_are_told_by_hash_and_by_name() -> None:
    sha256 = LOCATIONS["locomo"].files[0].sha256
    assert sha256 is not None
    found = check_known([("a/renamed.json", sha256), ("b/locomo10.json", "0" * 64), ("c/mine.json", "1" * 64)])
    assert [(entry["file"], entry["name"], entry["as_pinned"]) for entry in found] == [
        ("a/renamed.json", "locomo", True),
        ("b/locomo10.json", "locomo", False),
    ]


def test_the_pinned_hash_of_locomo_is_the_one_the_readme_shows(data_dir: Path) -> None:
    readme = (data_dir / "README.md").read_text(encoding="utf-8")
    sha256 = LOCATIONS["locomo"].files[0].sha256
    assert sha256 is not None
    assert f"{sha256[:8]}…{sha256[-5:]}" in readme
    assert LOCATIONS["locomo"].revision in readme
