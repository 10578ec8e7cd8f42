"""Errors a user can cause, one class a kind; each message says what was wrong, what was expected and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

# Four ways in which a question can end without a score. Each mean says how many of each kind it leaves out, so that
# none of them is ever a zero.
FailureKind = Literal["provider", "judge", "candidate", "limit"]
FAILURE_KINDS: Mapping[FailureKind, str] = MappingProxyType(
    {
        "provider": "a model or an embedder could not be had",
        "judge": "no verdict of the judge could be read",
        "candidate": "the program broke",
        "limit": "the program was ended at a limit",
    }
)


class PrismemError(Exception):
    """Base of all errors raised on purpose; `exit_code` is what the command line returns for it."""

    exit_code = 1


class ArgumentError(PrismemError, ValueError):
    """An argument of a public function has the wrong type, shape, dtype or range."""

    exit_code = 2


class NoImplementation(PrismemError):
    """No implementation of an op serves the place where the arrays live."""


class SettingsError(PrismemError):
    """A setting is unknown or out of range."""

    exit_code = 2


class DataError(PrismemError):
    """A data set is missing, unreadable or not of the form it claims."""

    exit_code = 3


class RunError(PrismemError):
    """A run directory is missing, is not one, is damaged or is in use by another process."""

    exit_code = 4


class CacheError(PrismemError):
    """The execution cache cannot be opened or was given something it must not store."""

    exit_code = 5


class VectorIndexError(PrismemError):
    """A saved vector index is missing, damaged or of another format, cannot be saved, or is open for reading only."""


class LexicalIndexError(PrismemError):
    """A saved lexical index is missing, damaged or of another format or tokenizer, or cannot be saved."""


class ProgramError(PrismemError):
    """A memory program is refused: `code` is one that `program/validation/procedure.py` lists, `line` the program's own
    line if known.
    """

    exit_code = 6

    def __init__(self, code: str, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.line = line


class PatchError(PrismemError):
    """A diff does not apply: `code` is one that `program/patch.py` names, `hunk` the 0-based hunk at fault or None."""

    def __init__(self, code: str, message: str, hunk: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.hunk = hunk


class SavedMemoryError(PrismemError):
    """A saved memory is missing, damaged, of another format or none at all, or cannot be written."""

    exit_code = 9


class RoleError(PrismemError):
    """A model, embedder or judge failed (not the candidate): the run pauses and can be resumed."""

    exit_code = 7


class BudgetError(RoleError):
    """A cap on calls, tokens, money or time is reached: what was paid for is kept, a run resumes with a larger one."""


class JudgeError(RoleError):
    """Verdicts of a judge could not be read, however often it was asked (neither a zero nor the program's fault)."""


class CandidateError(PrismemError):
    """A memory program failed while it ran: `kind` is `error`, `invalid`, `died` or `protocol`."""

    def __init__(self, kind: str, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.line = line


class LimitError(CandidateError):
    """A memory program was ended at a limit: `kind` is `limit:cpu`, `limit:wall`, `limit:memory` or `limit:calls`."""


class SandboxError(PrismemError):
    """The worker machinery itself failed (neither the candidate nor a model is to blame)."""

    exit_code = 8


class WorkerLost(SandboxError):
    """A worker ended through no act of its program or of the engine; the work can be done again in a new one.

    `killed` says that this worker alone was ended, by a SIGKILL from elsewhere (most often: the machine ran out of
    memory); otherwise the whole sandbox ended.
    """

    def __init__(self, message: str, *, killed: bool) -> None:
        super().__init__(message)
        self.killed = killed


def failure_kind(kind: str) -> FailureKind:
    """Which of the four a recorded failure is: the `kind` of a CandidateError or LimitError, `unscored` (no verdict,
    or one out of range), `provider` or `judge`.
    """
    if kind == "provider":
        return "provider"
    if kind in ("judge", "unscored"):
        return "judge"
    return "limit" if kind.split(":", 1)[0] == "limit" else "candidate"
