"""Transcripts: what agent sessions said and did, entry by entry, as their own program wrote it, and what their subagents did."""
