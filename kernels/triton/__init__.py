"""Triton twins of the ops. A module of an op needs triton and torch; the registry imports it when the op is called."""
