"""What is counted: every verb in a transaction of its own, and some everyday calls that are more than one verb."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from persist import Settings, Store
from persist.errors import ReadOnlyTransaction
from persist.testing import FrozenClock
from tests.roundtrips.meter import Kept, Meter, metered
from tests.roundtrips.proxy import Flight
from tests.statemachines.scene import Verb, arguments, make, verbs
from tests.statemachines.single_call import tables_of

Call = Callable[[], object]

_ANSWER = (
    {"type": "start"},
    {"type": "text-start", "id": "t"},
    {"type": "text-delta", "id": "t", "delta": "Yes."},
    {"type": "text-end", "id": "t"},
    {"type": "finish"},
)
_NO_FOLDING = Settings(fold_ms=600_000)
"""Deltas are folded after a while by a thread of the store, whose round trips no call waits for."""


class Counted:
    """A store behind a meter, on a database that holds one of everything."""

    def __init__(self, url: str, meter: Meter, store: Store, ids: Mapping[str, Any]) -> None:
        self._url, self._meter, self._store, self._ids = url, meter, store, ids

    def verb(self, verb: Verb, bound: int) -> list[Flight]:
        """The round trips of a verb with an argument for every parameter, in a transaction of its own."""
        given = arguments(verb, self._ids)

        def read() -> None:
            with self._store.read() as tx:
                verb.call(tx, given)

        def write() -> None:
            with self._store.begin() as tx:
                verb.call(tx, given)

        try:
            read()
        except ReadOnlyTransaction:
            return self._undone(verb.domain, write, bound)
        return self._meter.flights(read, bound=bound)

    def everyday(self, name: str, bound: int) -> list[Flight]:
        """The round trips of one of the `EVERYDAY` calls."""
        domain, prepare = EVERYDAY[name]
        with prepare(self._store) as call:
            return self._undone(domain, call, bound)

    def _undone(self, domain: str, call: Call, bound: int) -> list[Flight]:
        kept = Kept(self._url, tables_of(domain))
        try:
            return self._meter.flights(call, bound=bound, undo=kept.put_back)
        finally:
            kept.close()


@contextmanager
def counted(url: str, *, log: bool = False) -> Iterator[Counted]:
    """The database is empty and gets one of everything. `log`: the event log is on, as verbs of the log need it."""
    clock = FrozenClock()
    with Store.open(url, clock=clock) as store:
        ids = make(store)
        if not log:
            store.switch_events(False)
    with metered(url) as meter, Store.open(meter.url, clock=clock, settings=_NO_FOLDING) as store:
        yield Counted(url, meter, store, ids)


def by_domain() -> dict[str, list[Verb]]:
    """Every public verb."""
    found: dict[str, list[Verb]] = {}
    for verb in verbs():
        found.setdefault(verb.domain, []).append(verb)
    return found


@contextmanager
def _empty_transaction(store: Store) -> Iterator[Call]:
    def call() -> None:
        with store.begin():
            pass

    yield call


@contextmanager
def _chunk(store: Store) -> Iterator[Call]:
    with store.begin() as tx:
        tx.chat.sessions.create(agent="build", model={}, id="recorded")
    with store.record("recorded") as recorder:
        recorder.feed_many(_ANSWER[:2])
        yield lambda: recorder.feed(_ANSWER[2])


@contextmanager
def _answer(store: Store) -> Iterator[Call]:
    def call() -> None:
        with store.record("chat") as recorder:
            recorder.feed_many(_ANSWER)

    yield call


@contextmanager
def _said(store: Store) -> Iterator[Call]:
    def call() -> None:
        with store.begin() as tx:
            tx.conversations.messages.put({"id": "new", "created_at": 1_700_000_000.5, "role": "user", "content": "x"})
            tx.conversations.progressions.append("list", "new")

    yield call


EVERYDAY: dict[str, tuple[str, Callable[[Store], Any]]] = {
    "an empty begin()": ("chat", _empty_transaction),
    "a recorded chunk": ("chat", _chunk),
    "a whole short answer": ("chat", _answer),
    "conversations.messages.put and progressions.append": ("conversations", _said),
}
"""Each with the domain that it writes to, and what prepares it."""
