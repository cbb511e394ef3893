"""The same job as the documentation of each library does it; only the environment of `make bench` has them."""

import sqlite3
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents import SQLiteSession
from agents.extensions.memory import SQLAlchemySession
from google.adk.events import Event
from google.adk.sessions import DatabaseSessionService
from google.genai import types
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from benchmarks.floors import PRAGMAS
from benchmarks.jobs import MESSAGES, Clock, Job, Times, role, text


class _EqualSession(SQLiteSession):
    """With the settings of everybody else here."""

    def _configure_connection(self, conn: sqlite3.Connection) -> Any:
        done = super()._configure_connection(conn)
        _set(conn)
        return done


def _set(connection: Any) -> None:
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _equal(engine: AsyncEngine) -> AsyncEngine:
    @event.listens_for(engine.sync_engine, "connect")
    def connected(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        _set(cursor)
        cursor.close()

    return engine


def _item(number: int) -> Any:
    return {"role": role(number), "content": text(number)}


async def _agents(session: Any) -> Times:
    await session.get_items()  # makes the tables
    clock = Clock()
    for number in range(MESSAGES):
        await session.add_items([_item(number)])
    clock.appended()
    return clock.read(len(await session.get_items()))


async def _sqlite_session(session: SQLiteSession) -> Times:
    try:
        return await _agents(session)
    finally:
        session.close()


async def _sqlalchemy_session(engine: AsyncEngine) -> Times:
    try:
        return await _agents(SQLAlchemySession(uuid.uuid4().hex, engine=engine, create_tables=True))
    finally:
        await engine.dispose()


async def _adk(service: DatabaseSessionService) -> Times:
    app, user = "bench", uuid.uuid4().hex
    session = await service.create_session(app_name=app, user_id=user)
    events = [
        Event(
            author="user" if role(number) == "user" else "agent",
            invocation_id="run",
            content=types.Content(role="user", parts=[types.Part(text=text(number))]),
        )
        for number in range(MESSAGES)
    ]
    clock = Clock()
    for one in events:
        await service.append_event(session, one)
    clock.appended()
    found = await service.get_session(app_name=app, user_id=user, session_id=session.id)
    times = clock.read(0 if found is None else len(found.events))
    await service.db_engine.dispose()
    return times


def _saver(saver: Any) -> Times:
    """A checkpoint after every message, which holds all of them: what a graph with a list of messages does."""
    thread = {"configurable": {"thread_id": uuid.uuid4().hex, "checkpoint_ns": ""}}
    config: Any = thread
    said: list[Any] = []
    clock = Clock()
    for number in range(MESSAGES):
        said.append((AIMessage if number % 2 else HumanMessage)(content=text(number), id=str(number)))
        version, checkpoint = f"{number + 1:032}.0", empty_checkpoint()
        checkpoint["channel_values"] = {"messages": list(said)}
        checkpoint["channel_versions"] = {"messages": version}
        config = saver.put(config, checkpoint, {"source": "loop", "step": number, "parents": {}}, {"messages": version})
    clock.appended()
    return clock.read(len(saver.get_tuple(thread).checkpoint["channel_values"]["messages"]))


async def _sqlite_saver(path: Path, *, equal: bool) -> Times:
    connection = sqlite3.connect(path, check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    if equal:
        _set(connection)
    times = _saver(saver)
    connection.close()
    return times


def on_files(new: Callable[[], Path]) -> dict[str, Job]:
    """Each in a file of its own, with the settings of everybody here."""

    def engine() -> AsyncEngine:
        return _equal(create_async_engine(f"sqlite+aiosqlite:///{new()}"))

    return {
        "openai-agents SQLiteSession": lambda: _sqlite_session(_EqualSession("s", new())),
        "openai-agents SQLAlchemySession": lambda: _sqlalchemy_session(engine()),
        "google-adk DatabaseSessionService": lambda: _adk(DatabaseSessionService(db_engine=engine())),
        "langgraph SqliteSaver": lambda: _sqlite_saver(new(), equal=True),
    }


def as_shipped(new: Callable[[], Path]) -> dict[str, Job]:
    """The same with the settings that each comes with."""

    def url() -> str:
        return f"sqlite+aiosqlite:///{new()}"

    return {
        "openai-agents SQLiteSession": lambda: _sqlite_session(SQLiteSession("s", new())),
        "openai-agents SQLAlchemySession": lambda: _sqlalchemy_session(create_async_engine(url())),
        "google-adk DatabaseSessionService": lambda: _adk(DatabaseSessionService(db_url=url())),
        "langgraph SqliteSaver": lambda: _sqlite_saver(new(), equal=False),
    }


def on_server(url: str) -> dict[str, Job]:
    """On Postgres, in its `public` schema; asyncpg is the driver that their documentation names."""
    asyncpg = url.replace("postgresql://", "postgresql+asyncpg://", 1)

    async def saver() -> Times:
        with PostgresSaver.from_conn_string(url) as opened:
            opened.setup()
            return _saver(opened)

    return {
        "openai-agents SQLAlchemySession": lambda: _sqlalchemy_session(create_async_engine(asyncpg)),
        "google-adk DatabaseSessionService": lambda: _adk(DatabaseSessionService(db_url=asyncpg)),
        "langgraph PostgresSaver": saver,
    }
