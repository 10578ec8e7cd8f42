"""Does a program keep the contract? By its text alone (`gate`), or by a trial with a stand-in backend (`validate`)."""

from __future__ import annotations

from prismem_core.program.validation.collection_use import uses_collections
from prismem_core.program.validation.dynamic import ValidationLimits
from prismem_core.program.validation.procedure import validate
from prismem_core.program.validation.report import Finding, GateReport, ValidationReport
from prismem_core.program.validation.static import gate

__all__ = ["Finding", "GateReport", "ValidationLimits", "ValidationReport", "gate", "uses_collections", "validate"]
