"""Whole jobs: the wiring of data, roles, cache, sandbox and engine that the command line and Python callers share."""
