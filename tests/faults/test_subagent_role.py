"""What a subagent with a token may do on Postgres, and everything that it tries besides."""

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

import persist
from persist import Store
from persist.errors import Conflict, InvalidValue
from persist.programs import audit, subagent
from persist.programs.subagents.isolation import SubagentRole
from persist.schema.grants import grant_script
from persist.schema.subagent_roles import RoleKind

pytestmark = pytest.mark.one_server  # a cluster takes no such policies: see tests/faults/test_grants.py
RUN, OTHER = "20260116-143052-a7b3c9", "20260116-143053-b8c4d0"


@dataclass
class Scene:
    """A store with two runs, and a role that may do what a token is for."""

    store: Store
    url: str
    role: str
    frame: int
    other: int

    def subagent(self, frame: int | None = -1, agent: str | None = "captain", run: str = RUN, **options: Any) -> SubagentRole:
        where = self.frame if frame == -1 else frame
        return subagent(self.store, run, where, isolation="role", agent=agent, role=self.role, **options)

    @contextmanager
    def connected(self, dsn: str | None = None) -> Iterator[psycopg.Connection[Any]]:
        with closing(psycopg.connect(dsn or self.subagent().dsn, autocommit=True)) as raw:
            yield raw


@pytest.fixture(scope="module")
def role() -> str:
    return f"persist-subagent-{secrets.token_hex(4)}"


@pytest.fixture
def scene(postgres_url: str, role: str) -> Iterator[Scene]:
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        with Store.open(postgres_url):
            pass
        for _ in range(2):
            raw.execute(grant_script(RoleKind.SUBAGENT, role=role))
    with Store.open(postgres_url) as store:
        with store.begin() as tx:
            programs = tx.programs
            for run in (RUN, OTHER):
                programs.runs.create(id=run)
                for agent in ("captain", "rival"):
                    programs.agents.start(run, agent, resume=False)
                    programs.agents.remember(run, agent, f"memory of {agent}")
                    programs.agents.add_segment(run, agent, prompt="p", summary="s")
            frames = [programs.executions.begin(RUN, statement_index=n, statement_text="do").id for n in (1, 2)]
            for frame in (None, *frames):
                programs.bindings.bind(RUN, "open", "let", execution_id=frame)
                programs.bindings.bind(RUN, "fixed", "const", execution_id=frame, kind="const")
            programs.bindings.bind(OTHER, "open", "other run")
        yield Scene(store, postgres_url, role, *frames)
    with psycopg.connect(postgres_url) as raw:
        raw.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(role)))
        raw.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def everything(url: str) -> list[Any]:
    with psycopg.connect(url, options="-c search_path=persist") as raw:
        tables = ("run", "execution", "bindings", "agents", "agent_segments", "imports")
        return [
            raw.execute(sql.SQL("SELECT * FROM {} x ORDER BY x::text").format(sql.Identifier(t))).fetchall() for t in tables
        ] + [
            raw.execute(
                "SELECT c.relname, c.relacl::text, c.relrowsecurity FROM pg_class c"
                " WHERE c.relnamespace = 'persist'::regnamespace ORDER BY 1"
            ).fetchall(),
            raw.execute("SELECT * FROM pg_policies ORDER BY tablename, policyname").fetchall(),
        ]


