"""Tenants in processes of their own: races, and kills in the middle of what they do; rows that are deleted while others begin."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from sqlalchemy import text

from persist import Conflict, Store, Tenants, UnknownTenant
from persist.framework_state.agent_tasks.schemas import Piece
from persist.framework_state.app_sessions.schemas import ArtifactKey, NewEvent
from persist.framework_state.checkpoints.schemas import Blob
from persist.schema import migrate
from persist.tenants.placing import UpgradeStatus
from tests.concurrency.test_conversation_pruning import postgres, until_it_waits
from tests.contract.chat.scenes import create
from tests.subprocesses import Worker


@pytest.fixture
def face() -> str:
    return "sync"


def start(url: str, point: str, verb: str, *arguments: str, map_url: str = "") -> Worker:
    worker = Worker("tests.concurrency.tenant_worker", url, map_url, point, verb, *arguments, stdin=True)
    assert worker.stdout.readline() == "ready\n"
    return worker


def kill(url: str, point: str, verb: str, *arguments: str, map_url: str = "") -> None:
    """Have a process do that, and kill it at the point."""
    worker = start(url, point, verb, *arguments, map_url=map_url)
    worker.tell()
    assert worker.stdout.readline() == "there\n"
    worker.close()


def sessions(tenants: Tenants, name: str) -> list[str]:
    with tenants.open(name) as store:
        return [session.id for session in store.chat.sessions.list().items]


def test_of_processes_that_create_a_tenant_together_one_succeeds(server_url: str) -> None:
    workers = [start(server_url, "", "create", "gamma") for _ in range(3)]
    for worker in workers:
        worker.tell()
    assert sorted(worker.communicate()[0].strip() for worker in workers) == ["Conflict", "Conflict", "done"]
    with Tenants(server_url) as tenants:
        assert sessions(tenants, "gamma") == []


def test_a_forked_child_leaves_the_tenants_to_its_parent(server_url: str) -> None:
    worker = start(server_url, "", "fork")
    worker.tell()
    assert worker.communicate()[0].strip() == "done"
    with Tenants(server_url) as tenants:
        assert len(sessions(tenants, "acme")) == 2


def test_a_creation_that_is_killed_leaves_no_tenant_and_is_done_again(server_url: str) -> None:
    kill(server_url, "before the commit of create", "create", "gamma")
    with Tenants(server_url) as tenants:
        assert not tenants.exists("gamma")
        assert [tenant.name for tenant in tenants.list().items] == ["acme", "beta"]
        with pytest.raises(UnknownTenant):
            tenants.open("gamma")
        tenants.create("gamma")
        assert sessions(tenants, "gamma") == []


def test_a_drop_that_is_killed_leaves_the_tenant_whole(server_url: str) -> None:
    with Tenants(server_url) as tenants:
        with tenants.open("acme") as store:
            session = create(store)
        tenants.close()
    kill(server_url, "before the commit of drop", "drop", "acme")
    with Tenants(server_url) as tenants:
        assert sessions(tenants, "acme") == [session]
        tenants.drop("acme", confirm="acme")
        assert not tenants.exists("acme")


@pytest.mark.parametrize("point", ["between creating and copying", "before the commit of copy"])
def test_a_copy_that_is_killed_is_refused_until_it_is_done_again(server_url: str, empty_server: str, point: str) -> None:
    with Tenants(server_url) as tenants, Tenants(empty_server) as others:
        with tenants.open("acme") as store:
            session = create(store)
        kill(server_url, point, "copy", "acme", empty_server)
        with pytest.raises(Conflict, match="copy again"):
            others.open("acme")
        assert tenants.copy("acme", empty_server).tables["chat_sessions"] == 1
        assert sessions(others, "acme") == [session]


@pytest.mark.parametrize("point", ["in the map", "created and not in the map"])
def test_a_mapped_creation_that_is_killed_is_ended_by_the_next_one(server_url: str, tmp_path: Path, point: str) -> None:
    map_url = f"sqlite:///{(tmp_path / 'map.db').as_posix()}"
    kill(server_url, point, "create", "gamma", map_url=map_url)
    with Tenants({"only": server_url}, map_url=map_url) as tenants:
        assert not tenants.exists("gamma")
        with pytest.raises(Conflict, match="create it again"):
            tenants.open("gamma")
        tenants.create("gamma")
        assert sessions(tenants, "gamma") == []
        with pytest.raises(Conflict, match="exists already"):
            tenants.create("gamma")


OLD = "0023"
"""The last revision without `workflow_limits`."""


def outdated(url: str, *names: str) -> None:
    """Make tenants as an older release made them."""
    with Tenants(url) as tenants:
        for name in names:
            server = next(iter(tenants._directory.servers.by_key.values()))
            dialect = server.dialect(name, new=True)
            with migrate._transaction(dialect) as connection:
                settings = migrate.config()
                settings.attributes.update(connection=connection, schema=dialect.schema)
                command.upgrade(settings, OLD)
            dialect.connections.dispose()


def in_the_way(url: str, name: str) -> None:
    """Have a table there that a later revision wants to create."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(f"{url.removeprefix('sqlite:///')}/{name}.db")) as raw:
            raw.execute("CREATE TABLE workflow_limits (id INTEGER)")
    else:
        with psycopg.connect(url, autocommit=True) as raw:
            raw.execute(f"CREATE TABLE {name}.workflow_limits (id INTEGER)")


