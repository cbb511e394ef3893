"""A host's own queries over persist's tables: `persist.orm`, `execution_options`, `schema_map`, and `join` with its sessions."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Engine, ForeignKey, Text, create_engine, func, inspect, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    relationship,
    scoped_session,
    selectinload,
    sessionmaker,
)

import persist
from persist import AsyncStore, Conflict, InvalidValue, Store, UnsupportedEngine, orm
from tests.contract.chat.scenes import MODEL
from tests.seeded_databases import with_file

HI = [{"type": "text", "text": "hi"}]
NAMES = [name for name in dir(orm) if name[0].isupper() and name != "TYPE_CHECKING"]
NOT_VALUES = {"ChatPart", "ChatStepUsage", "SystemPrompt", "ProgressionMember", "UsageRollup"}
"""Classes of tables whose rows no verb returns as a value with a name of its own."""


class Base(DeclarativeBase):
    """The host's own registry."""


class User(Base):
    __tablename__ = "users"
    id: Mapped[str] = mapped_column(primary_key=True)
    favourite_id: Mapped[str | None] = mapped_column(Text, ForeignKey(orm.ChatSession.id, ondelete="SET NULL"))
    favourite: Mapped[orm.ChatSession | None] = relationship(orm.ChatSession)
    chats: Mapped[list[orm.ChatSession]] = relationship(
        orm.ChatSession, primaryjoin=lambda: User.id == orm.ChatSession.owner, foreign_keys=orm.ChatSession.owner, viewonly=True
    )


class Ticket(Base):
    __tablename__ = "tickets"
    id: Mapped[int] = mapped_column(primary_key=True)
    session_id: Mapped[str] = mapped_column(Text, ForeignKey(orm.ChatSession.id, ondelete="CASCADE"))


def engine_of(url: str, options: dict[str, Any]) -> Engine:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1), execution_options=options)
    persist.prepare_engine(engine)
    return engine


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(with_file(database_url)) as store:
        yield store


@pytest.fixture
def engine(database_url: str, store: Store) -> Iterator[Engine]:
    engine = engine_of(database_url, store.execution_options())
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


COSTS = (
    select(User.id, func.count(orm.ChatSession.id), func.sum(orm.ChatSession.cost_usd))
    .join(orm.ChatSession, orm.ChatSession.owner == User.id)
    .group_by(User.id)
)


def test_one_transaction_has_rows_of_both_and_joins_them(store: Store, engine: Engine) -> None:
    with Session(engine) as db:
        db.add(User(id="ann"))
        tx = store.join(db)
        for cost in (0.25, 0.5):
            session = tx.chat.sessions.create(agent="build", model=MODEL, owner="ann", metadata={"title": f"of {cost}"})
            said = tx.chat.messages.append(session.id, role="assistant", parts=HI)
            tx.chat.messages.record_step_usage(said.id, 0, input_tokens=1, output_tokens=1, cost_usd=cost)
        assert db.execute(COSTS).all() == [("ann", 2, 0.75)]
        assert store.chat.sessions.list(owner="ann").items == []
        titled = orm.ChatSession.metadata_json["title"].as_string() == "of 0.5"
        found = db.scalars(select(orm.ChatSession).where(titled)).one()
        assert found.created_at == session.created_at
        assert (found.model_json, found.metadata_json) == (MODEL, {"title": "of 0.5"})
        db.rollback()
    assert store.chat.sessions.list(owner="ann").items == []
    with Session(engine) as db:
        assert db.execute(COSTS).all() == []


def test_relationships_lead_both_ways_and_are_for_reading(store: Store, engine: Engine) -> None:
    session = store.chat.sessions.create(agent="build", model=MODEL, owner="ann")
    for words in ("one", "two"):
        store.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": words}])
    run = store.workflows.runs.create("triage", trigger_id="t", current_phase="plan", context={"title": "x"})
    store.workflows.executions.start(trigger_type="cli", trigger_id="t", skill="s", workflow_run_id=run.id)
    store.workflows.approvals.request(run.id, gate="plan", summary="go?")
    with Session(engine) as db, db.begin():
        db.add(User(id="ann", favourite_id=session.id))
        db.flush()
        user = db.scalars(select(User)).one()
        assert user.favourite is user.chats[0]
        messages = user.chats[0].messages
        assert [part.data_json["text"] for message in messages for part in message.parts] == ["one", "two"]
        assert {message.session for message in messages} == {user.favourite}
        assert user.chats[0].turn is None
        found = db.scalars(select(orm.WorkflowRun).options(selectinload(orm.WorkflowRun.executions))).one()
        assert [found.executions[0].run, found.approvals[0].run] == [found, found]
        assert (found.effects, found.signals, found.context) == ([], [], {"title": "x"})
    views = [view for mapper in orm.ChatSession.registry.mappers for view in mapper.relationships]
    assert len(views) > 12
    assert all(view.viewonly for view in views)


def test_the_databases_foreign_keys_of_a_host_hold(store: Store, engine: Engine) -> None:
    session = store.chat.sessions.create(agent="build", model=MODEL)
    with Session(engine) as db, db.begin():
        db.add_all([User(id="ann", favourite_id=session.id), Ticket(id=1, session_id=session.id)])
    with Session(engine) as db, pytest.raises(DBAPIError), db.begin():
        db.add(Ticket(id=2, session_id="ses_nobody"))
    store.chat.sessions.delete(session.id)
    with Session(engine) as db:
        assert db.scalars(select(Ticket)).all() == []
        assert db.scalars(select(User.favourite_id)).all() == [None]


