"""Waiting for new events: a reader of the event log blocks here between two queries of the log."""

import threading

_LOOK_AGAIN = 0.05
_SELDOM = 1.0


class Wakeups:
    """Wakes readers for commits of this process only: enough for `:memory:`, and the base class of the others."""

    def __init__(self) -> None:
        self._told = threading.Event()
        self.stopped = False
        self.reading = threading.Lock()
        """Held during each query of the log, so that closing the store can wait for the query's end."""

    def wait(self, timeout: float) -> set[str] | None:
        """Wait until there may be something new, for at most `timeout` seconds. A spurious wakeup is harmless.

        The texts of the notifications that came, none if nothing happened. None if it is unknown what happened.
        """
        self.pause(min(timeout, _SELDOM))  # commits of the host's own transactions are not announced here
        return None

    def pause(self, seconds: float) -> bool:
        """Wait for `seconds`, or until `tell` or `stop` is called; True if one of them was."""
        told = self._told.wait(seconds)
        if told:  # cleared only if it was seen: a `tell` after the timeout must end the next wait
            self._told.clear()
        return told

    def found(self) -> None:
        """Note that a query of the log returned events."""

    def tell(self) -> None:
        """Wake the waiting reader, from another thread."""
        self._told.set()

    def stop(self) -> None:
        """Stop all waiting and querying, from another thread."""
        self.stopped = True
        self._told.set()

    def close(self) -> None:
        """Release the connections and sockets that this object holds."""


class Polling(Wakeups):
    """Polls the log: every 50 ms while there are events, slowing down to once a second while there are none."""

    def __init__(self) -> None:
        super().__init__()
        self._interval = _LOOK_AGAIN

    def found(self) -> None:
        """Poll quickly again, since more events may follow soon."""
        self._interval = _LOOK_AGAIN

    def wait(self, timeout: float) -> set[str] | None:
        told = self.pause(min(timeout, self._interval))
        self._interval = _LOOK_AGAIN if told else min(self._interval * 1.5, _SELDOM)
        return None