def test_it_sees_and_writes_what_is_its_own(scene: Scene) -> None:
    mine = scene.subagent()
    with scene.connected(mine.dsn) as raw:
        assert raw.execute("SELECT name, value FROM bindings ORDER BY name").fetchall() == [("fixed", "const"), ("open", "let")]
        assert raw.execute("SELECT name, memory FROM agents").fetchall() == [("captain", "memory of captain")]
        assert raw.execute("SELECT agent_name FROM agent_segments").fetchall() == [("captain",)]
        bound = (
            "INSERT INTO bindings (run_id, name, execution_id, kind, value, updated_at) VALUES (%s, %s, %s, 'let', %s, now())"
            " ON CONFLICT (run_id, name, coalesce(execution_id, -1)) DO UPDATE SET value = excluded.value"
        )
        raw.execute(bound, (RUN, "open", scene.frame, "changed"))
        raw.execute(bound, (RUN, "new", scene.frame, "made"))
        raw.execute("UPDATE agents SET memory = 'learnt'")
    with scene.store.read() as tx:
        assert tx.programs.bindings.resolve(RUN, "new", execution_id=scene.frame).value == "made"
        assert tx.programs.bindings.resolve(RUN, "open", execution_id=scene.frame).value == "changed"
        assert tx.programs.bindings.resolve(RUN, "open", execution_id=scene.other).value == "let"
        assert tx.programs.agents.recall(RUN, "rival").memory == "memory of rival"  # type: ignore[union-attr]  # it has one
        assert tx.programs.agents.recall(OTHER, "captain").memory == "memory of captain"  # type: ignore[union-attr]  # as above
    with scene.connected(scene.subagent(None, None).dsn) as raw:
        assert raw.execute("SELECT value, execution_id FROM bindings WHERE name = 'open'").fetchall() == [("let", None)]
        assert raw.execute("SELECT count(*) FROM agents").fetchall() == [(0,)]