def test_the_same_on_an_asynchronous_engine(database_url: str, engine: Engine) -> None:
    driver = {"postgresql": "postgresql+psycopg", "sqlite": "sqlite+aiosqlite"}
    kind, _, rest = database_url.partition("://")

    async def main() -> None:
        theirs = create_async_engine(f"{driver[kind]}://{rest}")
        persist.prepare_engine(theirs)
        async with AsyncStore.open(database_url) as store:
            options = store.execution_options()
            assert options == {"schema_translate_map": persist.schema_map(theirs.url)}
            maker = async_sessionmaker(theirs.execution_options(**options))
            async with maker() as db, db.begin():
                db.add(User(id="ann"))
                tx = store.join(db)
                session = await tx.chat.sessions.create(agent="build", model=MODEL, owner="ann")
                await tx.chat.messages.append(session.id, role="user", parts=HI)
                assert (await db.execute(COSTS)).all() == [("ann", 1, 0.0)]
            scoped = async_scoped_session(maker, scopefunc=asyncio.current_task)
            read = await store.join(scoped).chat.sessions.get(session.id)
            everything = selectinload(User.chats).selectinload(orm.ChatSession.messages).selectinload(orm.ChatMessage.parts)
            user = (await scoped.scalars(select(User).options(everything))).one()
            assert [part.data_json for part in user.chats[0].messages[0].parts] == HI
            assert user.chats[0].updated_at == read.updated_at
            await scoped.rollback()
            async with AsyncSession(theirs) as db:
                tx = store.join(db)
                both = await asyncio.gather(tx.chat.sessions.get(session.id), tx.chat.sessions.get(session.id))
                assert list(both) == [read, read]
        await theirs.dispose()

    asyncio.run(main())


def test_sessions_by_a_registry_and_those_that_are_refused(store: Store, engine: Engine) -> None:
    maker = sessionmaker(engine)
    scoped = scoped_session(maker)
    store.join(scoped).chat.sessions.create(agent="build", model=MODEL, id="ses_1")
    scoped.commit()
    scoped.remove()
    given: Any = maker
    with pytest.raises(InvalidValue, match="join one of them"):
        store.join(given)
    with Session(binds={User: engine}) as db, pytest.raises(InvalidValue, match="the session gives none"):
        store.join(db)
    with Session(engine) as db:
        tx = store.join(db)
        with pytest.raises(Conflict):
            tx.chat.sessions.create(agent="build", model=MODEL, id="ses_1")
        db.add(User(id="ann"))
        db.commit()
    assert store.chat.sessions.get("ses_1").agent == "build"


def test_every_class_reads_what_is_stored(filled: str) -> None:
    """Of a database with something in every table."""
    engine = engine_of(filled, {"schema_translate_map": persist.schema_map(filled)})
    with Session(engine) as db:
        empty = [name for name in NAMES if not db.scalars(select(getattr(orm, name)).limit(3)).all()]
    engine.dispose()
    assert empty == ["ChatTurn"]  # nobody is answering there


@pytest.mark.one_database
def test_a_class_has_the_name_of_the_value(database_url: str) -> None:
    values = {name for name in NAMES if hasattr(persist, name)}
    assert {*NAMES} - values == NOT_VALUES
    assert {inspect(getattr(orm, name)).local_table.schema for name in NAMES} == {"persist"}


def test_another_schema_has_its_own_name(empty_postgres_url: str) -> None:
    for schema in ("persist", "agents"):
        persist.upgrade(empty_postgres_url, schema=schema)
    with Store.open(empty_postgres_url, schema="agents") as store:
        store.chat.sessions.create(agent="there", model=MODEL)
        options = store.execution_options()
    assert options == {"schema_translate_map": {"persist": "agents"}}
    assert options["schema_translate_map"] == persist.schema_map(empty_postgres_url, schema="agents")
    engine = engine_of(empty_postgres_url, options)
    Base.metadata.create_all(engine)
    with Session(engine) as db:
        session = db.scalars(select(orm.ChatSession)).one()
        db.add(Ticket(id=1, session_id=session.id))
        db.commit()
        plain = db.scalars(
            select(orm.ChatSession), execution_options={"schema_translate_map": persist.schema_map("postgresql://")}
        )
        assert plain.all() == []
    engine.dispose()


def test_the_map_by_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("sqlite:///x.db", "sqlite+aiosqlite:///x.db", Path("x.db"), URL.create("sqlite", database="x.db")):
        assert persist.schema_map(url, schema="agents") == {"persist": None}
    for url in ("postgresql://h/d", "postgresql+asyncpg://h/d", "postgresql+psycopg://h1,h2/d"):
        assert persist.schema_map(url) == {"persist": "persist"}
    monkeypatch.setenv("PERSIST_SCHEMA_NAME", "elsewhere")
    assert persist.schema_map("postgresql://h/d") == {"persist": "elsewhere"}
    with pytest.raises(UnsupportedEngine):
        persist.schema_map("mysql://h/d")
    for wrong, options in (("no url", {}), ("postgresql://h/d", {"schema": "a-b"})):
        with pytest.raises(InvalidValue):
            persist.schema_map(wrong, **options)


def test_a_write_past_the_verbs_is_refused_while_events_are_logged(store: Store, engine: Engine) -> None:
    session = store.chat.sessions.create(agent="build", model=MODEL)
    renamed = update(orm.ChatSession).values(agent="other")
    with Session(engine) as db, db.begin():
        db.execute(renamed)
    store.switch_events(True)
    with Session(engine) as db, pytest.raises(DBAPIError), db.begin():
        db.execute(renamed)
    assert store.chat.sessions.get(session.id).agent == "other"
