"""One append at a time to a session object: parallel branches of an agent share it, and each needs the one before's revision."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_LOCKS = 256


@dataclass(slots=True)
class _Turn:
    """The lock of one session object on one event loop, and how many hold it or wait for it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Turns:
    """Turns of the calls that append to one session object: in their order on an event loop, and one by one between threads."""

    def __init__(self) -> None:
        self._turns: dict[tuple[int, int], _Turn] = {}
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    @asynccontextmanager
    async def of(self, session: object) -> AsyncIterator[None]:
        """Wait for a turn on this event loop. On another one than asyncio's the lock between threads has to do."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            yield
            return
        key = (id(loop), id(session))
        turn = self._turns.setdefault(key, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[key]

    def lock_of(self, session: object) -> threading.Lock:
        """The lock between threads. Few sessions share one, and then merely wait for each other."""
        return self._locks[id(session) // 16 % _LOCKS]
