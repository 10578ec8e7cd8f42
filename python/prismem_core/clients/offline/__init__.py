"""The embedded default: a deterministic task model without weights of its own, small embedders and a cross-encoder."""
