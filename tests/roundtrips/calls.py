"""What is counted: every verb in a transaction of its own, and some everyday calls that are more than one verb."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from persist import AsyncStore, Settings, Store
from persist.errors import ReadOnlyTransaction
from persist.testing import FrozenClock
from tests.roundtrips.meter import Kept, Meter, metered
from tests.roundtrips.proxy import Flight
from tests.roundtrips.short_answer import SHORT_ANSWER
from tests.statemachines.scene import Verb, arguments, make, verbs
from tests.statemachines.single_call import tables_of

Call = Callable[[], object]

_MORE = inspect.Parameter.VAR_KEYWORD
_OWNERS = ("instance_id", "workspace_id")
"""Which of many owners a call is about, in a database that holds those of many."""
_NEEDED = {
    "chat.sessions.rewind": ("to_message_id",),
    "events.trim": ("older_than", "stream_id"),
    "histories.records.put": ("entries",),
    "programs.subagents.take_in": ("folder",),
    "telemetry.usage.sample": ("model",),
    "usage.budgets.set": ("max_cost_usd_micros",),
    "workflows.limits.set": ("concurrency",),
}
"""Arguments of which a call needs one, or which go with others."""

_NO_FOLDING = Settings(fold_ms=600_000)
"""Deltas are folded after a while by a thread of the store, whose round trips no call waits for."""


class Counted:
    """A store of each face behind a meter, on a database that holds one of everything."""

    def __init__(
        self, url: str, meter: Meter, store: Store, ids: Mapping[str, Any], async_store: AsyncStore, loop: asyncio.Runner
    ) -> None:
        self._url, self._meter, self._store, self._ids = url, meter, store, ids
        self._async_store, self._loop = async_store, loop
        self._kept: dict[str, Kept] = {}

    def verb(self, verb: Verb, bound: int) -> list[Flight]:
        """The round trips of a verb with an argument for every parameter, in a transaction of its own."""
        return self._in_transaction(verb, arguments(verb, self._ids), bound)

    def ways(self, verb: Verb, bound: int) -> dict[str, list[Flight]]:
        """Those of the verb as it can be called else: with the arguments that it needs alone, and outside of a transaction."""
        given = arguments(verb, self._ids)
        few = {name: value for name, value in given.items() if _is_needed(verb, name)}
        return {
            "with few arguments": self._in_transaction(verb, few, bound),
            "outside of a transaction": self._undone(verb.domain, lambda: verb.call(self._store, given), bound),
            "of an AsyncStore": self._undone(
                verb.domain, lambda: self._loop.run(_awaited(verb, self._async_store, given)), bound
            ),
        }

    def _in_transaction(self, verb: Verb, given: Mapping[str, Any], bound: int) -> list[Flight]:
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
        reading = self._meter.flights(read, bound=bound)
        if not verb.of(self._store).writes:  # type: ignore[attr-defined]  # a verb
            return reading
        return max(reading, self._undone(verb.domain, write, bound), key=len)

    def everyday(self, name: str, bound: int) -> list[Flight]:
        """The round trips of one of the `EVERYDAY` calls."""
        domain, prepare = EVERYDAY[name]
        with prepare(self._store) as call:
            return self._undone(domain, call, bound)

    def _undone(self, domain: str | None, call: Call, bound: int) -> list[Flight]:
        if domain is None:
            return self._meter.flights(call, bound=bound)
        if domain not in self._kept:
            self._kept[domain] = Kept(self._url, tables_of(domain))
        return self._meter.flights(call, bound=bound, undo=self._kept[domain].put_back)

    def close(self) -> None:
        """Close the connections that put back what calls have written, and the AsyncStore."""
        for kept in self._kept.values():
            kept.close()
        self._loop.run(self._async_store.close())


@contextmanager
def counted(url: str, *, log: bool = False) -> Iterator[Counted]:
    """The database is empty and gets one of everything. `log`: the event log is on, as verbs of the log need it."""
    clock = FrozenClock()
    with Store.open(url, clock=clock) as store:
        ids = make(store)
        if not log:
            store.switch_events(False)
    with metered(url) as meter, Store.open(meter.url, clock=clock, settings=_NO_FOLDING) as store, asyncio.Runner() as loop:
        other = loop.run(_opened(meter.url, clock))
        with closing(Counted(url, meter, store, ids, other, loop)) as calls:
            yield calls


async def _opened(url: str, clock: FrozenClock) -> AsyncStore:
    return await AsyncStore.open(url, clock=clock, settings=_NO_FOLDING)


async def _awaited(verb: Verb, store: AsyncStore, given: Mapping[str, Any]) -> None:
    await verb.call(store, given)


def _is_needed(verb: Verb, name: str) -> bool:
    """Whether the call of a verb is refused without this argument."""
    needed = verb.parameters[name].default is inspect.Parameter.empty and verb.parameters[name].kind is not _MORE
    return needed or name in _OWNERS or name in _NEEDED.get(verb.name, ())


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
    store.chat.sessions.create(agent="build", model={}, id="recorded")
    with store.record("recorded") as recorder:
        recorder.feed_many(SHORT_ANSWER[:2])
        yield lambda: recorder.feed(SHORT_ANSWER[2])


@contextmanager
def _answer(store: Store) -> Iterator[Call]:
    def call() -> None:
        with store.record("chat") as recorder:
            recorder.feed_many(SHORT_ANSWER)

    yield call


@contextmanager
def _said(store: Store) -> Iterator[Call]:
    def call() -> None:
        with store.begin() as tx:
            tx.conversations.messages.put({"id": "new", "created_at": 1_700_000_000.5, "role": "user", "content": "x"})
            tx.conversations.progressions.append("list", "new")

    yield call


@contextmanager
def _talk(store: Store) -> Iterator[Call]:
    def call() -> None:
        store.messaging.sessions.get_or_create(platform="slack", channel_id="C2", user_id="U2")

    yield call


@contextmanager
def _transcript(store: Store) -> Iterator[Call]:
    def call() -> None:
        store.chat.messages.list("chat")

    yield call


@contextmanager
def _load(store: Store) -> Iterator[Call]:
    with store.read() as tx:
        found = [loaded.checkpoint for loaded in (tx.checkpoints.states.find("thread"),) if loaded is not None]

    def call() -> None:
        store.checkpoints.states.load(found)

    yield call


EVERYDAY: dict[str, tuple[str | None, Callable[[Store], Any]]] = {
    "an empty begin()": (None, _empty_transaction),
    "a recorded chunk": (None, _chunk),
    "a whole short answer": ("chat", _answer),
    "chat.messages.list of a whole session": (None, _transcript),
    "checkpoints.states.load of one": (None, _load),
    "messaging.sessions.get_or_create of a new one": ("messaging", _talk),
    "conversations.messages.put and progressions.append": ("conversations", _said),
}
"""Each with what prepares it and the domain whose rows are put back after it; None where it can be called again anyhow."""
