"""What a number must carry beside its data, models and settings, so that it can be made again."""

from __future__ import annotations

import platform
from typing import Any

import prismem_core
from prismem_core.evaluation.judge_request import PROMPT_VERSION
from prismem_core.runs.provenance import code_digest, commit
from prismem_core.tasks.native_types import category_map_digest


def provenance(roles: dict[str, str]) -> dict[str, Any]:
    """Version, commit and digest of the code, the map of categories, the judge's prompts (None: no model judges)."""
    judged = not roles["judge"].startswith("lexical")
    return {
        "version": prismem_core.__version__,
        "commit": commit(),
        "code": code_digest(),
        "category_map": category_map_digest(),
        "judge_prompts": PROMPT_VERSION if judged else None,
        "python": platform.python_version(),
    }
