"""A process that holds a leash ends with its parent; copies of a leash hold nobody."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

from prismem_core.clients.vllm_engine.leash import KEY, Leash

_PROGRAM = """
import multiprocessing, os, sys, time
from prismem_core.clients.vllm_engine.leash import Leash

def child(leash, pipe):
    pipe.send(os.getpgid(0) == os.getpid())
    time.sleep(600)

if __name__ == "__main__":
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.get_context("spawn").Process(target=child, args=({"leash": Leash()}, theirs)).start()
    print(ours.recv(), flush=True)
    os._exit(0)
"""


def test_a_spawned_process_ends_with_its_parent(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM, encoding="utf-8")
    # The child holds this end of the pipe, too: it is at its end when both have gone.
    done = subprocess.run(
        [sys.executable, str(program)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0 and done.stdout == "True\n"


def test_copies_are_plain_and_hash_alike() -> None:
    leash = Leash()
    group = os.getpgid(0)
    assert copy.deepcopy({KEY: leash}) == {KEY: leash} and pickle.loads(pickle.dumps(leash)) == leash
    assert json.dumps({KEY: leash}) == json.dumps({KEY: Leash()}) == f'{{"{KEY}": "held"}}'
    assert os.getpgid(0) == group
