"""When a recorder that is silent counts as dead: every interval in one place, since each one rests on the one before it."""

from datetime import datetime, timedelta

from persist.db.concurrency import process_owners

HEARTBEAT = timedelta(seconds=20)
"""How often a running recorder updates its turn's `seen_at`, even if its stream sends nothing."""

STALE_AFTER = 3 * HEARTBEAT
"""A turn not seen for this long has missed three heartbeats: where its process cannot be examined, others may take it over."""

CLEAR_AFTER = 5 * STALE_AFTER
"""Maintenance deletes the row of a stale turn only after this time, when clocks that differ a little no longer matter."""

LEFT_AFTER = timedelta(seconds=5)
"""Deltas older than this were left by a dead recorder: a running one folds its own after `Settings.fold_ms`, usually 250 ms."""


def is_stale(owner: str, seen_at: datetime, now: datetime) -> bool:
    """Whether the owner is known to be gone or, where that cannot be known, was not seen for STALE_AFTER."""
    return process_owners.is_stale(owner, seen_at, now, STALE_AFTER)
