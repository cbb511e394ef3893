"""How long a prune of one chat, or one conversation, of 200,000 messages holds what writers wait for: its longest transaction.

On SQLite every writer waits for it, on Postgres only one that needs the same rows. Beside it another process writes messages.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import persist
from benchmarks import filling
from benchmarks.growth import chat
from benchmarks.measure import Row, us
from benchmarks.place import Place
from persist import Store
from persist.maintenance import prune, steps
from tests.maintenance.writing import make_sessions, writing

MESSAGES, MESSAGES_QUICKLY = 200_000, 10_000
_LIMIT_MS = 200.0
_TOGETHER = 1_000
_LONG_AGO = datetime(2025, 1, 1, tzinfo=UTC)
_LATER = datetime(2026, 1, 1, tzinfo=UTC)


def rows(place: Place) -> Iterator[Row]:
    """On both databases, alone and beside the other process; a shorter chat for a quick look."""
    messages = MESSAGES_QUICKLY if place.quick else MESSAGES
    for beside in (False, True):
        yield _pruned(place.file(f"holding-{beside}"), messages, "", beside=beside)
    yield _conversation(place.file("holding-conversation"), messages, "")
    if place.postgres is not None:
        for beside in (False, True):
            yield _pruned(place.postgres, messages, "Postgres: ", beside=beside)
        yield _conversation(place.postgres, messages, "Postgres: ")


def _pruned(url: str, messages: int, where: str, *, beside: bool) -> Row:
    persist.upgrade(url)
    name = f"{where}prune of a chat of {messages:,} messages"
    lite = url.startswith("sqlite")
    filling.fill(url, None, ("chat_sessions", "chat_messages", "chat_parts"), tuple(chat(messages, lite=lite)))
    with Store.open(url) as store:
        if lite or not beside:  # on the server they are there
            make_sessions(store)
        other: AbstractContextManager[dict[str, Any]] = writing(url) if beside else nullcontext({})
        with other as writer, _timed() as held:
            began = time.perf_counter()
            report = prune(store, "chat", older_than=_LATER)
            took = time.perf_counter() - began
    if beside:
        waited = sorted(writer["seconds"])
        detail = f"{us(waited[len(waited) // 2])} in the median of {len(waited):,} writes, {writer['errors']} errors"
        return Row(f"{name}, the longest write of another process beside it", waited[-1] * 1000, _LIMIT_MS, detail, unit=" ms")
    return _longest(name, held, report.total, took)


def _conversation(url: str, messages: int, where: str) -> Row:
    persist.upgrade(url)
    with Store.open(url, clock=lambda: _LONG_AGO) as store:
        ids = [f"message-{number:07}" for number in range(messages)]
        with store.begin() as tx:
            branch = tx.conversations.branches.create(tx.conversations.sessions.create(status="completed").id)
        for start in range(0, messages, _TOGETHER):
            said: list[dict[str, Any]] = [
                {"id": id, "created_at": 1.5, "role": "user", "content": "word " * 20} for id in ids[start : start + _TOGETHER]
            ]
            with store.begin() as tx:
                tx.conversations.messages.put_many(said, progression_ids=[branch.progression_id])
    with Store.open(url) as store, _timed() as held:
        began = time.perf_counter()
        report = prune(store, "conversations", older_than=_LATER)
        took = time.perf_counter() - began
    return _longest(f"{where}prune of a conversation of {messages:,} messages", held, report.total, took)


def _longest(name: str, held: list[float], rows: int, took: float) -> Row:
    detail = f"{rows:,} rows in {len(held):,} transactions and {took:.1f} s"
    return Row(f"{name}, its longest transaction", max(held) * 1000, _LIMIT_MS, detail, unit=" ms")


@contextmanager
def _timed() -> Iterator[list[float]]:
    """The seconds that each transaction which writes takes, from its first lock to its commit."""
    held: list[float] = []
    step = steps._Steps.__call__

    def timed(self: Any, do: Any, /, *, writes: bool = True) -> Any:
        result = step(self, do, writes=writes)
        if writes and getattr(do, "__name__", "") != "prepare":  # locks nothing
            held.append(self._held)
        return result

    with mock.patch.object(steps._Steps, "__call__", timed):
        yield held
