"""Conversations: sessions of branches over shared messages; branches fork without copying and exchange messages."""

from persist.lazy_imports import lazy_names

with lazy_names(globals()):
    from persist.conversations.run_import.importing import import_runs
    from persist.conversations.staleness import end_stale, stale_sessions

__all__ = ["end_stale", "import_runs", "stale_sessions"]
