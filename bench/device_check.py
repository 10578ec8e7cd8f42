"""All that needs a GPU, in one script of a few minutes: conformance, bad inputs, precision, sanitizer, times.

    python bench/device_check.py                     # on a machine with a GPU, from a tree that need not be installed
    python bench/device_check.py --seconds 120 --parts conformance timing
    python bench/device_check.py --dry-run           # every step on the CPU, in small: tests the script itself

It needs numpy, torch and triton; cupy, a built CUDA library, cuVS, faiss and compute-sanitizer take part where they are
installed. A JSON object a step goes to bench/results/<gpu>.jsonl; a short table comes last. Exit code 1: a step failed.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Check and measure the kernels on the GPU of this machine.")
    parser.add_argument("--seconds", type=float, default=280.0, help="deadline: what is left then is skipped by name")
    parser.add_argument("--output", type=Path, help="file for the records; bench/results/<gpu>.jsonl by default")
    parser.add_argument("--parts", nargs="+", help="only these parts, such as conformance or timing")
    parser.add_argument("--workers", type=int, help="processes that compile and check at once")
    parser.add_argument("--dry-run", action="store_true", help="go through all steps on the CPU with tiny sizes")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.dry_run:
        os.environ["TRITON_INTERPRET"] = "1"
    if (ROOT / "python" / "prismem_core").is_dir():
        sys.path[:0] = [str(ROOT), str(ROOT / "python")]
        import prismem_core

        # The tree as it is: kernels/ and bench/ are parts of the package once it is installed.
        prismem_core.__path__.append(str(ROOT))
    from prismem_core.bench.device import run

    sys.exit(run.main(words, Path(__file__).resolve()))


if __name__ == "__main__":
    main()