def test_an_upgrade_of_all_goes_on_after_a_kill_and_past_a_failure(server_url: str) -> None:
    outdated(server_url, "old_1", "old_2", "old_3")
    in_the_way(server_url, "old_2")
    kill(server_url, "after the first upgrade", "upgrade_all")
    with Tenants(server_url) as tenants:
        told: list[str] = []
        report = tenants.upgrade_all(parallel=2, progress=lambda outcome: told.append(outcome.tenant))
        assert sorted(told) == ["acme", "beta", "old_1", "old_2", "old_3"]
        status = {outcome.tenant: outcome.status.value for outcome in report.outcomes}
        current = {"acme": "current", "beta": "current", "old_1": "current"}
        assert status == {**current, "old_2": "failed", "old_3": "upgraded"}
        assert [(outcome.tenant, outcome.found) for outcome in report.failed] == [("old_2", OLD)]
        assert "workflow_limits" in (report.failed[0].error or "")
        assert tenants.upgrade_all(parallel=1).count(UpgradeStatus.CURRENT) == 4
        for name in ("old_1", "old_3"):
            assert sessions(tenants, name) == []


# Something is deleted in the very moment in which another connection makes it: it stays, and neither fails.


FILE = ArtifactKey("app", "u", "s", "f")
PIECES = [Piece("history", 0, 0, b"hi")]


def talk(tx: Any) -> None:
    tx.app_sessions.sessions.create("app", "u", "s")
    tx.app_sessions.sessions.append("app", "u", "s", NewEvent("1", 1.0, "{}"))


Case = tuple[str, Callable[[Any], Any], Callable[[Any], Any]]
CASES: dict[str, Case] = {
    "artifact": (
        "app_artifacts",
        lambda tx: tx.app_sessions.artifacts.save(FILE, "{}"),
        lambda store: store.app_sessions.artifacts.delete(FILE),
    ),
    "artifact of a user": (
        "app_artifacts",
        lambda tx: tx.app_sessions.artifacts.save(FILE, "{}"),
        lambda store: store.app_sessions.sessions.erase_user("app", "u"),
    ),
    "session": ("app_user_sessions", talk, lambda store: store.app_sessions.sessions.delete("app", "u", "s")),
    "session of a user": ("app_user_sessions", talk, lambda store: store.app_sessions.sessions.erase_user("app", "u")),
    "task": (
        "agent_task_records",
        lambda tx: tx.agent_tasks.tasks.save("ann", "t", state="working", head=b"", pieces=PIECES),
        lambda store: store.agent_tasks.tasks.delete("ann", "t"),
    ),
    "thread": (
        "checkpoint_threads",
        lambda tx: tx.checkpoints.states.put("t", "1", head=Blob("json", b"{}")),
        lambda store: store.checkpoints.threads.delete("t"),
    ),
    "stream": (
        "replay_sessions",
        lambda tx: tx.replay_streams.messages.append("s", "1", "{}"),
        lambda store: store.replay_streams.sessions.delete("s"),
    ),
}


@postgres
@pytest.mark.parametrize("case", CASES)
def test_what_begins_in_that_moment_stays(store: Store, database_url: str, case: str) -> None:
    table, make, remove = CASES[case]
    with ThreadPoolExecutor(1) as pool:
        with store.begin() as tx:
            # others may read and lock its rows, and wait where they would delete one
            tx._work.select(text(f"LOCK TABLE persist.{table} IN SHARE MODE"))
            removing = pool.submit(remove, store)
            until_it_waits(database_url, removing)
            make(tx)
        assert not removing.result()
    assert remove(store)