def attacks(scene: Scene) -> Iterator[str]:
    """Statements that the server refuses, or that find nothing to change."""
    run, frame, other = RUN, scene.frame, scene.other
    insert = "INSERT INTO bindings (run_id, name, execution_id, kind, value) VALUES"
    upsert = "ON CONFLICT (run_id, name, coalesce(execution_id, -1)) DO UPDATE SET"
    for table in ("run", "execution", "imports", "program_subagents", "_meta", "alembic_version", "chat_sessions", "event_log"):
        yield f"SELECT * FROM {table}"
        yield f"SELECT count(*) FROM {table}"
        yield f"INSERT INTO {table} DEFAULT VALUES"
        yield f"DELETE FROM {table}"
        yield f"COPY {table} TO STDOUT"
        yield f"LOCK TABLE {table}"
    for table in ("bindings", "agents", "agent_segments"):
        yield f"DELETE FROM {table}"
        yield f"TRUNCATE {table}"
        yield f"DROP TABLE {table}"
        yield f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY"
        yield f"ALTER TABLE {table} ADD COLUMN more text"
        yield f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"
        yield f"CREATE TRIGGER t BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()"
        yield f"CREATE POLICY mine ON {table} USING (true)"
        yield f"CREATE INDEX ON {table} (run_id)"
        yield f"GRANT ALL ON {table} TO PUBLIC"
        yield f"COPY {table} FROM STDIN"
    for execution in (str(other), "NULL", "77"):
        yield f"{insert} ('{run}', 'open', {execution}, 'let', 'hurt')"
        yield f"{insert} ('{run}', 'hurt', {execution}, 'let', 'hurt') RETURNING *"
        yield f"{insert} ('{run}', 'open', {execution}, 'let', 'hurt') {upsert} value = 'hurt' RETURNING *"
    yield f"{insert} ('{OTHER}', 'hurt', {frame}, 'let', 'hurt')"
    yield f"{insert} ('{OTHER}', 'open', NULL, 'let', 'hurt') {upsert} value = 'hurt'"
    yield f"{insert} ('{run}', 'fixed', {frame}, 'let', 'hurt')"
    yield f"{insert} ('{run}', 'fixed', {frame}, 'let', 'hurt') {upsert} value = 'hurt'"
    yield f"{insert} ('{run}', 'fixed', {frame}, 'let', 'hurt') {upsert} kind = 'let', value = 'hurt' RETURNING *"
    yield f"{insert} ('{run}', 'word', {frame}, 'var', 'hurt')"
    yield f"{insert} ('{run}', '../up', {frame}, 'let', 'hurt')"
    yield f"{insert} ('{run}', 'huge', {frame}, 'let', repeat('x', 17000000))"
    attached = "INSERT INTO bindings (run_id, name, execution_id, kind, attachment_path) VALUES"
    yield f"{attached} ('{run}', 'a', {frame}, 'let', 'attachments/a')"
    yield f"INSERT INTO bindings (run_id, name, execution_id, kind, updated_at) VALUES ('{run}', 'a', {frame}, 'let', 'infinity')"
    yield "UPDATE bindings SET value = 'hurt' WHERE kind = 'const'"
    yield "UPDATE bindings SET execution_id = NULL"
    yield f"UPDATE bindings SET run_id = '{OTHER}'"
    yield "UPDATE bindings SET name = 'hurt'"
    yield f"UPDATE bindings SET value = 'hurt' WHERE execution_id = {other}"
    yield "UPDATE agents SET memory = 'hurt' WHERE name = 'rival'"
    yield "UPDATE agents SET name = 'rival'"
    yield f"INSERT INTO agents (run_id, name) VALUES ('{run}', 'hurt')"
    yield f"INSERT INTO agent_segments (run_id, agent_name, segment_number) VALUES ('{run}', 'rival', 2)"
    yield f"INSERT INTO agent_segments (run_id, agent_name, segment_number, id) VALUES ('{run}', 'captain', 2, 1)"
    yield "UPDATE agent_segments SET summary = 'hurt'"
    for setting in ("row_security = off", "session_replication_role = replica", "track_activities = on"):
        yield f"SET {setting}; UPDATE bindings SET value = 'hurt' WHERE kind = 'const' OR execution_id <> {frame}"
    for who in (make_url(scene.url).username, "pg_read_all_data", "pg_write_all_data", "pg_monitor"):
        yield f'SET ROLE "{who}"'
        yield f'SET SESSION AUTHORIZATION "{who}"'
        yield f'GRANT "{who}" TO CURRENT_USER'
    yield "ALTER ROLE CURRENT_USER BYPASSRLS"
    yield "ALTER ROLE CURRENT_USER SUPERUSER"
    yield "CREATE SCHEMA mine"
    yield "CREATE TABLE persist.mine (a int)"
    yield "CREATE FUNCTION persist.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'"
    yield "DROP FUNCTION persist.persist_subagent_permit"
    yield "ALTER FUNCTION persist.persist_subagent_permit SECURITY INVOKER"
    yield "CREATE OR REPLACE FUNCTION persist.persist_subagent_permit() RETURNS int LANGUAGE sql AS 'SELECT 1'"
    yield "COPY bindings TO PROGRAM 'cat'"
    yield "SELECT pg_read_file('/etc/passwd')"
    yield "SELECT nextval('persist.agent_segments_id_seq')"
    yield "SELECT setval('persist.agent_segments_id_seq', 1)"


def test_every_attack_is_refused(scene: Scene) -> None:
    before = everything(scene.url)
    done, told = [], []
    with scene.connected() as raw:
        for attack in attacks(scene):
            try:
                cursor = raw.execute(attack)
                if cursor.rowcount > 0 or cursor.description:
                    done.append(attack)
            except psycopg.Error as error:
                told.append(str(error))
    assert done == []
    assert "memory of rival" not in "".join(told)
    assert everything(scene.url) == before


TRICKS = {
    "a setting of row guards": ["SET persist.carries_rows = 'on'"],
    "tables that are found first": [
        "CREATE TEMP TABLE program_subagents (run_id text, execution_id bigint, agent_name text, token_hash text, isolation text,"
        " ended_at timestamptz, expires_at timestamptz)",
        "CREATE TEMP TABLE run (id text, status text)",
        f"INSERT INTO run VALUES ('{OTHER}', 'running')",
        f"INSERT INTO program_subagents VALUES ('{OTHER}', NULL, 'rival', encode(sha256('x'), 'hex'), 'role', NULL, 'infinity')",
        "CREATE FUNCTION pg_temp.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT ''x''::bytea'",
        "CREATE FUNCTION pg_temp.current_setting(text, boolean) RETURNS text LANGUAGE sql AS 'SELECT ''x'''",
        "SET search_path = pg_temp, persist",
        "SET persist.subagent_token = 'x'",
    ],
    "operators that are found first": [
        "CREATE FUNCTION public.yes(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = text, FUNCTION = public.yes)",
        "SET search_path = public, pg_catalog, persist",
        "SET persist.subagent_token = 'x'",
    ],
}


