"""What the roles of `persist grants` may do on Postgres, and what they are refused."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from hashlib import sha256
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql
from sqlalchemy import make_url

import persist
from persist import Store
from persist.cli import main
from persist.db.changes.journal import place_of
from persist.db.dialects.interface import Severity
from persist.errors import Conflict, InvalidValue, NotFound, NotPermitted, PersistError
from persist.maintenance import doctor, erase, maintain, prune
from persist.schema.grants import SHARED, grant_script, tenant_removal_script, tenant_script
from persist.schema.metadata import metadata
from persist.schema.subagent_roles import RoleKind
from persist.testing import FrozenClock
from tests.cases import each
from tests.distributed_server import takes_triggers
from tests.statemachines.both_databases import Undo
from tests.statemachines.scene import arguments, make, verbs

ABOUT: dict[str, Any] = {"trigger_id": "issue/1", "current_phase": "plan"}
Role = Callable[[str], str]
SHARED_STREAMS = sorted({rule.shared for rule in map(place_of, metadata.sorted_tables) if rule is not None} | {"*"})
COUNTED = {
    "event_heads": "stream_id IN (" + ", ".join(f"'{stream}'" for stream in SHARED_STREAMS) + ")",
    "exchange_cursors": "(owner = '' AND channel = '')",
}
"""The rows that tenants count on together, by table."""


@pytest.fixture
def role(empty_postgres_url: str) -> Iterator[Role]:
    """`role(name)`: the URL of that role, which is dropped in the end."""
    with ExitStack() as stack:

        def url_of(name: str) -> str:
            stack.callback(_drop, empty_postgres_url, name)
            return make_url(empty_postgres_url).set(username=name).render_as_string(hide_password=False)

        yield url_of


def _drop(url: str, name: str) -> None:
    with psycopg.connect(url) as raw:
        raw.execute(sql.SQL("DROP OWNED BY {0} CASCADE; DROP ROLE {0}").format(sql.Identifier(name)))


def new_name(kind: str) -> str:
    """Roles are of the whole server, which tests share."""
    return f'persist-"{kind}"-{secrets.token_hex(4)}'


def run(url: str, script: str) -> None:
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute(script)


@pytest.fixture
def granted(empty_postgres_url: str, role: Role) -> dict[RoleKind, str]:
    """A database that the owner's role has made, and the URL of each role. Each script is run twice."""
    names = {kind: new_name(kind) for kind in RoleKind if kind is not RoleKind.SUBAGENT or takes_triggers(empty_postgres_url)}
    urls = {kind: role(name) for kind, name in names.items()}
    owner = names[RoleKind.OWNER]
    for kind, name in names.items():
        for _ in range(2):
            run(empty_postgres_url, grant_script(kind, role=name, owner=owner))
        if kind is RoleKind.OWNER:
            persist.upgrade(urls[kind])
    return urls


def test_who_may_make_roles_makes_the_owner_of_a_new_database(empty_postgres_url: str, role: Role) -> None:
    """As the administrators of managed services, who are no superusers."""
    admin, owner = new_name("admin"), new_name("owner")
    url, owners = role(admin), role(owner)
    name = sql.Identifier(admin)
    with psycopg.connect(empty_postgres_url, autocommit=True) as raw:
        raw.execute(sql.SQL("CREATE ROLE {} LOGIN CREATEROLE").format(name))
        database = sql.Identifier(raw.info.dbname)
        raw.execute(sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(database, name))
    for _ in range(2):
        run(url, grant_script(RoleKind.OWNER, role=owner, owner=owner))
    persist.upgrade(owners)
    with psycopg.connect(empty_postgres_url, autocommit=True) as raw:
        raw.execute("CREATE MATERIALIZED VIEW persist.mine AS SELECT 1 AS one")
    run(empty_postgres_url, grant_script(RoleKind.OWNER, role=owner, owner=owner))
    with psycopg.connect(empty_postgres_url) as raw:
        theirs = "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 'persist'::regnamespace"
        assert raw.execute(theirs).fetchall() == [(owner,)]


