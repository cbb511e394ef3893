"""Rows of sessions, branches, messages and progressions, and what a fork inherits."""
