"""How long a prune of one chat of 200,000 messages holds what writers wait for: its longest transaction.

On SQLite every writer waits for it, on Postgres only one that needs the same rows. Beside it another process writes messages.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import persist
from benchmarks import filling
from benchmarks.growth import chat
from benchmarks.measure import Row, us
from benchmarks.place import Place
from persist import Store
from persist.maintenance import prune
from tests.maintenance.writing import make_sessions, writing

MESSAGES, MESSAGES_QUICKLY = 200_000, 10_000
_LIMIT_MS = 200.0
_LATER = datetime(2026, 1, 1, tzinfo=UTC)


def rows(place: Place) -> Iterator[Row]:
    """On both databases, alone and beside the other process; a shorter chat for a quick look."""
    messages = MESSAGES_QUICKLY if place.quick else MESSAGES
    for beside in (False, True):
        yield _pruned(place.file(f"holding-{beside}"), messages, "", beside=beside)
    if place.postgres is not None:
        for beside in (False, True):
            yield _pruned(place.postgres, messages, "Postgres: ", beside=beside)


def _pruned(url: str, messages: int, where: str, *, beside: bool) -> Row:
    persist.upgrade(url)
    name = f"{where}prune of a chat of {messages:,} messages"
    lite = url.startswith("sqlite")
    filling.fill(url, None, ("chat_sessions", "chat_messages", "chat_parts"), tuple(chat(messages, lite=lite)))
    held: list[float] = []

    def pause(seconds: float) -> None:
        """On SQLite a prune pauses for as long as its last transaction held the lock."""
        held.append(seconds)
        time.sleep(seconds)

    with Store.open(url, sleep=pause) as store:
        if lite or not beside:  # on the server they are there
            make_sessions(store)
        ends = [time.perf_counter()]
        other: AbstractContextManager[dict[str, Any]] = writing(url) if beside else nullcontext({})
        with other as writer:
            if not lite:
                prune(store, "chat", older_than=_LATER, dry_run=True)
                ends = [time.perf_counter()]
            report = prune(store, "chat", older_than=_LATER, progress=lambda gone: ends.append(time.perf_counter()))
    if beside:
        waited = sorted(writer["seconds"])
        detail = f"{us(waited[len(waited) // 2])} in the median of {len(waited):,} writes, {writer['errors']} errors"
        return Row(f"{name}, the longest write of another process beside it", waited[-1] * 1000, _LIMIT_MS, detail, unit=" ms")
    longest = max(held if lite else (after - before for before, after in pairwise(ends)))
    detail = f"{report.total:,} rows in {len(ends) - 1:,} transactions and {ends[-1] - ends[0]:.1f} s"
    return Row(f"{name}, its longest transaction", longest * 1000, _LIMIT_MS, detail, unit=" ms")