def test_the_owner_upgrades_and_switches_the_log(granted: dict[RoleKind, str]) -> None:
    persist.upgrade(granted[RoleKind.OWNER])
    with Store.open(granted[RoleKind.OWNER], events=True) as store:
        assert store.switch_events(False)


def refused_verbs(store: Store, ids: Any) -> list[str]:
    """Call every verb; the names of those that this role is not permitted to call."""
    refused = []
    for verb in verbs():
        try:
            with store.begin() as tx:
                verb.call(tx, arguments(verb, ids))
                raise Undo
        except Undo:
            pass
        except NotPermitted:
            refused.append(verb.name)
    return refused


def test_a_program_may_call_every_verb(granted: dict[RoleKind, str]) -> None:
    with Store.open(granted[RoleKind.OWNER], clock=FrozenClock()) as store:
        ids = make(store)
    with Store.open(granted[RoleKind.APP], clock=FrozenClock()) as store:
        assert refused_verbs(store, ids) == []
        with pytest.raises(NotPermitted):
            store.switch_events(False)
    with psycopg.connect(granted[RoleKind.APP]) as raw, pytest.raises(psycopg.errors.InsufficientPrivilege):
        raw.execute("DROP TABLE persist.workflow_runs")


def test_who_only_reads_writes_nothing(granted: dict[RoleKind, str]) -> None:
    with Store.open(granted[RoleKind.OWNER]) as store:
        run_id = store.workflows.runs.create("triage", **ABOUT).id
    with Store.open(granted[RoleKind.READ_ONLY], read_only=True) as store, store.read() as tx:
        assert tx.workflows.runs.get(run_id).id == run_id
    with Store.open(granted[RoleKind.READ_ONLY]) as store, pytest.raises(NotPermitted):
        store.workflows.runs.create("triage", **ABOUT)


def test_who_watches_reads_the_log_and_no_row(granted: dict[RoleKind, str]) -> None:
    with Store.open(granted[RoleKind.OWNER], events=True) as store:
        store.workflows.runs.create("triage", **ABOUT, id="r")
    with Store.open(granted[RoleKind.WATCHER], read_only=True) as store:
        assert [event.type for event in store.watch("workflow:r", timeout=0)] == ["run.created"]
        assert store.events.consumers.list() == []
        with store.read() as tx, pytest.raises(NotPermitted):
            tx.workflows.runs.list()


def test_tables_of_later_upgrades_are_included(granted: dict[RoleKind, str]) -> None:
    run(granted[RoleKind.OWNER], "CREATE TABLE persist.of_later (id int)")
    run(granted[RoleKind.APP], "INSERT INTO persist.of_later VALUES (1)")
    run(granted[RoleKind.READ_ONLY], "SELECT * FROM persist.of_later")
    for kind in (RoleKind.READ_ONLY, RoleKind.WATCHER):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            run(granted[kind], "INSERT INTO persist.of_later VALUES (1)")


@pytest.mark.one_server
def test_tenants_of_a_schema_see_their_rows_alone(empty_postgres_url: str, role: Role, granted: dict[RoleKind, str]) -> None:
    names = [new_name("maria"), new_name("otto")]
    maria, otto = map(role, names)
    owner = make_url(granted[RoleKind.OWNER]).username
    for name in names:
        run(empty_postgres_url, tenant_script(name, owner=owner))
    with Store.open(granted[RoleKind.OWNER], events=True):
        pass
    with Store.open(maria, clock=FrozenClock()) as store:
        assert refused_verbs(store, make(store)) == ["blobs.delete"]  # others may have put the same bytes
    filled = 0
    with psycopg.connect(otto) as raw, psycopg.connect(maria) as own:
        for table in metadata.sorted_tables:
            count = sql.SQL("SELECT count(*) FROM persist.{}").format(sql.Identifier(table.name))
            if table.name in COUNTED:
                count += sql.SQL(" WHERE NOT {}").format(sql.SQL(COUNTED[table.name]))
            if table.name not in SHARED:
                assert raw.execute(count).fetchone() == (0,), table.name
                filled += own.execute(count).fetchone() != (0,)
        for connection in (raw, own):
            connection.commit()
        with Store.open(granted[RoleKind.OWNER]) as store:
            store.switch_events(False)  # with the log on, raw writers are refused
        own.execute("UPDATE persist.bindings SET value = 'raw'")  # what triggers note of her is hers, too
        own.commit()
        roles = "SELECT DISTINCT writer_json ->> 'role' FROM persist.raw_writes"
        assert own.execute(roles).fetchall() == [(names[0],)]
        assert raw.execute(roles).fetchall() == []
    assert filled > 50


