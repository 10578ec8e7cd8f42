"""The failure that carries which rule of the program contract a result broke."""

from __future__ import annotations

from prismem_core.errors import CandidateError


class InvalidResult(CandidateError):
    """A method returned what it must not: `code` is `index_return`, `retrieve_type` or `retrieve_length`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__("invalid", message)
        self.code = code
