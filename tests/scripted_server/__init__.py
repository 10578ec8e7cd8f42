"""A server of chat and embedding models that plays a script: it answers well until told to fail, and it counts."""