@pytest.mark.parametrize("trick", TRICKS)
def test_tricks(scene: Scene, trick: str) -> None:
    """After each of them nothing else is seen or changed than before."""
    with psycopg.connect(scene.url) as raw:
        raw.execute(sql.SQL("GRANT CREATE ON SCHEMA public TO {}").format(sql.Identifier(scene.role)))  # as before Postgres 15
    before = everything(scene.url)
    scene.subagent(None, "rival")  # a token that is good, of somebody else
    with scene.connected() as raw:
        for statement in TRICKS[trick]:
            raw.execute(statement)
        seen = raw.execute("SELECT run_id, execution_id FROM persist.bindings").fetchall()
        assert set(seen) <= {(RUN, scene.frame)}
        assert raw.execute("SELECT name FROM persist.agents").fetchall() in ([("captain",)], [])
        with pytest.raises(psycopg.Error):
            raw.execute(
                "INSERT INTO persist.bindings (run_id, name, execution_id, kind) VALUES (%s, 'fixed', %s, 'let')"
                " ON CONFLICT (run_id, name, coalesce(execution_id, -1)) DO UPDATE SET value = 'hurt'",
                (RUN, scene.frame),
            )
        assert raw.execute("UPDATE persist.bindings SET value = 'hurt' WHERE kind = 'const'").rowcount == 0
        assert raw.execute("SELECT * FROM persist.persist_subagent_permit()").fetchall() in ([(RUN, scene.frame, "captain")], [])
    assert everything(scene.url) == before