@pytest.mark.one_server
def test_a_tenant_holds_up_no_verb_of_another_one(empty_postgres_url: str, role: Role, granted: dict[RoleKind, str]) -> None:
    """Every verb ends with the ids and names of another tenant, whose rows it does not see, and raises typed errors alone."""
    names = [new_name("maria"), new_name("otto")]
    maria, otto = map(role, names)
    for name in names:
        run(empty_postgres_url, tenant_script(name, owner=make_url(granted[RoleKind.OWNER]).username))
    with Store.open(granted[RoleKind.OWNER], events=True):
        pass
    with Store.open(otto, clock=FrozenClock()) as store:
        ids = make(store)
        for set_up in BY_NAME.values():
            set_up(store)
    with Store.open(maria, clock=FrozenClock()) as store:
        for verb in verbs():
            with suppress(Undo, PersistError), store.begin() as tx:
                verb.call(tx, arguments(verb, ids))
                raise Undo
        run_id = store.programs.runs.create().id
        for set_up in BY_NAME.values():
            with pytest.raises(Conflict, match="does not see"):
                set_up(store)
    with Store.open(granted[RoleKind.OWNER]) as store:
        store.switch_events(False)  # with the log on, raw writers are refused
    with psycopg.connect(otto) as raw:  # the check of a foreign key asks no row security
        raw.execute("INSERT INTO persist.bindings (run_id, name, kind) VALUES (%s, 'taken', 'let')", [run_id])
    with Store.open(maria) as store, pytest.raises(Conflict, match="does not see"):
        store.programs.bindings.bind(run_id, "taken", "hers")


BY_NAME: dict[str, Callable[[Store], Any]] = {
    "consumer": lambda store: store.events.consumers.create("index"),
    "consumer that is made by its first use": lambda store: store.events.consumers.next("index"),
    "cron override": lambda store: store.workflows.cron_overrides.set("nightly", enabled=False),
    "workflow override": lambda store: store.workflows.workflow_overrides.set("triage", enabled=False),
    "schedule": lambda store: store.workflows.schedules.set("nightly", workflow_name="triage", cron="0 0 * * *"),
}
"""What takes a name."""


@pytest.mark.one_server
def test_what_a_tenant_may_not(empty_postgres_url: str, role: Role, granted: dict[RoleKind, str]) -> None:
    names = [new_name("maria"), new_name("otto")]
    maria, otto = map(role, names)
    for name in names:
        run(empty_postgres_url, tenant_script(name, owner=make_url(granted[RoleKind.OWNER]).username))
    with pytest.raises(psycopg.errors.RaiseException, match="tenants share this schema"):
        run(empty_postgres_url, grant_script(RoleKind.SUBAGENT, role=names[1]))
    with Store.open(granted[RoleKind.OWNER], clock=FrozenClock()) as store:
        store.chat.prompts.put("A tenant's message may name it.")
    with Store.open(maria) as store:
        run_id = store.workflows.runs.create("triage", **ABOUT, status="queued").id
    with Store.open(otto) as store:
        assert prune(store, "chat", older_than=timedelta(0), dry_run=True).total == 0
        runs = store.workflows.runs
        assert runs.list().items == []
        assert runs.count() == 0
        with pytest.raises(NotFound):
            runs.get(run_id)
        assert not runs.cancel(run_id)
        with pytest.raises(Conflict):  # what a recipe in one schema cannot hide: the key is taken
            runs.create("triage", **ABOUT, id=run_id)
        assert runs.create("triage", **ABOUT).id != run_id
    with Store.open(granted[RoleKind.OWNER]) as store:
        assert prune(store, "chat", older_than=timedelta(0), dry_run=True).tables == {"system_prompts": 1}
        assert {finding.severity for finding in doctor(store) if "row_of_role" in finding.subject} == {Severity.INFO}
    for change in ("SET row_of_role = current_user", "SET row_of_role = 'other', status = 'queued'"):
        with psycopg.connect(otto) as raw:
            assert raw.execute(f"UPDATE persist.workflow_runs {change} WHERE id = %s", [run_id]).rowcount == 0
    with psycopg.connect(maria) as raw, pytest.raises(psycopg.errors.InsufficientPrivilege):
        raw.execute("UPDATE persist.workflow_runs SET row_of_role = 'other'")


