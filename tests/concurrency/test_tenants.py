"""Tenants in processes of their own: races, and kills in the middle of what they do."""

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from alembic import command

from persist import Conflict, Tenants, UnknownTenant
from persist.schema import migrate
from persist.tenants.placing import UpgradeStatus
from tests.contract.chat.scenes import create
from tests.subprocesses import Worker


@pytest.fixture
def face() -> str:
    return "sync"


def start(url: str, point: str, verb: str, *arguments: str, map_url: str = "") -> Worker:
    worker = Worker("tests.concurrency.tenant_worker", url, map_url, point, verb, *arguments, stdin=True)
    assert worker.stdout.readline() == "ready\n"
    return worker


def go(worker: Worker) -> None:
    assert worker.stdin is not None
    worker.stdin.write("\n")
    worker.stdin.flush()


def kill(url: str, point: str, verb: str, *arguments: str, map_url: str = "") -> None:
    """Have a process do that, and kill it at the point."""
    worker = start(url, point, verb, *arguments, map_url=map_url)
    go(worker)
    assert worker.stdout.readline() == "there\n"
    worker.close()


def sessions(tenants: Tenants, name: str) -> list[str]:
    with tenants.open(name) as store:
        return [session.id for session in store.chat.sessions.list().items]


def test_of_processes_that_create_a_tenant_together_one_succeeds(server_url: str) -> None:
    workers = [start(server_url, "", "create", "gamma") for _ in range(3)]
    for worker in workers:
        go(worker)
    assert sorted(worker.communicate()[0].strip() for worker in workers) == ["Conflict", "Conflict", "done"]
    with Tenants(server_url) as tenants:
        assert sessions(tenants, "gamma") == []


def test_a_forked_child_leaves_the_tenants_to_its_parent(server_url: str) -> None:
    worker = start(server_url, "", "fork")
    go(worker)
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
