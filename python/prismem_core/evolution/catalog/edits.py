"""All edits of the catalogue, in the order that settles ties."""

from __future__ import annotations

from collections.abc import Mapping

from prismem_core.evolution.catalog.answer_edits import ANSWER_EDITS
from prismem_core.evolution.catalog.edit import Edit
from prismem_core.evolution.catalog.search_edits import SEARCH_EDITS
from prismem_core.evolution.catalog.unit_edits import UNIT_EDITS

EDITS: tuple[Edit, ...] = UNIT_EDITS + SEARCH_EDITS + ANSWER_EDITS
BY_NAME: Mapping[str, Edit] = {edit.name: edit for edit in EDITS}