def test_nobody_runs_the_functions_that_note_raw_writes(scene: Scene) -> None:
    """They run as the owner of the tables: neither attached to a table of one's own, nor with tables that are found first."""
    reader = f"persist-reader-{secrets.token_hex(4)}"
    with psycopg.connect(scene.url, autocommit=True) as raw:
        raw.execute(grant_script(RoleKind.READ_ONLY, role=reader, owner=str(make_url(scene.url).username)))
        named = raw.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'persist'::regnamespace AND prosecdef"
            " AND prorettype = 'trigger'::regtype"
        ).fetchall()
        unsafe = raw.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'persist'::regnamespace AND prosecdef"
            " AND NOT coalesce(proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false)"
        ).fetchall()
    assert unsafe == []  # of all functions that run as the owner, those that the policies ask among them
    assert len(named) == 6
    before = everything(scene.url)
    forged = (
        "CREATE TEMP TABLE raw_writes (run_id text, at bigint, table_name text, operation text, row_key_json jsonb,"
        " before_json jsonb, writer_json jsonb)",
        "GRANT ALL ON raw_writes TO PUBLIC",
        "CREATE FUNCTION pg_temp.evil() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN UPDATE persist.bindings SET value = 'hurt'; RETURN NEW; END $$",
        "CREATE TRIGGER evil BEFORE INSERT ON raw_writes FOR EACH ROW EXECUTE FUNCTION pg_temp.evil()",
    )
    url = make_url(scene.url).set(username=reader).render_as_string(hide_password=False)
    for dsn in (scene.subagent().dsn, url):
        with scene.connected(dsn) as raw:
            for statement in forged:
                raw.execute(statement)
            for (function,) in named:
                table = function.removeprefix("persist_row_guard_log_")
                raw.execute(f"CREATE TEMP TABLE IF NOT EXISTS {table} (run_id text, id text, name text)")
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    raw.execute(
                        f"CREATE TRIGGER v AFTER INSERT ON pg_temp.{table} FOR EACH ROW"
                        f" EXECUTE FUNCTION persist.{function}('run_id', 'name')"
                    )
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw.execute("INSERT INTO persist.raw_writes (run_id, at, table_name, operation) VALUES ('x', 1, 'run', 'insert')")
    with psycopg.connect(scene.url) as raw:  # who may call them is refused as well, for any table but theirs
        raw.execute("CREATE TEMP TABLE bindings (run_id text, name text)")
        call = "FOR EACH ROW EXECUTE FUNCTION persist.persist_row_guard_log_bindings('run_id', 'name')"
        raw.execute(f"CREATE TRIGGER v AFTER INSERT ON pg_temp.bindings {call}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="the tables of its schema"):
            raw.execute("INSERT INTO pg_temp.bindings VALUES ('a', 'b')")
    assert everything(scene.url) == before
    with psycopg.connect(scene.url) as raw:
        assert raw.execute("SELECT count(*) FROM persist.raw_writes").fetchall() == [(0,)]
        raw.execute(sql.SQL("DROP OWNED BY {role}; DROP ROLE {role}").format(role=sql.Identifier(reader)))
    with scene.connected() as raw:
        raw.execute("UPDATE agents SET memory = 'learnt'")
    (found,) = [one for one in audit(scene.store, RUN) if one.code == "raw_write"]
    assert found.writer is not None
    assert (found.subject, found.before, found.writer["role"]) == (
        "agents name='captain'",
        {"memory": "memory of captain"},
        scene.role,
    )


def test_functions_in_a_query_see_no_other_row(scene: Scene) -> None:
    """A function of the attacker's that tells what it is called with is called with visible rows alone."""
    with scene.connected() as raw:
        raw.execute(
            "CREATE FUNCTION pg_temp.tell(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001"
            " AS $$ BEGIN RAISE NOTICE 'seen %', $1; RETURN true; END $$"
        )
        seen: list[str] = []
        raw.add_notice_handler(lambda notice: seen.append(str(notice.message_primary)))
        raw.execute("SELECT 1 FROM agents WHERE pg_temp.tell(memory)")
        raw.execute("SELECT 1 FROM bindings WHERE pg_temp.tell(coalesce(execution_id::text, 'root'))")
        assert set(seen) == {"seen memory of captain", f"seen {scene.frame}"}
        raw.execute("CREATE TEMP VIEW mine AS SELECT * FROM agents")
        assert raw.execute("SELECT name FROM mine").fetchall() == [("captain",)]


def test_the_planner_gives_away_no_text(scene: Scene) -> None:
    """Nobody finds values of other runs by what EXPLAIN expects of comparisons with them, also if they were analysed before."""
    with psycopg.connect(scene.url, autocommit=True, options="-c search_path=persist") as raw:
        raw.execute(
            "INSERT INTO bindings (run_id, name, kind, value)"
            " SELECT %s, 'n' || i, 'let', CASE WHEN i < 50 THEN 'sk-live' ELSE 'v' || i END FROM generate_series(1, 200) i",
            [OTHER],
        )
        for table in ("bindings", "agents", "agent_segments"):
            for (column,) in raw.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attstattarget = 0", [table]
            ).fetchall():
                raw.execute(sql.SQL("ALTER TABLE {} ALTER {} SET STATISTICS 100").format(*map(sql.Identifier, (table, column))))
        raw.execute("ANALYZE")

        def guessed(dsn: str) -> bool:
            """Whether a value that is often there is expected more often than one that is not."""
            with scene.connected(dsn) as mine:
                plans = []
                for value in ("sk-live", "sk-test"):
                    mine.execute("DROP TABLE IF EXISTS pg_temp.t")
                    mine.execute("CREATE TEMP TABLE t (v text)")
                    mine.execute("INSERT INTO t SELECT %s FROM generate_series(1, 2000)", [value])
                    mine.execute("ANALYZE t")
                    plans.append(mine.execute("EXPLAIN SELECT FROM bindings b JOIN t ON b.value = t.v").fetchall())
                return plans[0] != plans[1]

        mine = scene.subagent().dsn
        assert guessed(mine)  # what the script is for
        raw.execute(grant_script(RoleKind.SUBAGENT, role=scene.role))
        raw.execute("ANALYZE")
        assert not guessed(mine)
        known = raw.execute(
            "SELECT tablename, attname FROM pg_stats WHERE schemaname = 'persist'"
            " AND tablename IN ('bindings', 'agents', 'agent_segments') AND attname NOT LIKE '%%\\_at'"
        ).fetchall()
        assert {column for _, column in known} <= {"execution_id", "id", "segment_number", "timestamp"}


