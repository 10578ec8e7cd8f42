"""Faults that users of model caches meet most, where no other test of the house holds them yet."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import prismem_core
from prismem_core.cache import ExecutionCache
from prismem_core.errors import ArgumentError, CacheError

from .conftest import key

ROOT = Path(__file__).resolve().parents[2]

# Runs a small pipeline into the cache of argv[1] and prints the name of every entry.
RUN = """
import sys
from prismem_core.cache import ExecutionCache
from prismem_core.program.program import Program
from prismem_core.program.sandbox import Sandbox
from tests.pipeline.conftest import World
from tests.pipeline.test_reuse import DENSE

with Sandbox() as sandbox, ExecutionCache(sys.argv[1]) as cache:
    world = World(sandbox)
    world.cache = cache
    world.pipeline(sys.argv[2]).run(Program(DENSE), world.histories, world.questions)
    for stage, name in sorted((entry.stage, entry.key) for entry in cache.entries()):
        print(stage, name)
"""


@pytest.mark.parametrize("reuse", ["content", "paper"])
def test_keys_hold_nothing_that_differs_between_processes(tmp_path: Path, reuse: str) -> None:
    """Neither the order of sets and dictionaries, nor addresses, nor where the package and the caller's files lie."""
    package = Path(prismem_core.__file__).parent
    elsewhere = tmp_path / "another place"
    elsewhere.mkdir()
    (elsewhere / "prismem_core").symlink_to(package)
    printed = []
    for seed, packages in (("1", package.parent), ("77", elsewhere)):
        home = tmp_path / f"home {seed}"
        home.mkdir()
        settings = {
            "PYTHONHASHSEED": seed,
            "HOME": str(home),
            "TMPDIR": str(home),
            "PYTHONPATH": os.pathsep.join([str(packages), str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(home / "cache"), reuse],
            cwd=home,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert printed[0] == printed[1]
    stages = {line.split()[0] for line in printed[0].splitlines()}
    assert {"extract", "plan", "answer", "embed"} <= stages


class Hostile:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_hostile_entries_decode_to_data_or_an_error_and_run_nothing(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    bomb = pickle.dumps(Hostile(trap))
    objects = np.empty(1, object)
    objects[0] = Hostile(trap)
    entries = [
        bomb,
        b"PMA1" + bomb,
        objects.dumps(),
        b"PMA1O8\0\x01" + (1).to_bytes(8, "little") + bomb,
        b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(128) + bomb,
        f"__import__('os').mkdir({str(trap)!r})".encode(),
        f"!!python/object/apply:os.mkdir [{str(trap)!r}]".encode(),
        b"[NaN]",
        b"[" * 100_000,
        b"\xff\xfe\x00",
    ]
    with ExecutionCache(tmp_path / "cache") as cache:
        for i, data in enumerate(entries):
            cache.put("s", key(i), data)
    with ExecutionCache(tmp_path / "cache") as cache:
        for i, data in enumerate(entries):
            assert cache.get("s", key(i)) == data
            for read in (cache.get_json, cache.get_array):
                with pytest.raises(CacheError):
                    read("s", key(i))
            try:
                assert isinstance(cache.get_text("s", key(i)), str)
            except CacheError:
                assert not data.isascii()
    assert not trap.exists()


def test_a_group_with_one_value_that_is_none_stores_nothing(tmp_path: Path) -> None:
    for cache in (ExecutionCache(), ExecutionCache(tmp_path)):
        with pytest.raises(ArgumentError):
            cache.put_many("s", [key(1), key(2)], [b"1", None])  # type: ignore[list-item]
        assert not cache.contains("s", [key(1), key(2)]).any()
