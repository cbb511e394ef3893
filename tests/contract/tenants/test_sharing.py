"""What tenants of a Postgres server share: connections, statements, a listener; and that nothing of one reaches another."""

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from persist import Tenants
from persist.db.dialects.postgres import pipelining, shared_pool
from tests.contract.chat.scenes import create
from tests.contract.tenants.conftest import two_tenants
from tests.database_pool import Databases


@pytest.fixture
def url(databases: Databases) -> Iterator[str]:
    pool = databases.filled(two_tenants)
    url = pool.create()
    yield url
    pool.drop(url)


def connections(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as admin:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        (count,) = admin.execute(query).fetchone() or (0,)
        return int(count)


def titles(store: Any) -> list[str]:
    return [session.agent for session in store.chat.sessions.list().items]


def test_prepared_statements_of_one_connection_keep_tenants_apart(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelining, "_MAX_PREPARED", 6)
    monkeypatch.setattr(pipelining, "_MAX_LEFT_OUT", 20)
    with Tenants(url) as tenants, tenants.open("acme") as acme, tenants.open("beta") as beta:
        for number in range(30):
            acme.chat.sessions.create(agent=f"acme {number}", model={})
            beta.chat.sessions.create(agent=f"beta {number}", model={})
            assert all(name.startswith("acme") for name in titles(acme))
            assert all(name.startswith("beta") for name in titles(beta))
        assert len(acme.chat.sessions.list(limit=100).items) == len(beta.chat.sessions.list(limit=100).items) == 30


def test_recorders_of_many_tenants_hold_no_connection_between_commits(url: str) -> None:
    with Tenants(url) as tenants, tenants.open("acme") as acme, tenants.open("beta") as beta:
        recorders = [(store, store.record(create(store))) for store in (acme, beta) * 20]
        for _, recorder in recorders:
            recorder.__enter__()
            recorder.feed({"type": "text-start", "id": "t"})
        for number in range(3):
            for _, recorder in recorders:
                recorder.feed({"type": "text-delta", "id": "t", "delta": f"{number}"})
        assert connections(url) <= 2 + 2 * shared_pool._MAX_PINNED
        for _, recorder in recorders:
            recorder.__exit__(None, None, None)


def test_watchers_of_all_tenants_share_one_connection_and_hear_of_their_own_alone(url: str) -> None:
    heard: dict[str, list[str]] = {"acme": [], "beta": []}
    with Tenants(url) as tenants, tenants.open("acme") as acme, tenants.open("beta") as beta:
        stores = {"acme": acme, "beta": beta}
        for store in stores.values():
            store.switch_events(True)
        before = connections(url)
        watching = threading.Barrier(7)

        def watch(name: str) -> None:
            watching.wait()
            for event in stores[name].watch("*", timeout=60):
                if event.type == "session.created":
                    heard[name].append(event.stream_id)
                    return

        threads = [threading.Thread(target=watch, args=(name,)) for name in ("acme", "beta") * 3]
        for thread in threads:
            thread.start()
        watching.wait()
        made = {name: create(store) for name, store in stores.items()}
        for thread in threads:
            thread.join()
        assert {name: set(streams) for name, streams in heard.items()} == {name: {id} for name, id in made.items()}
        assert connections(url) <= before + 1 + 6  # the listener, and a snapshot for each reader