def test_a_prepared_plan_goes_by_the_token_of_its_execution(scene: Scene) -> None:
    mine, theirs = scene.subagent(), scene.subagent(None, "rival")
    with scene.connected(mine.dsn) as raw:
        raw.execute("PREPARE look AS SELECT execution_id, value FROM bindings WHERE name = 'open'")
        raw.execute("SET plan_cache_mode = force_generic_plan")
        assert raw.execute("EXECUTE look").fetchall() == [(scene.frame, "let")]
        raw.execute("SET persist.subagent_token = 'guessed'")
        assert raw.execute("EXECUTE look").fetchall() == []
        raw.execute(sql.SQL("SET persist.subagent_token = {}").format(theirs.token))
        assert raw.execute("EXECUTE look").fetchall() == [(None, "let")]


def test_a_token_ends(scene: Scene) -> None:
    """By the verb, with the frame, with the run, and by time; and nothing but the hash of a token is stored."""

    def sees(agent: SubagentRole) -> bool:
        with scene.connected(agent.dsn) as raw:
            return raw.execute("SELECT count(*) FROM bindings").fetchone() != (0,)

    revoked, framed, short, rooted = (
        scene.subagent(),
        scene.subagent(scene.other),
        scene.subagent(expires_in=timedelta(milliseconds=1)),
        scene.subagent(None),
    )
    assert [sees(one) for one in (revoked, framed, short, rooted)] == [True, True, False, True]
    with psycopg.connect(scene.url) as raw:
        stored = str(raw.execute("SELECT * FROM persist.program_subagents").fetchall())
    assert not [one for one in (revoked, framed, short, rooted) if one.token in stored]
    programs = scene.store.programs
    programs.subagents.end(RUN, revoked.subagent.id)
    programs.executions.complete(RUN, scene.other)
    assert [sees(one) for one in (revoked, framed, rooted)] == [False, False, True]
    programs.runs.finish(RUN, "completed")
    assert not sees(rooted)


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("how", ["end", "complete", "finish", "expire"])
def test_a_transaction_that_began_before_the_end_writes_nothing_after_it(scene: Scene, level: str, how: str) -> None:
    """And one that wrote before and stays open keeps nobody from ending the token, the frame or the run."""
    programs = scene.store.programs
    mine = scene.subagent()
    bound = "INSERT INTO bindings (run_id, name, execution_id, kind, value) VALUES (%s, %s, %s, 'let', 'x')"
    statements: list[tuple[str, Any]] = [
        (bound, (RUN, "late", scene.frame)),
        ("UPDATE bindings SET value = 'late' WHERE name = 'open'", None),
        ("UPDATE agents SET memory = 'late'", None),
        ("INSERT INTO agent_segments (run_id, agent_name, segment_number) VALUES (%s, 'captain', 7)", (RUN,)),
    ]
    with scene.connected(mine.dsn) as raw, scene.connected(mine.dsn) as open_one:
        for one in (raw, open_one):
            one.execute(f"BEGIN ISOLATION LEVEL {level}")
        assert raw.execute("SELECT count(*) FROM bindings").fetchone() == (2,)
        open_one.execute(bound, (RUN, "early", scene.frame))
        if how == "end":
            programs.subagents.end(RUN, mine.subagent.id)
        elif how == "complete":
            programs.executions.complete(RUN, scene.frame)
        elif how == "finish":
            programs.runs.finish(RUN, "failed")
        else:
            with psycopg.connect(scene.url) as owner:
                owner.execute("UPDATE persist.program_subagents SET expires_at = now() - interval '1 minute'")
        before = everything(scene.url)
        for statement, values in statements:
            raw.execute("SAVEPOINT again")
            with suppress(psycopg.Error):
                assert raw.execute(statement, values).rowcount == 0, statement
            raw.execute("ROLLBACK TO again")
        raw.execute("COMMIT")
        open_one.execute("ROLLBACK")
    assert everything(scene.url) == before


