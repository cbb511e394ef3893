"""The job that peers do too: messages appended one by one, a commit each, and then all of them read back.

Here as persist does it, and by hand on the same tables with the same indexes.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import psycopg

from benchmarks.floors import connect, now_ms, transcript
from persist import AsyncStore, Store

MESSAGES = 500
_TEXT = "word " * 80
_numbers = count()

_MESSAGE = "INSERT INTO chat_messages (id, session_id, role, created_at, updated_at, metadata_json) VALUES (?, ?, ?, ?, ?, '{}')"
_PART = (
    'INSERT INTO chat_parts (id, message_id, session_id, "index", type, created_at, updated_at, data_json)'
    " VALUES (?, ?, ?, 0, 'text', ?, ?, ?)"
)
_TOUCH = "UPDATE chat_sessions SET updated_at = ? WHERE id = ?"
AT_ONCE = """
WITH message AS (
  INSERT INTO chat_messages (id, session_id, role, created_at, updated_at, metadata_json)
  VALUES (%(id)s, %(session)s, %(role)s, %(at)s, %(at)s, '{}')
), part AS (
  INSERT INTO chat_parts (id, message_id, session_id, "index", type, created_at, updated_at, data_json)
  VALUES (%(part)s, %(id)s, %(session)s, 0, 'text', %(at)s, %(at)s, %(data)s::jsonb)
)
UPDATE chat_sessions SET updated_at = %(at)s WHERE id = %(session)s
"""


@dataclass(frozen=True)
class Times:
    """Seconds of one job."""

    append: float
    read: float

    @property
    def whole(self) -> float:
        """Both."""
        return self.append + self.read


Job = Callable[[], Awaitable[Times]]


def text(number: int) -> str:
    """What message `number` says."""
    return f"{number} {_TEXT}"


def role(number: int) -> str:
    """Who says it; they take turns."""
    return "assistant" if number % 2 else "user"


class Clock:
    """Notes when the appending ended; `read` must have found everything."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def appended(self) -> None:
        """Half way."""
        self._half = time.perf_counter()

    def read(self, found: int) -> Times:
        """The end."""
        ended = time.perf_counter()
        if found != MESSAGES:
            raise AssertionError(f"{found} of {MESSAGES} messages were read back")
        return Times(self._half - self._began, ended - self._half)


# ---------------------------------------------------------------- persist


def ours(store: Store) -> Times:
    """The store; a transaction for each."""
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="bench", model={})
    clock = Clock()
    for number in range(MESSAGES):
        with store.begin() as tx:
            tx.chat.messages.append(session.id, role=_speaker(number), parts=[{"type": "text", "text": text(number)}])
    clock.appended()
    with store.read() as tx:
        return clock.read(len(tx.chat.messages.list(session.id)))


async def ours_async(store: AsyncStore) -> Times:
    """The same on its other face."""
    async with store.begin() as tx:
        session = await tx.chat.sessions.create(agent="bench", model={})
    clock = Clock()
    for number in range(MESSAGES):
        async with store.begin() as tx:
            await tx.chat.messages.append(session.id, role=_speaker(number), parts=[{"type": "text", "text": text(number)}])
    clock.appended()
    async with store.read() as tx:
        return clock.read(len(await tx.chat.messages.list(session.id)))


def _speaker(number: int) -> Any:
    return role(number)


# ---------------------------------------------------------------- by hand


def _data(number: int) -> str:
    return orjson.dumps({"type": "text", "text": text(number)}).decode()


def by_hand(path: Path) -> Times:
    """On our tables in a file: two rows and the session's time, in one transaction."""
    Store.open(f"sqlite:///{path}").close()
    raw = connect(path)
    run, session = raw.execute, f"raw_{next(_numbers)}"
    run("INSERT INTO chat_sessions (id, agent, model_json, created_at, updated_at) VALUES (?, 'bench', '{}', 0, 0)", (session,))
    clock = Clock()
    for number in range(MESSAGES):
        id, at = f"msg_{number:026}", now_ms()
        run("BEGIN IMMEDIATE")
        run(_MESSAGE, (id, session, role(number), at, at))
        run(_PART, (f"prt_{number:026}", id, session, at, at, _data(number)))
        run(_TOUCH, (at, session))
        run("COMMIT")
    clock.appended()
    times = clock.read(len(transcript(raw, session)))
    raw.close()
    return times


def by_hand_on_server(raw: "psycopg.Connection[Any]") -> Times:
    """The same in one statement that commits by itself: nothing is quicker."""
    session, run = _session(raw), raw.cursor().execute
    clock = Clock()
    for number in range(MESSAGES):
        values = {"id": f"{session}_msg_{number:06}", "part": f"{session}_prt_{number:06}", "session": session}
        run(AT_ONCE, values | {"role": role(number), "at": now_ms(), "data": _data(number)}, prepare=True)
    clock.appended()
    return clock.read(len(transcript(raw, session)))


def by_hand_in_steps(raw: "psycopg.Connection[Any]") -> Times:
    """The same as most would write it: a transaction of three statements."""
    session, run = _session(raw), raw.cursor().execute
    message, part, touch = (sql.replace("?", "%s") for sql in (_MESSAGE, _PART, _TOUCH))
    clock = Clock()
    for number in range(MESSAGES):
        id, at = f"{session}_msg_{number:06}", now_ms()
        with raw.transaction():
            run(message, (id, session, role(number), at, at), prepare=True)
            run(part, (f"{session}_prt_{number:06}", id, session, at, at, _data(number)), prepare=True)
            run(touch, (at, session), prepare=True)
    clock.appended()
    return clock.read(len(transcript(raw, session)))


def _session(raw: "psycopg.Connection[Any]") -> str:
    session = f"raw_{next(_numbers)}"
    raw.execute(
        "INSERT INTO chat_sessions (id, agent, model_json, created_at, updated_at) VALUES (%s, 'bench', '{}', 0, 0)", (session,)
    )
    return session
