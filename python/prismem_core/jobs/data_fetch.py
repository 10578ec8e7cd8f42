"""What `prismem data fetch` does: gets the files of a public benchmark, resumes, checks, and notes what came."""

from __future__ import annotations

import http.client
import os
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

import prismem_core
from prismem_core.errors import DataError
from prismem_core.jobs.data_doctor import file_sha256
from prismem_core.jobs.data_lock import read_lock, write_lock
from prismem_core.tasks.datasets.locations import LOCATIONS, Location, PublicFile

_CHUNK_BYTES = 1 << 20
_TRIES = 4
_TIMEOUT_SECONDS = 60
_PAUSE_SECONDS = 1.0
_FIRST_BYTES = (b"[", b"{", b"PAR1", b"\x1f\x8b", b"\xef\xbb\xbf")

# Name of the file, bytes so far, bytes in all (None if the server does not say).
Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Fetched:
    """One file as it now lies in the folder: `state` is `present`, `fetched` or `changed` (accepted all the same)."""

    path: Path
    sha256: str
    size: int
    state: str
    pinned: bool


def location(name: str) -> Location:
    """The location of that name; DataError for an unknown one."""
    try:
        return LOCATIONS[name]
    except KeyError:
        raise DataError(f"no public data set {name!r}; there are {', '.join(LOCATIONS)}") from None


def fetch(
    place: Location,
    folder: Path,
    *,
    base: str | None = None,
    accept_changed: bool = False,
    on_progress: Progress | None = None,
) -> list[Fetched]:
    """Bring all files of a location into a folder; what is there and right is not fetched again.

    `base` is the URL of a mirror that serves the files under their names. A part file is gone on with after a loss of
    the connection or a stop. A file appears under its name only when its hash is right: the pinned one, or where none
    is pinned the one that the folder's lock noted at the first fetch. Raises DataError, one line, without a network,
    for what a server refuses and for other bytes (unless `accept_changed`).
    """
    if base is not None and not base.startswith(("http://", "https://")):
        raise DataError(f"--from {base!r} is no URL of http or https")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".prismem-fetch.lock", timeout=0):
            return [_one(place, file, folder, base, accept_changed, on_progress) for file in place.files]
    except Timeout:
        raise DataError(f"another fetch writes into {folder}; wait for it, or give another --to") from None


def _one(
    place: Location, file: PublicFile, folder: Path, base: str | None, accept_changed: bool, progress: Progress | None
) -> Fetched:
    url = file.url if base is None else f"{base.rstrip('/')}/{urllib.parse.quote(file.name)}"
    target = folder / file.name
    noted = read_lock(folder).get(file.name, {})
    wanted = file.sha256 or (noted.get("sha256") if noted.get("revision") == place.revision else None)
    state, candidate = "present", target
    if not target.exists():
        state, candidate = "fetched", target.with_name(f"{file.name}.part")
        _download(url, candidate, file, target, progress)
    sha256, size = file_sha256(candidate), candidate.stat().st_size
    if wanted is not None and sha256 != wanted:
        if not accept_changed:
            if state == "fetched":
                candidate.unlink()
            what = "the server sent" if state == "fetched" else f"{target} holds"
            raise DataError(
                f"{what} other bytes than the pinned ones of {file.name}: SHA-256 {sha256[:16]}, expected {wanted[:16]}"
                "; refused (take it all the same with --accept-changed)"
            )
        state = "changed"
    if candidate != target:
        os.replace(candidate, target)
    entry: dict[str, Any] = {
        "name": place.name,
        "url": url,
        "revision": place.revision,
        "sha256": sha256,
        "bytes": size,
        "pinned": sha256 == file.sha256,
    }
    write_lock(folder, {**read_lock(folder), file.name: entry})
    return Fetched(target, sha256, size, state, entry["pinned"])


def _download(url: str, part: Path, file: PublicFile, target: Path, progress: Progress | None) -> None:
    """Fill the part file, going on where it ends; a lost connection is tried again, a refusal is not."""
    for attempt in range(_TRIES):
        have = part.stat().st_size if part.exists() else 0
        if file.size is not None and have >= file.size:
            if have == file.size:
                return
            part.unlink()
            have = 0
        _check_space(part.parent, file, have)
        try:
            _receive(url, part, have, file, progress)
            return
        except urllib.error.HTTPError as error:
            if error.code == 416 and have:
                part.unlink()
                continue
            if error.code < 500 and error.code != 429:
                raise DataError(f"{_host(url)} refuses {file.name}: {error.code} {error.reason} ({url})") from error
            reason: Exception = error
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.URLError) and not have and attempt == 0:
                raise _unreachable(url, error, target) from error
            reason = error
        if attempt < _TRIES - 1:
            time.sleep(_PAUSE_SECONDS * 2**attempt)
    raise DataError(
        f"{file.name} could not be fetched whole from {_host(url)} ({_said(reason)}); what came is kept: fetch again "
        "to go on"
    ) from reason


def _receive(url: str, part: Path, have: int, file: PublicFile, progress: Progress | None) -> None:
    headers = {"User-Agent": f"prismem-core/{prismem_core.__version__}", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
        resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        have = have if resumed else 0
        length = answer.headers.get("Content-Length", "")
        total = have + int(length) if length.isdigit() else file.size
        with part.open("ab" if resumed else "wb") as stored:
            received = _copy(answer, stored, have, total, file, progress)
    if total is not None and received < total:
        raise http.client.IncompleteRead(b"", total - received)


def _copy(
    answer: Any, stored: BinaryIO, have: int, total: int | None, file: PublicFile, progress: Progress | None
) -> int:
    received = have
    while chunk := answer.read(_CHUNK_BYTES):
        if received == 0 and not chunk.lstrip().startswith(_FIRST_BYTES):
            kind = answer.headers.get("Content-Type", "unknown type")
            raise DataError(f"what came for {file.name} is no data ({kind}); is there a log-in page in between?")
        stored.write(chunk)
        received += len(chunk)
        if progress is not None:
            progress(file.name, received, total)
    stored.flush()
    os.fsync(stored.fileno())
    return received


def _check_space(folder: Path, file: PublicFile, have: int) -> None:
    free = shutil.disk_usage(folder).free
    if file.size is not None and free < file.size - have:
        raise DataError(f"{file.name} needs {file.size - have:,} bytes more, {folder} has {free:,} free")


def _unreachable(url: str, error: Exception, target: Path) -> DataError:
    return DataError(
        f"no network to {_host(url)} ({_said(error)}): get {url} by other means and put it at {target}, or name a "
        "mirror with --from"
    )


def _host(url: str) -> str:
    return urllib.parse.urlsplit(url).netloc


def _said(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return " ".join(str(text).split())[:120]