def test_a_role_that_may_not_yet_and_a_log_that_is_on(scene: Scene) -> None:
    with pytest.raises(Conflict, match="persist grants --role subagent"):
        subagent(scene.store, RUN, isolation="role", role="nobody")
    with pytest.raises(Conflict, match="persist grants --role subagent"):
        subagent(scene.store, RUN, isolation="role", role=str(make_url(scene.url).username))
    scene.store.switch_events(True)
    with pytest.raises(Conflict, match="log of events"):
        scene.subagent()


def test_another_session_of_the_role_does_not_see_what_is_run(scene: Scene) -> None:
    with scene.connected() as raw, scene.connected(scene.subagent(scene.other).dsn) as rival:
        raw.execute("SELECT 'a secret of the session'")
        assert raw.info.backend_pid in {pid for (pid,) in rival.execute("SELECT pid FROM pg_stat_activity").fetchall()}
        assert "a secret of" not in str(
            rival.execute("SELECT query FROM pg_stat_activity WHERE pid <> pg_backend_pid()").fetchall()
        )


def test_a_superuser_can_take_large_objects_away(scene: Scene) -> None:
    """As docs/programs.md says."""
    with psycopg.connect(scene.url, autocommit=True) as raw:
        raw.execute("REVOKE EXECUTE ON FUNCTION lo_from_bytea(oid, bytea), lo_create(oid), lo_creat(integer) FROM PUBLIC")
    with scene.connected() as raw:
        for made in ("lo_from_bytea(0, 'x')", "lo_create(0)", "lo_creat(-1)", "lo_import('/etc/passwd')"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw.execute(f"SELECT {made}")


def test_secrets_are_not_shown(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    made = scene.subagent()
    started = scene.store.programs.subagents.start(RUN, isolation="role", role=scene.role)
    assert started.access is not None
    for shown, token in ((repr(made) + str(made), made.token), (repr(started) + str(started), started.access.token)):
        assert token not in shown
    assert made.token in made.instructions()
    assert made.token not in made.server
    assert len(made.token) > 40
    with pytest.raises(InvalidValue) as caught:
        made.instructions(kind="var")
    assert made.token not in str(caught.value) + caplog.text


def test_other_roles_see_what_they_saw(scene: Scene) -> None:
    """Row security is on for all, and hides nothing from a program's role."""
    name = f"persist-app-{secrets.token_hex(4)}"
    with psycopg.connect(scene.url, autocommit=True) as raw:
        raw.execute(grant_script(RoleKind.APP, role=name, owner=str(make_url(scene.url).username)))
    url = make_url(scene.url).set(username=name).render_as_string(hide_password=False)
    try:
        with Store.open(url) as store:
            assert len(store.programs.bindings.list(RUN)) == 6
            store.programs.bindings.bind(OTHER, "open", "changed")
            assert persist.programs.audit(store, RUN) == []
    finally:
        with psycopg.connect(scene.url) as raw:
            raw.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(name)))
            raw.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))
