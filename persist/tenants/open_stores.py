"""The stores that a Tenants keeps open: opened once for all callers, closed when others are used more."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Generic, TypeVar

from persist.db.concurrency.fork_count import PROCESS
from persist.db.concurrency.weak_group import WeakGroup
from persist.errors import Closed, Conflict, StoreForked, StoreInUse
from persist.store.async_store import AsyncStore
from persist.store.store import Store
from persist.tenants.lent_stores import Use

S = TypeVar("S", bound=Store | AsyncStore)

MAX_OPEN = 100_000


class Kept(Generic[S]):
    """A tenant's open store, and who uses it. `face` is the store of the callers' face, over `store`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.opening = threading.Lock()
        self.store: Store | None = None
        self.face: S | None = None
        self.closed = False
        self.uses: WeakGroup[Use] = WeakGroup()

    @property
    def idle(self) -> bool:
        """Whether nobody has it, and nothing that somebody began with it goes on."""
        if self.store is None or self.face is None or self.uses.members():
            return False
        runtime = self.store.runtime
        return not (runtime.anything_open() or runtime.watchers.members())


class OpenStores(Generic[S]):
    """Keeps at most `max_open` stores open, and besides them those in use, which are never closed."""

    def __init__(
        self,
        open: Callable[[str], tuple[Store, S]],
        lend: Callable[[S, Use, Callable[[Use], list[S]]], S],
        max_open: int,
    ) -> None:
        self._open, self._lend, self._max = open, lend, max_open
        self._mutex = threading.Lock()
        self._kept: OrderedDict[str, Kept[S]] = OrderedDict()
        self._leaving: set[str] = set()
        """The tenants that are being dropped by this process, of which nobody gets a store."""
        self._forks = PROCESS.forks
        self.closed = False

    def known(self, name: str) -> S | None:
        """A use of the tenant's store if it is open already; never waits for a database."""
        self._check()
        with self._mutex:
            kept = self._kept.get(name)
            if kept is None or kept.face is None:
                return None
            self._kept.move_to_end(name)
            return self._lent(kept)

    def take(self, name: str) -> tuple[S, list[S]]:
        """A use of the tenant's store, opened if it is not open; and those stores that the caller closes for it."""
        waiting = Use()
        while True:
            self._check()
            with self._mutex:
                if name in self._leaving:
                    raise Conflict(f"The tenant {name} is being dropped.", constraint="tenant")
                kept = self._kept.get(name) or self._kept.setdefault(name, Kept(name))
                self._kept.move_to_end(name)
                kept.uses.add(waiting)
            try:
                with kept.opening:
                    if kept.closed:
                        continue
                    if kept.store is None:
                        try:
                            kept.store, kept.face = self._open(name)
                        except BaseException:
                            self._forget(kept)
                            raise
                    lent = self._lent(kept)
            finally:
                kept.uses.discard(waiting)
            return lent, self._superfluous()

    def remove(self, name: str) -> list[S]:
        """Take a tenant's store out, to be closed, if it is open. Raises StoreInUse while somebody uses it."""
        with self._mutex:
            return self._removed(name)

    @contextmanager
    def leaving(self, name: str) -> Iterator[list[S]]:
        """As `remove`, for a tenant that is dropped in this block: until its end, asking for a store of it raises Conflict."""
        with self._mutex:
            if name in self._leaving:
                raise Conflict(f"The tenant {name} is being dropped.", constraint="tenant")
            removed = self._removed(name)
            self._leaving.add(name)
        try:
            yield removed
        finally:
            with self._mutex:
                self._leaving.discard(name)

    def _removed(self, name: str) -> list[S]:
        kept = self._kept.get(name)
        if kept is None:
            return []
        if not kept.idle:
            raise StoreInUse(f"The tenant {name} is in use in this process; close its stores first.")
        return self._out([kept])

    def end(self) -> list[S]:
        """Take all stores out, to be closed; none can be opened afterwards. Raises StoreInUse while a transaction is open."""
        with self._mutex:
            for kept in self._kept.values():
                if kept.store is not None and kept.store.runtime.anything_open():
                    raise StoreInUse
            self.closed = True
            return self._out(list(self._kept.values()))

    @property
    def over(self) -> bool:
        """Whether there is nothing to close: it was closed, or this is a child of the process that made it."""
        return self.closed or self._forks != PROCESS.forks

    def __len__(self) -> int:
        return len(self._kept)

    def _lent(self, kept: Kept[S]) -> S:
        assert kept.face is not None
        use = Use()
        kept.uses.add(use)

        def give_back(use: Use) -> list[S]:
            kept.uses.discard(use)
            return self._superfluous()

        return self._lend(kept.face, use, give_back)

    def _superfluous(self) -> list[S]:
        """Take out what nobody uses above the limit, least recently used first."""
        if len(self._kept) <= self._max:
            return []
        with self._mutex:
            idle = (kept for kept in self._kept.values() if kept.idle)
            return self._out(list(islice(idle, max(0, len(self._kept) - self._max))))

    def _out(self, stores: list[Kept[S]]) -> list[S]:
        for kept in stores:
            kept.closed = True
            self._kept.pop(kept.name, None)
        return [kept.face for kept in stores if kept.face is not None]

    def _forget(self, kept: Kept[S]) -> None:
        with self._mutex:
            kept.closed = True
            if self._kept.get(kept.name) is kept:
                del self._kept[kept.name]

    def _check(self) -> None:
        if self._forks != PROCESS.forks:
            raise StoreForked("These tenants were opened before fork(); make new Tenants in the child process.")
        if self.closed:
            raise Closed("Tenants")
