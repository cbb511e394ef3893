"""A tenant moves between the nodes of a Citus cluster while recorders, workers and an agent's status log write to it, and nothing
is lost.

Collected only where `PERSIST_TEST_POSTGRES_URL` names a cluster's coordinator: see tests/distributed_server.py.
"""

import threading
from collections.abc import Callable
from datetime import timedelta

import psycopg
from psycopg import sql

from persist import PersistError, Store, Tenants
from tests.contract.chat.scenes import create

_WITHOUT_IDENTITY = """
    SELECT c.oid::regclass::text FROM pg_class c WHERE c.relnamespace = 'acme'::regnamespace AND c.relkind = 'r'
    AND c.relreplident = 'd' AND NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)"""
_NODES = "SELECT nodename, nodeport FROM pg_dist_node WHERE groupid > 0 AND isactive ORDER BY nodeid"
_PLACE = "SELECT DISTINCT nodename, nodeport FROM citus_shards WHERE table_name::text LIKE 'acme.%'"
MOVES = 3


def test_nothing_is_lost_while_a_tenant_moves(new_postgres_database: Callable[..., str]) -> None:
    url = new_postgres_database(migrated=False)
    with Tenants(url) as tenants, psycopg.connect(url, autocommit=True) as admin:
        tenants.create("acme")
        for (table,) in admin.execute(_WITHOUT_IDENTITY).fetchall():
            admin.execute(sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(sql.Identifier(*table.split("."))))
        nodes = admin.execute(_NODES).fetchall()
        over = threading.Event()
        with tenants.open("acme") as store:
            sessions = [create(store) for _ in range(3)]
            said: dict[str, list[str]] = {session: [] for session in sessions}
            done: list[str] = []
            statuses: list[int] = []
            loops = [threading.Thread(target=_record, args=(store, session, said[session], over)) for session in sessions]
            loops += [threading.Thread(target=_work, args=(store, f"w{number}", done, over)) for number in range(2)]
            loops.append(threading.Thread(target=_tell, args=(store, statuses, over)))
            for loop in loops:
                loop.start()
            places = []
            for number in range(MOVES):
                here = admin.execute(_PLACE).fetchall()
                host, port = next(node for node in nodes if node not in here)
                # logical replication: writers go on meanwhile
                admin.execute("SELECT citus_schema_move('acme', %s, %s, 'force_logical')", (host, port))
                places.append(admin.execute(_PLACE).fetchall())
                assert places[-1] == [(host, port)], number
            over.set()
            for loop in loops:
                loop.join()
            for session in sessions:
                texts = [part["text"] for message in store.chat.messages.list(session) for part in message["parts"]]
                assert len(said[session]) > MOVES
                assert set(said[session]) <= set(texts), session
            assert len(done) > MOVES
            for run in done:
                assert store.workflows.runs.get(run).status == "succeeded"
            assert len(statuses) > MOVES
            assert statuses == sorted(statuses)  # the order of the log, whichever node had the tenant
            current = store.telemetry.status.current(instance_id="box")
            assert current is not None
            assert current.id >= statuses[-1]
        tenants.drop("acme", confirm="acme")


def _record(store: Store, session: str, said: list[str], over: threading.Event) -> None:
    """Record one short answer after the other; `said` has the texts of those that were acknowledged."""
    number = 0
    while not over.is_set():
        text, number = f"{session} {number}", number + 1
        try:
            with store.record(session, takeover=True) as recorder:
                recorder.feed({"type": "text-start", "id": "t"})
                recorder.feed({"type": "text-delta", "id": "t", "delta": text})
                recorder.feed({"type": "text-end", "id": "t"})
                said.append(text)
                recorder.feed({"type": "finish"})
        except PersistError:
            continue  # what was not acknowledged may be lost


def _work(store: Store, name: str, done: list[str], over: threading.Event) -> None:
    """Queue a run, claim one and end it; `done` has the ids of those whose end was acknowledged."""
    runs = store.workflows.runs
    while not over.is_set():
        try:
            runs.create("move", trigger_id=name, current_phase="moving", status="queued")
            lease = runs.claim(name, lease=timedelta(minutes=1))
            if lease is not None:
                done.append(runs.complete(lease).id)
        except PersistError:
            continue


def _tell(store: Store, statuses: list[int], over: threading.Event) -> None:
    """Record one status after the other; `statuses` has the ids of the entries that were acknowledged."""
    number = 0
    while not over.is_set():
        number += 1
        try:
            entry = store.telemetry.status.record(str(number), instance_id="box")
        except PersistError:
            continue
        assert entry is not None
        statuses.append(entry.id)