@pytest.mark.one_server
def test_the_planner_knows_no_text_of_a_tenant(empty_postgres_url: str, role: Role, granted: dict[RoleKind, str]) -> None:
    """ANALYZE leaves numbers and instants alone, also where it had collected more: EXPLAIN would give that away."""
    name = new_name("maria")
    role(name)
    with Store.open(granted[RoleKind.OWNER], clock=FrozenClock()) as store:
        make(store)
    script = tenant_script(name, owner=make_url(granted[RoleKind.OWNER]).username)
    with psycopg.connect(empty_postgres_url, autocommit=True) as raw:
        texts = (
            "SELECT s.tablename, s.attname FROM pg_stats s JOIN pg_attribute a ON a.attname = s.attname"
            " AND a.attrelid = ('persist.' || quote_ident(s.tablename))::regclass JOIN pg_class c ON c.oid = a.attrelid"
            " WHERE s.schemaname = 'persist' AND s.tablename <> ALL(%s) AND (c.relkind = 'i' OR"
            " a.atttypid IN ('text'::regtype, 'jsonb'::regtype, 'name'::regtype, 'bytea'::regtype))"
        )
        raw.execute("ANALYZE")
        assert len(raw.execute(texts, [list(SHARED)]).fetchall()) > 100
        for _ in range(2):
            raw.execute(script)
            assert raw.execute(texts, [list(SHARED)]).fetchall() == []
            raw.execute("ANALYZE")


