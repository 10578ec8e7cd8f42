"""`python -m prismem_core.tasks.datasets.sample_generator [PATH]`: write the sample set, by default in place."""

from __future__ import annotations

import sys
from pathlib import Path

from prismem_core.tasks.datasets.sample import SAMPLE_PATH
from prismem_core.tasks.datasets.sample_generator.weave import write

if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLE_PATH
    target.parent.mkdir(parents=True, exist_ok=True)
    write(target)
    print(f"wrote {target} ({target.stat().st_size:,} bytes)")
