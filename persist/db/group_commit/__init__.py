"""A connection pinned to one recorder or writer, and commits that many writers share."""