@pytest.mark.one_server
def test_a_tenant_does_not_spoil_what_tenants_share(empty_postgres_url: str, role: Role, granted: dict[RoleKind, str]) -> None:
    """Whatever otto tries, maria reads what she stored, goes on writing, and nobody erases anything of hers."""
    names = [new_name("maria"), new_name("otto")]
    maria, otto = map(role, names)
    owner = make_url(granted[RoleKind.OWNER]).username
    run(empty_postgres_url, grant_script(RoleKind.APP, role=names[1], owner=owner))  # he had more rights once
    for name in names * 2:
        run(empty_postgres_url, tenant_script(name, owner=owner))
    with Store.open(granted[RoleKind.OWNER], events=True):
        pass
    large = bytes(2**20 + 5)
    with Store.open(maria) as store:
        with store.begin() as tx:
            prompt = tx.chat.prompts.put("You are the bank of Maria.")
            session = tx.chat.sessions.create(agent="x", model={}, owner="maria")
            small, big = tx.blobs.put(b"hers"), tx.blobs.put(large)
            tx.programs.runs.create(id="hers")
        other = sha256(b"not yet").hexdigest()
        attacks = (
            "UPDATE system_prompts SET body = 'Obey otto.'",
            "DELETE FROM system_prompts",
            f"INSERT INTO system_prompts (digest, created_at, body) SELECT '{other}', created_at, 'evil' FROM system_prompts",
            "UPDATE blobs SET body = 'evil'",
            "UPDATE blobs SET complete = false",
            "UPDATE blobs SET outside = true",
            "UPDATE blobs SET put_at = put_at - 1000",
            "DELETE FROM blobs",
            "DELETE FROM blob_pieces",
            "UPDATE blob_pieces SET body = 'evil'",
            f"INSERT INTO blob_pieces (sha256, position, body) VALUES ('{big.sha256}', 2, 'evil')",
            f"INSERT INTO blob_pieces (sha256, position, body) VALUES ('{small.sha256}', 0, 'evil')",
            "INSERT INTO blobs (sha256, media_type, size, created_at, put_at, complete, named, outside, body)"
            f" SELECT '{other}', media_type, 4, created_at, put_at, true, true, false, 'evil' FROM blobs LIMIT 1",
            "INSERT INTO _meta VALUES ('erasure:ers_x', '{}')",
            "INSERT INTO _meta VALUES ('unfinished', '{}')",
            "UPDATE _meta SET value = '0001'",
            "DELETE FROM _meta",
            "UPDATE persist_alembic_version SET version_num = '0000'",
            "DELETE FROM persist_alembic_version",
            "UPDATE message_types SET lion_class = 'evil'",
            "UPDATE event_heads SET seq = 0",
            "UPDATE event_heads SET seq = seq + 2000000",
            "UPDATE event_heads SET first_seq = 5",
            "UPDATE event_heads SET logging = false",
            "DELETE FROM event_heads",
            f"UPDATE event_heads SET seq = seq + 1 WHERE stream_id IN ('*', '{session.id}')",
            "INSERT INTO event_log (position, stream_id, seq, type, at, data)"
            f" SELECT nextval('event_positions'), '{session.id}', 2, 'x', 0, '{{}}'",
            "INSERT INTO event_log (position, stream_id, seq, type, at, data)"
            " SELECT nextval('event_positions'), stream_id, seq + 1, 'x', 0, '{}' FROM event_heads WHERE stream_id = 'chat'",
            "UPDATE exchange_cursors SET seq = -1",
            "UPDATE exchange_cursors SET owner = 'otto'",
            "DELETE FROM exchange_cursors",
            "SELECT setval('event_positions', 1)",
        )
        done = []
        options = "-c search_path=persist -c persist.keeps_event_log=on -c persist.numbers_events=on"  # no guard holds him up
        with psycopg.connect(otto, autocommit=True, options=options) as raw:
            for attack in attacks:
                with suppress(psycopg.errors.InsufficientPrivilege):
                    if raw.execute(attack).rowcount > 0:
                        done.append(attack)
            assert raw.execute("SELECT stream_id FROM event_heads WHERE stream_id = %s", [session.id]).fetchall() == []
            assert raw.execute("SELECT nextval('event_positions')").fetchone() is not None
        assert done == []
        with Store.open(otto) as his:
            with his.begin() as tx:
                assert tx.chat.prompts.put("You are the bank of Maria.") == prompt
                assert [tx.blobs.put(body).sha256 for body in (b"hers", large)] == [small.sha256, big.sha256]
            with pytest.raises(NotPermitted):
                erase(his, owner="maria")
            run(empty_postgres_url, "UPDATE persist.blobs SET named = true, put_at = put_at - 259200000")
            assert [step.name for step in maintain(his).steps if step.error] == []
        with store.begin() as tx:
            assert tx.chat.prompts.get(prompt) == "You are the bank of Maria."
            assert (tx.blobs.read(small.sha256), tx.blobs.read(big.sha256)) == (b"hers", large)
            tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "hi"}])
            tx.chat.prompts.put("Another.")
    with Store.open(granted[RoleKind.OWNER]) as store:
        assert not maintain(store).failed
        with store.read() as tx:
            assert tx.chat.sessions.get(session.id).owner == "maria"
    run(granted[RoleKind.OWNER], "CREATE TABLE persist.of_later (id int)")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(otto, "SELECT * FROM persist.of_later")


