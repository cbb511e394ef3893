"""An outage of the database, as workers, followers and watchers wait for it: it is logged once, and its end is soon noticed."""

import logging

from persist.db.dialects.errors import Errors
from persist.errors import NotPermitted

log = logging.getLogger("persist")

_FIRST, _LONGEST = 0.05, 0.5
"""Seconds until the next attempt: after the first failure, and at most, so that its end is noticed within a second."""


class Outage:
    """The outage that one worker, follower or watcher is in, if it is in one. Thread-safe as far as it has to be.

    `what` says in the log what cannot be done until it is over.
    """

    def __init__(self, errors: Errors, what: str) -> None:
        self._errors, self._what = errors, what
        self._pause = _FIRST
        self.is_on = False
        """Whether the last attempt failed."""

    def met(self, error: BaseException) -> bool:
        """Whether the error is one of an outage, which then is on. A server that starts may refuse a role for a moment."""
        found = self._errors.is_outage(error) or (self.is_on and isinstance(error, NotPermitted))
        if found:
            self.failed(error)
        return found

    def failed(self, error: BaseException) -> None:
        """An attempt failed, by whatever error: only the first one is logged."""
        if not self.is_on:
            self.is_on = True
            log.warning("%s now; trying again: %s", self._what, error)

    def pause(self) -> float:
        """Seconds to wait before the next attempt: longer each time."""
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST)
        return pause

    def is_over(self) -> bool:
        """The database has answered. Whether that ends an outage."""
        was_on, self.is_on, self._pause = self.is_on, False, _FIRST
        return was_on
