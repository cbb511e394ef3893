"""How a reader of the log learns that there is more: it waits here between one look and the next."""

import threading

_LOOK_AGAIN = 0.05
_SELDOM = 1.0


class Wakeups:
    """Told by this process alone: what the one connection of `:memory:` needs, and the base of the others."""

    def __init__(self) -> None:
        self._told = threading.Event()
        self.stopped = False
        self.reading = threading.Lock()
        """Held during each look, so that a store that closes can wait for its end."""

    def wait(self, timeout: float) -> None:
        """Until something may have happened, or `timeout` seconds at most; coming back for nothing is harmless."""
        self.pause(min(timeout, _SELDOM))  # of a transaction of the host's we hear nothing

    def pause(self, seconds: float) -> bool:
        """Wait, whatever happens elsewhere; true where `tell` or `stop` ended it."""
        told = self._told.wait(seconds)
        if told:  # and only then: what is told after the time was over ends the next wait
            self._told.clear()
        return told

    def found(self) -> None:
        """A look brought something."""

    def tell(self) -> None:
        """From another thread: something happened."""
        self._told.set()

    def stop(self) -> None:
        """From another thread: nobody is to look or wait any more."""
        self.stopped = True
        self._told.set()

    def close(self) -> None:
        """Give up what it holds."""


class Polling(Wakeups):
    """Nobody tells: a look every 50 ms while things happen, and up to every second while they do not."""

    def __init__(self) -> None:
        super().__init__()
        self._interval = _LOOK_AGAIN

    def found(self) -> None:
        """The look before brought something: more may come soon."""
        self._interval = _LOOK_AGAIN

    def wait(self, timeout: float) -> None:
        told = self.pause(min(timeout, self._interval))
        self._interval = _LOOK_AGAIN if told else min(self._interval * 1.5, _SELDOM)
