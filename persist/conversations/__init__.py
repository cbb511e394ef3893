"""Conversations: sessions of branches over shared messages, which fork without copying and exchange messages."""

from typing import TYPE_CHECKING

from persist.later import offers

if TYPE_CHECKING:
    from persist.conversations.importing import import_runs
    from persist.conversations.sweeping import end_stale, stale_sessions

__all__ = ["end_stale", "import_runs", "stale_sessions"]

__getattr__ = offers(
    __name__,
    {
        "end_stale": "persist.conversations.sweeping",
        "import_runs": "persist.conversations.importing",
        "stale_sessions": "persist.conversations.sweeping",
    },
)
