"""Benchmarks: each op against its peers and against the limits of the machine, in one interleaved run.

The folder is installed as `prismem_core.bench`; it refers to itself by relative imports, so that it also runs from a
tree that is not installed (`python -m bench`).
"""
