"""`python -m prismem_core` is the command `prismem`."""

from prismem_core.cli.main import main

main()
