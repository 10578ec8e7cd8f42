"""Which code made a number: a commit only where it is this package's own, and a digest that follows the code."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from prismem_core.runs import provenance

GIT = shutil.which("git")


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repository" / "package"
    folder.mkdir(parents=True)
    (folder / "errors.py").write_text("A = 1\n", encoding="utf-8")
    monkeypatch.setattr(provenance, "_PACKAGE", folder)
    provenance.code_digest.cache_clear()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    return folder


@pytest.mark.skipif(GIT is None, reason="there is no git")
def test_a_commit_is_that_of_the_package_alone(package: Path) -> None:
    assert provenance.commit() == ""
    repository = package.parent
    (repository / "other.txt").write_text("other", encoding="utf-8")
    git(repository, "init", "-q")
    git(repository, "add", "other.txt")
    git(repository, "commit", "-qm", "other")
    assert provenance.commit() == "", "the package lies in a repository that does not hold it"
    git(repository, "add", "package")
    git(repository, "commit", "-qm", "package")
    assert provenance.commit() == git(repository, "rev-parse", "--short=12", "HEAD")
    (package / "errors.py").write_text("A = 2\n", encoding="utf-8")
    assert provenance.commit() == git(repository, "rev-parse", "--short=12", "HEAD") + "+"


def test_the_digest_follows_code_and_prompts_and_nothing_else(package: Path) -> None:
    def digest() -> str:
        provenance.code_digest.cache_clear()
        return provenance.code_digest()

    first = digest()
    (package / "bench").mkdir()
    (package / "bench" / "x.py").write_text("B = 1\n", encoding="utf-8")
    (package / "notes.txt").write_text("x", encoding="utf-8")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "errors.cpython-311.pyc").write_bytes(b"x")
    assert digest() == first and len(first) == 16
    (package / "prompt.md").write_text("say", encoding="utf-8")
    second = digest()
    (package / "errors.py").write_text("A = 2\n", encoding="utf-8")
    assert len({first, second, digest()}) == 3


def test_this_package_has_a_digest() -> None:
    provenance.code_digest.cache_clear()
    assert len(provenance.code_digest()) == 16 and int(provenance.code_digest(), 16) > 0
