"""The name of a tenant that is gone, or has another name now, gives nobody the rows of that tenant."""

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

import persist
from persist import Store
from persist.errors import PersistError
from persist.maintenance import doctor
from persist.schema.grants import SHARED, tenant_removal_script, tenant_script
from persist.schema.metadata import metadata
from persist.testing import FrozenClock
from tests.statemachines.scene import make

SECRET = "swordfish-4711"
TABLES = [table.name for table in metadata.sorted_tables if table.name not in SHARED]


@pytest.fixture
def owner(empty_postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the owner of the tables, whose log of events is on."""
    persist.upgrade(empty_postgres_url)
    with Store.open(empty_postgres_url, events=True):
        pass
    with psycopg.connect(empty_postgres_url, autocommit=True) as raw:
        yield raw


@pytest.fixture
def tenant(owner: psycopg.Connection[Any]) -> Iterator[Callable[[str], None]]:
    """Make a tenant. Those that are there in the end are dropped."""
    made: set[str] = set()

    def new(name: str) -> None:
        made.add(name)
        owner.execute(tenant_script(name, owner=owner.info.user))

    yield new
    for name in made:
        drop(owner, name)


def drop(owner: psycopg.Connection[Any], name: str) -> None:
    if owner.execute("SELECT FROM pg_roles WHERE rolname = %s", [name]).rowcount:
        owner.execute(told("DROP OWNED BY {} CASCADE", name))
        owner.execute(told("DROP ROLE {}", name))


def told(script: Any, *names: str) -> sql.Composed:
    return sql.SQL(script).format(*map(sql.Identifier, names))


def rows_of(owner: psycopg.Connection[Any], name: str) -> int:
    counts = (owner.execute(told("SELECT FROM persist.{} WHERE row_of_role = %s", table), [name]).rowcount for table in TABLES)
    return sum(counts)


def test_a_name_is_refused_while_rows_of_it_are_there(
    owner: psycopg.Connection[Any], tenant: Callable[[str], None], empty_postgres_url: str
) -> None:
    otto, renamed, maria = (f"persist-'{kind}'-{secrets.token_hex(4)}" for kind in ("otto", "renamed", "maria"))
    tenant(otto)
    tenant(maria)
    his, hers = (make_url(empty_postgres_url).set(username=name).render_as_string(hide_password=False) for name in (otto, maria))
    with Store.open(hers) as store:
        kept = store.chat.sessions.create(agent="a", model={}, owner="maria").id
    with Store.open(his, clock=FrozenClock()) as store:
        make(store)
        session = store.chat.sessions.create(agent="a", model={"a": SECRET}).id
        store.programs.bindings.bind(store.programs.runs.create().id, "goal", SECRET)
    before = rows_of(owner, maria)
    owner.execute(told("ALTER ROLE {} RENAME TO {}", otto, renamed))
    for _ in range(2):  # he has another name, and then none
        with pytest.raises(psycopg.errors.RaiseException, match=f"rows of a former tenant {otto} are still there, in the table"):
            tenant(otto)
        owner.rollback()
        assert owner.execute("SELECT FROM pg_roles WHERE rolname = %s", [otto]).rowcount == 0
        drop(owner, renamed)
    assert rows_of(owner, otto) > 50
    for _ in range(2):
        owner.execute(tenant_removal_script(otto))
        assert rows_of(owner, otto) == 0
    tenant(otto)
    for table in metadata.sorted_tables:
        found = owner.execute(told("SELECT t.*::text FROM persist.{} t", table.name)).fetchall()
        assert SECRET not in str(found), table.name
    assert rows_of(owner, maria) == before
    with Store.open(his) as store, store.read() as tx:
        assert tx.chat.sessions.list().items == []
        assert list(tx.events.read(session)) == []
    with Store.open(hers) as store:
        assert store.chat.sessions.get(kept).owner == "maria"
    with Store.open(empty_postgres_url) as store:
        assert [one.code for one in doctor(store) if "row_of_role" not in one.subject] == []


def write_everywhere(store: Store, said: str) -> None:
    with store.begin(actor=said) as tx:
        tx.chat.sessions.create(id="support", agent="a", model={}, metadata={"a": said})
        tx.checkpoints.memories.put(("people", "x"), "k", {"a": said})
        tx.programs.runs.create(id="r1")
        tx.programs.bindings.bind("r1", "n", said)
        tx.usage.calls.record(model="m", owner="o", instance_id="i")
        tx.telemetry.status.record("idle", instance_id="i")
        tx.conversations.sessions.create(id="c1")


def test_whoever_comes_next_writes_under_the_same_names(
    owner: psycopg.Connection[Any], tenant: Callable[[str], None], empty_postgres_url: str
) -> None:
    """The streams of events go on with the next number, for a new tenant of the name as for another one."""
    otto, maria = (f"persist-'{kind}'-{secrets.token_hex(4)}" for kind in ("otto", "maria"))
    log = "SELECT seq, row_of_role, data::text, actor FROM persist.event_log WHERE stream_id = 'support' ORDER BY seq"
    last: list[Any] = []
    for writer, removed in ((otto, True), (otto, True), (maria, False)):
        tenant(writer)
        with Store.open(make_url(empty_postgres_url).set(username=writer).render_as_string(hide_password=False)) as store:
            write_everywhere(store, SECRET)
            with store.read() as tx:
                (event,) = tx.events.read("support")
        last.append(event.seq)
        if removed:
            owner.execute(tenant_removal_script(writer))
            drop(owner, writer)
    assert last == [1, 2, 3]
    *former, present = owner.execute(log).fetchall()
    assert [(seq, role, SECRET in data, actor) for seq, role, data, actor in former] == [
        (1, None, False, None),
        (2, None, False, None),
    ]
    assert (present[1], SECRET in present[2], present[3]) == (maria, True, SECRET)
    heads = owner.execute("SELECT seq, first_seq, row_of_role FROM persist.event_heads WHERE stream_id = 'support'").fetchall()
    assert heads == [(3, 1, maria)]
    tenant(otto)
    with Store.open(make_url(empty_postgres_url).set(username=otto).render_as_string(hide_password=False)) as store:
        assert store.chat.sessions.list().items == []
        with pytest.raises(PersistError), store.begin() as tx:  # the head is maria's now
            tx.checkpoints.memories.put(("people", "x"), "k", {})
    with psycopg.connect(make_url(empty_postgres_url).set(username=otto).render_as_string(hide_password=False)) as raw:
        hidden = "SELECT FROM persist.event_heads WHERE stream_id = 'support'"
        assert raw.execute(hidden).rowcount == 0
        raw.execute("CREATE TEMP TABLE t (x int)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            raw.execute("CREATE TRIGGER t BEFORE INSERT ON t EXECUTE FUNCTION persist.persist_tenants_take_head()")


def test_a_row_of_any_table_keeps_the_name(
    owner: psycopg.Connection[Any], tenant: Callable[[str], None], empty_postgres_url: str
) -> None:
    otto = f"persist-'otto'-{secrets.token_hex(4)}"
    writes: list[Callable[[Any], object]] = [
        lambda tx: tx.checkpoints.memories.put(("people", "x"), "k", {}),
        lambda tx: tx.telemetry.status.record("idle", instance_id="i"),
    ]
    for table, write in zip(("memories", "status_log"), writes, strict=True):
        tenant(otto)
        with Store.open(make_url(empty_postgres_url).set(username=otto).render_as_string(hide_password=False)) as store:
            store.transact(write)
        for other in ("event_log", "event_heads"):
            owner.execute(told("DELETE FROM persist.{} WHERE row_of_role = %s", other), [otto])
        drop(owner, otto)
        with pytest.raises(psycopg.errors.RaiseException, match=f"in the table {table}"):
            tenant(otto)
        owner.rollback()
        owner.execute(tenant_removal_script(otto))
