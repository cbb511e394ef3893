"""Conversations: sessions of branches over shared messages; branches fork without copying and exchange messages."""

from typing import TYPE_CHECKING

from persist.lazy_imports import lazy_names

if TYPE_CHECKING:
    from persist.conversations.run_import import import_runs as import_runs
    from persist.conversations.staleness import end_stale as end_stale
    from persist.conversations.staleness import stale_sessions as stale_sessions
lazy_names(globals())
