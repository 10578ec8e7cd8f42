"""Roles of several processes on one cache directory: every call is paid once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import prismem_core
from prismem_core.cache import ExecutionCache
from prismem_core.roles.cached import CachedEmbedder
from prismem_core.roles.ledger import Ledger

# Every call that is made goes to one file that the processes share, a line each.
PRELUDE = """
import os, random, sys, time
import numpy as np
from prismem_core.cache import ExecutionCache
from prismem_core.roles.cached import CachedChat, CachedEmbedder
from prismem_core.roles.ledger import Ledger
from prismem_core.roles.protocols import ChatReply, ChatRequest
calls = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
class Echo:
    identity = "echo"
    batch = 3
    def complete(self, requests):
        time.sleep(0.01)
        os.write(calls, "".join(r.prompt + "\\n" for r in requests).encode())
        return [ChatReply(r.prompt.upper(), 1, 1) for r in requests]
class Letters:
    identity = "letters"
    dimension = 2
    def embed(self, texts):
        time.sleep(0.01)
        os.write(calls, "".join(t + "\\n" for t in texts).encode())
        return np.array([[float(ord(c)) for c in text[:2]] for text in texts], np.float32)
cache = ExecutionCache(sys.argv[1])
chat = CachedChat(Echo(), cache, Ledger(), workers=2)
embedder = CachedEmbedder(Letters(), cache, Ledger())
order = random.Random(int(sys.argv[3]))
print("ready", flush=True)
sys.stdin.readline()
"""


def together(script: str, count: int, *arguments: object) -> None:
    """Runs the script in processes that begin at the same time."""
    path = os.pathsep.join([str(Path(prismem_core.__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    children = [
        subprocess.Popen(
            [sys.executable, "-c", PRELUDE + script, *map(str, arguments), str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        for seed in range(count)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        for child in children:
            _, errors = child.communicate(timeout=60)
            assert child.returncode == 0, errors
    finally:
        for child in children:
            child.kill()
            child.communicate()


def test_processes_pay_once_for_a_reply(tmp_path: Path) -> None:
    script = """
prompts = [f"prompt {i}" for i in range(40)]
order.shuffle(prompts)
replies = chat.complete([ChatRequest("ask", "", p) for p in prompts])
assert [r.text for r in replies] == [p.upper() for p in prompts]
"""
    together(script, 3, tmp_path / "cache", tmp_path / "calls")
    paid = Counter((tmp_path / "calls").read_text().splitlines())
    assert paid == Counter({f"prompt {i}": 1 for i in range(40)})


def test_processes_pay_once_for_an_embedding(tmp_path: Path) -> None:
    script = """
texts = [a + b for a in "abcdefghij" for b in "abcdefghij"]
order.shuffle(texts)
rows = embedder.embed(texts)
assert rows.tolist() == [[float(ord(c)) for c in text] for text in texts]
"""
    together(script, 3, tmp_path / "cache", tmp_path / "calls")
    paid = Counter((tmp_path / "calls").read_text().splitlines())
    assert paid == Counter({a + b: 1 for a in "abcdefghij" for b in "abcdefghij"})
    with ExecutionCache(tmp_path / "cache", read_only=True) as cache:

        class Silent:
            identity = "letters"
            dimension = 2

            def embed(self, texts: list[str]) -> np.ndarray:
                pytest.fail("paid again")

        assert CachedEmbedder(Silent(), cache, Ledger()).embed(["ab"]).tolist() == [[97, 98]]
