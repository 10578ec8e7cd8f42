"""A program's interface as it arrives from a worker: rebuilt only if every part has the kind it must have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prismem_core.errors import CandidateError
from prismem_core.program.interface import ProgramInterface
from prismem_core.program.sandbox.call import raise_failure
from prismem_core.program.sandbox.frames import FrameError, printable


class Refused(CandidateError):
    """The inspection of a loaded program found a fault; `code` is one of `validation/procedure.py`."""

    def __init__(self, code: str, message: str, line: int | None) -> None:
        super().__init__("error", message, line)
        self.code = code


def interface_result(answer: Mapping[str, Any]) -> ProgramInterface:
    """The interface in an answer; raises the failure it tells, FrameError if it is no answer."""
    raise_failure(answer)
    if "refused" in answer:
        code, message, line = answer["refused"], answer.get("message"), answer.get("line")
        if not (isinstance(code, str) and isinstance(message, str) and (line is None or type(line) is int)):
            raise FrameError("a refusal told in the wrong form")
        raise Refused(printable(code[:100]), printable(message[:2000]), line)
    try:
        return ProgramInterface.from_dict(answer.get("interface"))
    except ValueError as error:
        raise FrameError(str(error)[:500]) from None
