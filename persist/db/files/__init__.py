"""Paths of files, and files that only their owner may read."""