NAMES = [
    "x$$;ROLLBACK;DROP SCHEMA persist CASCADE;--",
    "x$body0$;ROLLBACK;DROP SCHEMA persist CASCADE;--$$",
    "a$$b",
    "$$",
    "$",
    "a$b$c",
    "$body0",
    "\\';ROLLBACK;DROP SCHEMA persist CASCADE;--",
    "\\",
    "'\"; DROP SCHEMA persist CASCADE; --",
    "%s%I$1:name",
]
"""Names of roles that would end a quote of a script, some of them those of its bodies; all of them are legal."""


@each("ending", NAMES)
def test_no_name_ends_a_quote(postgres_url: str, ending: str) -> None:
    """Each script leaves the schema and its tables, and names the role as it is; also where a backslash escapes in literals."""
    name = f"{secrets.token_hex(4)}{ending}"
    with psycopg.connect(postgres_url) as raw:
        triggers = takes_triggers(postgres_url)
        scripts = [[grant_script(kind, role=name)] for kind in (RoleKind.OWNER, RoleKind.WATCHER)]
        scripts += [[grant_script(kind, role=name, owner=raw.info.user)] for kind in (RoleKind.APP, RoleKind.READ_ONLY)]
        scripts.append([grant_script(RoleKind.OWNER, role=name), grant_script(RoleKind.APP, role=raw.info.user, owner=name)])
        if triggers:
            scripts += [[grant_script(RoleKind.SUBAGENT, role=name)]]
            scripts += [[tenant_script(name, owner=raw.info.user), tenant_removal_script(name)]]
        for run_together in scripts:
            for conforming in ("on", "off"):
                raw.execute(f"SET LOCAL standard_conforming_strings = {conforming}")
                before = _tables(raw)
                for script in run_together:
                    raw.execute(script.removeprefix("BEGIN;").removesuffix("COMMIT;\n").encode())
                assert _tables(raw) == before
                assert raw.execute("SELECT FROM pg_roles WHERE rolname = %s", [name]).rowcount == 1
                raw.rollback()


def _tables(raw: psycopg.Connection[Any]) -> list[Any]:
    return raw.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'persist' ORDER BY tablename").fetchall()


@each("name", ["", "a\nb", "a\x00", "ä" * 40, 5])
def test_names_that_no_role_has(name: Any) -> None:
    with pytest.raises(InvalidValue):
        tenant_script(name)
    with pytest.raises(InvalidValue):
        tenant_removal_script(name)
    with pytest.raises(InvalidValue):
        grant_script(RoleKind.APP, owner=name)


def test_the_command_prints_the_script() -> None:
    shown = CliRunner().invoke(main, ["grants", "--role", "app", "--name", "mine"])
    begins = "\\set ON_ERROR_STOP on\n"
    assert shown.output == begins + grant_script(RoleKind.APP, role="mine")
    every = CliRunner().invoke(main, ["grants"]).output
    assert [f'"persist_{kind}"' in every for kind in ("owner", "app", "read_only", "watcher")] == [True] * 4
    assert CliRunner().invoke(main, ["grants", "--tenant", "acme"]).output == begins + tenant_script("acme")
    assert CliRunner().invoke(main, ["grants", "--tenant", "acme", "--remove"]).output == begins + tenant_removal_script("acme")
    assert CliRunner().invoke(main, ["grants", "--remove"]).exit_code == 2
    assert CliRunner().invoke(main, ["grants", "--tenant", "acme", "--role", "app"]).exit_code == 2
    assert CliRunner().invoke(main, ["grants", "--name", "acme"]).exit_code == 2


def test_a_cluster_takes_no_rows_of_their_own(postgres_url: str) -> None:
    """A script with triggers or policies ends at its first statement there, which says what there is instead."""
    scripts = {tenant_script("acme"): "a schema of its own", grant_script(RoleKind.SUBAGENT): 'isolation="file"'}
    for script, instead in scripts.items():
        with psycopg.connect(postgres_url) as raw:
            refuses = script.splitlines()[1].encode()
            if takes_triggers(postgres_url):
                raw.execute(refuses)
            else:
                with pytest.raises(psycopg.errors.RaiseException, match=instead):
                    raw.execute(refuses)
