"""Fills a store with all subjects, in the order in which they happened."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from examples.filled import chats, conversations, frameworks, history, programs, queue, reviews, session_logs, telemetry, usage
from examples.filled.times import Clock, Ids, Times
from persist import NotFound, Store

MARK = "chat-checkout"
"""The id of a chat by which a filled store is known."""
SUBJECTS = (history, reviews, queue, usage, chats, conversations, telemetry, frameworks)


def is_filled(store: Store) -> bool:
    """Whether `fill` has filled the store before."""
    try:
        store.chat.sessions.get(MARK)
    except NotFound:
        return False
    return True


def is_new(store: Store) -> bool:
    """Whether a store has no chat, run, conversation or program."""
    found = (store.chat.sessions, store.workflows.runs, store.conversations.sessions, store.programs.runs)
    return not any(one.list(limit=1).items for one in found)


def fill(store: Store, now: datetime | None = None, *, session_logs_folder: Path | None = None) -> Ids:
    """Fill an empty store with two weeks that end `now`, and give names to what is in it.

    Times are those of the store's clock, if it can be set, as a `Clock` of this package and a FrozenClock can. Otherwise another
    store is opened on the same database.
    """
    with _with_past(store) as (opened, times):
        if now is not None:
            times.now = now
        ids: Ids = {}
        programs.shells(opened, times, ids)
        opened.switch_events(True)
        times.play(scene for subject in (*SUBJECTS, programs) for scene in subject.scenes(opened, times, ids))
    if session_logs_folder is not None:
        session_logs.write(session_logs_folder, times)
    return ids


@contextmanager
def _with_past(store: Store) -> Iterator[tuple[Store, Times]]:
    clock = store.runtime.clock
    if hasattr(clock, "set"):
        yield store, Times(clock, clock())
        return
    own = Clock()
    with Store.open(store.path or _server_of(store), schema=store.runtime.dialect.schema, clock=own) as opened:
        yield opened, Times(own, clock())


def _server_of(store: Store) -> str:
    return store.runtime.connections.writer.url.render_as_string(hide_password=False)
