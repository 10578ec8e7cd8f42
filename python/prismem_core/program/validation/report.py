"""What a check of a program found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Finding:
    """One thing in the source that breaks a rule or deserves a look."""

    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


@dataclass(frozen=True)
class GateReport:
    """Outcome of the check that runs nothing: `reject`, `flag` (accepted, with warnings) or `pass`.

    `code` is that of the failing check for `reject`, else `ok`.
    """

    outcome: str
    code: str
    message: str
    line: int | None
    warnings: tuple[Finding, ...]


@dataclass(frozen=True)
class ValidationReport:
    """Outcome of the full check: `ok` or the code of the first failing check."""

    code: str
    message: str
    line: int | None
    warnings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return self.code == "ok"
