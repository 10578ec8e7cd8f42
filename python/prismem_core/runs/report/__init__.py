"""Reports of a run, derived from its journal and call ledger: plain data, Markdown and terminal tables."""
