"""Writes the packaged sample set: hand-written stories, woven with small talk drawn from a grammar."""
