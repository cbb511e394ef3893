"""Conversations: sessions of branches over shared messages; branches fork without copying and exchange messages."""

from typing import TYPE_CHECKING

from persist.lazy_imports import lazy_names

if TYPE_CHECKING:
    from persist.conversations.run_import.importing import import_runs
    from persist.conversations.staleness import end_stale, stale_sessions

__all__ = ["end_stale", "import_runs", "stale_sessions"]

__getattr__ = lazy_names(
    __name__,
    {
        "end_stale": "persist.conversations.staleness",
        "import_runs": "persist.conversations.run_import.importing",
        "stale_sessions": "persist.conversations.staleness",
    },
)
