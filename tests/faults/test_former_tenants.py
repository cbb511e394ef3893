"""Servers that are not as they were: names of tenants that are gone, and servers of other kinds and encodings."""

import secrets
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql
from sqlalchemy import create_engine, make_url

import persist
from persist import Store
from persist.cli import main
from persist.errors import InvalidValue, PersistError, UnsupportedEngine
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


# Servers that are no Postgres and speak its protocol: played by a socket that greets as they do.


GREETINGS = {
    "CockroachDB": {"server_version": "13.0.0", "crdb_version": "CockroachDB CCL v25.2.0"},
    "YugabyteDB": {"server_version": "15.12-YB-2025.1.0.0-b0"},
}


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def _greeting(parameters: dict[str, str]) -> bytes:
    reported = {"client_encoding": "UTF8", "standard_conforming_strings": "on", **parameters}
    told = b"".join(_message(b"S", f"{name}\0{value}\0".encode()) for name, value in reported.items())
    return _message(b"R", struct.pack("!I", 0)) + told + _message(b"K", struct.pack("!II", 1, 1)) + _message(b"Z", b"I")


def _serve(listener: socket.socket, greeting: bytes) -> None:
    with suppress(OSError):
        while True:
            client = listener.accept()[0]
            with closing(client), suppress(OSError):
                client.settimeout(10)
                while client.recv(10_000)[4:8] in (_SSL, _GSS):
                    client.sendall(b"N")  # no encryption here
                client.sendall(greeting)
                client.recv(10_000)  # what it asks next, or that it has left


_SSL, _GSS = struct.pack("!I", 80877103), struct.pack("!I", 80877104)


@pytest.fixture
def greet() -> Iterator[Callable[[str], str]]:
    """A function that starts a server of that name and gives its URL."""
    with ExitStack() as stack:

        def start(name: str) -> str:
            listener = stack.enter_context(closing(socket.create_server(("127.0.0.1", 0))))
            thread = threading.Thread(target=_serve, args=(listener, _greeting(GREETINGS[name])), daemon=True)
            thread.start()
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
            return f"postgresql://somebody@127.0.0.1:{listener.getsockname()[1]}/any"

        yield start


@pytest.mark.parametrize("name", GREETINGS)
def test_a_store_is_refused_by_name(greet: Callable[[str], str], name: str) -> None:
    with pytest.raises(UnsupportedEngine, match="LISTEN and NOTIFY, LOCK TABLE, and advisory locks") as refused:
        Store.open(greet(name))
    assert refused.value.found == name


@pytest.mark.parametrize("name", GREETINGS)
def test_a_hosts_engine_is_refused_by_name(greet: Callable[[str], str], name: str) -> None:
    engine = create_engine(greet(name).replace("postgresql:", "postgresql+psycopg:"), _initialize=False)
    try:
        with pytest.raises(UnsupportedEngine) as refused:
            Store.from_engine(engine)
    finally:
        engine.dispose()
    assert refused.value.found == name


@pytest.mark.parametrize("name", GREETINGS)
def test_an_upgrade_is_refused_by_name(greet: Callable[[str], str], name: str) -> None:
    ended = CliRunner().invoke(main, ["upgrade", "--url", greet(name)])
    assert ended.exit_code == 1
    assert ended.output.startswith(f"Error: {name}: it lacks LISTEN")


SAID = "日本, ä, €"


@pytest.mark.parametrize("encoding", ["latin1", "SQL_ASCII", "utf8"])
def test_text_is_kept_whatever_encoding_the_url_names(postgres_url: str, encoding: str) -> None:
    url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}client_encoding={encoding}"
    with Store.open(url) as store:
        session = store.chat.sessions.create(agent=SAID, model={})
        with store.record(session.id) as recorder:
            recorder.feed_many([{"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": SAID}])
        assert store.chat.sessions.get(session.id).agent == SAID
        assert store.chat.messages.list(session.id)[0]["parts"][0]["text"] == SAID


def test_text_is_kept_whatever_encoding_the_environment_names(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "latin1")
    with Store.open(postgres_url) as store:
        session = store.chat.sessions.create(agent=SAID, model={})
        assert store.chat.sessions.get(session.id).agent == SAID


def test_the_encoding_of_a_hosts_connections_is_named(postgres_url: str) -> None:
    """Half a surrogate pair is what UTF-8 lacks; another encoding lacks more."""
    engine = create_engine(
        make_url(postgres_url).set(drivername="postgresql+psycopg"), connect_args={"client_encoding": "latin1"}
    )
    with Store.from_engine(engine) as store:
        with pytest.raises(InvalidValue, match="encoding, latin-1, lacks a character"):
            store.chat.sessions.create(agent=SAID, model={})
        with pytest.raises(InvalidValue, match="lone surrogate half"):
            store.chat.sessions.create(agent="\ud800", model={})
        assert store.chat.sessions.create(agent="ä", model={}).agent == "ä"
    engine.dispose()
