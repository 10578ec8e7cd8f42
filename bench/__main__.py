"""`python -m bench`: the command `prismem bench` from a tree that is not installed."""

import sys
from pathlib import Path

import prismem_core

if __name__ == "__main__":
    prismem_core.__path__.append(str(Path(__file__).resolve().parents[1]))
    from prismem_core.cli.main import main

    sys.argv[0:1] = ["prismem", "bench"]
    main()
