"""The whole check of a candidate program: what its text shows, what it defines, what it does (P A.4).

Steps and their codes, in order; the first that fails is the result:

 1 `empty_source`       2 `syntax_error`       3 `no_change` (against its parent, layout and comments apart)
 4 `forbidden_import`   5 `forbidden_access`   6 `load_error` (executing the module raises)
 7 `missing_definition`   8 `bad_instruction`   9 `bad_schema`   10 `bad_signature`
11 the smoke run: `smoke_error`, `index_return`, `retrieve_type`, `retrieve_length`, `retrieve_stateful`
12 the probe at scale: `backend_calls`; and, at any step that runs the program, `too_slow`
"""

from __future__ import annotations

from prismem_core.errors import CandidateError, ProgramError
from prismem_core.program.interface import Interface
from prismem_core.program.sandbox import Sandbox
from prismem_core.program.sandbox.recovery import again_if_lost
from prismem_core.program.validation.dynamic import ValidationLimits, check_dynamic
from prismem_core.program.validation.report import ValidationReport
from prismem_core.program.validation.static import check_static


def validate(
    source: str,
    parent: str | None = None,
    *,
    sandbox: Sandbox | None = None,
    limits: ValidationLimits | None = None,
    interface: Interface = "paper",
) -> ValidationReport:
    """`ok`, or the code of the first failing check, with the program's own line where one is known.

    `parent` is the source the program was made from: a program that differs from it in comments and layout alone is
    `no_change`. `interface` says what the backend offers. The program runs in workers of `sandbox` (a new one if None)
    with a stand-in backend; no model is called. Raises SandboxError if no worker can be made.
    """
    result = check_static(source, parent, interface)
    if result.code != "ok":
        return ValidationReport(result.code, result.message, result.line, result.warnings)
    try:
        if sandbox is None:
            with Sandbox() as own:
                _check(source, own, limits, interface)
        else:
            _check(source, sandbox, limits, interface)
    except ProgramError as error:
        return ValidationReport(error.code, str(error), error.line, result.warnings)
    return ValidationReport("ok", "", None, result.warnings)


def _check(source: str, sandbox: Sandbox, limits: ValidationLimits | None, interface: Interface) -> None:
    described = sandbox.describe(source)
    try:
        again_if_lost(lambda: check_dynamic(source, described, sandbox, limits or ValidationLimits(), interface))
    except CandidateError as error:
        raise ProgramError("smoke_error", str(error), error.line) from None
