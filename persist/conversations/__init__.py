"""Conversations: sessions of branches over shared messages, which fork without copying and exchange messages."""

from persist.conversations.importing import import_runs
from persist.conversations.sweeping import end_stale, stale_sessions

__all__ = ["end_stale", "import_runs", "stale_sessions"]
