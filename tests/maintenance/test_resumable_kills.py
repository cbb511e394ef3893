"""Resumable copies whose process is killed at any moment, and whose connections are lost: nothing is lost, nothing is twice."""

import random
from pathlib import Path

import psycopg
import pytest

from persist import CopyUnfinished, Store, Unavailable
from persist.maintenance import copy_resumably
from persist.testing import FrozenClock
from tests.maintenance.filled import filled
from tests.maintenance.moving import CROSSING, Pair, checksums, many, new_url, opened
from tests.schema.filling import transcript
from tests.schema.places import Place
from tests.subprocesses import Worker

WORKER = "tests.maintenance.resumable_worker"


def killed_after(pair: Pair, steps: int) -> bool:
    """Whether the copy had ended before it could be killed."""
    with Worker(WORKER, *pair, "3", 0) as process:
        try:
            said = [process.stdout.readline() for _ in range(steps)]
        finally:
            process.kill()
        rest, _ = process.communicate(timeout=60)
    return "done\n" in [*said, *rest.splitlines(keepends=True)]


def write(url: str, number: int) -> None:
    """Something new, something changed, something gone."""
    place = Place(url)
    with Store.open(url) as store, store.begin() as tx:
        session = tx.chat.sessions.create(agent="late", model={"model_id": "m"})
        tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": str(number)}])
        known = tx.messaging.sessions.get_or_create(platform="slack", channel_id="late", user_id="U").id
        tx.messaging.messages.add(known, role="user", content=str(number))
    named = place.named("messaging_messages")
    place.run(
        f"UPDATE {place.named('executions')} SET skill = skill || '{number}'",
        f"DELETE FROM {named} WHERE id IN (SELECT min(id) FROM {named})",
    )


def test_killed_at_any_moment(pair: Pair, clock: FrozenClock) -> None:
    place = filled(pair[0], clock)
    known = place.ask(f"SELECT min(id) FROM {place.named('messaging_sessions')}")[0][0]
    with Store.open(pair[0]) as store, store.begin() as tx:
        for number in range(60):
            tx.messaging.messages.add(known, role="user", content=str(number))
    ended = False
    for number in range(4):
        ended = killed_after(pair, random.randint(1, 60))
        if ended:
            break
        with pytest.raises(CopyUnfinished):
            Store.open(pair[1])
        write(pair[0], number)
    if not ended:
        with opened(pair[0]) as (source,):
            copy_resumably(source, pair[1], rows=3)
    with opened(*pair) as (source, target):
        assert checksums(target) == checksums(source)
        assert transcript(target) == transcript(source)


@pytest.mark.parametrize("kinds", CROSSING)
@pytest.mark.parametrize("half", ["copied", "compared"])
def test_lost_connections(request: pytest.FixtureRequest, tmp_path: Path, kinds: str, half: str) -> None:
    pair = tuple(new_url(request, kind, tmp_path, f"{number}.db") for number, kind in enumerate(kinds.split("-")))
    many(pair[0], 50)
    if half == "compared":  # so that there is something to write then
        with opened(pair[0]) as (source,), pytest.raises(KeyboardInterrupt):
            copy_resumably(source, pair[1], rows=4, progress=interrupt)
        Place(pair[0]).run(f"UPDATE {Place(pair[0]).named('messaging_messages')} SET content = content || '!'")
    server = next(url for url in pair if url.startswith("postgresql"))
    lost: list[int] = []

    def lose(table: str, done: int, total: int) -> None:
        if table == "messaging_messages" and not lost and (half == "copied" or done > total // 2):
            lost.append(done)
            with psycopg.connect(server) as raw:
                raw.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )

    with opened(pair[0]) as (source,):
        try:  # a connection that is lost between two transactions is replaced
            copy_resumably(source, pair[1], rows=4, progress=lose)
        except Unavailable:
            copy_resumably(source, pair[1], rows=4)
        assert lost
    with opened(*pair) as (source, target):
        assert checksums(target) == checksums(source)


def interrupt(table: str, done: int, total: int) -> None:
    if table == "messaging_messages" and done > total // 2:
        raise KeyboardInterrupt
