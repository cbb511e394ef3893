"""Something is deleted in the very moment in which another connection makes it: it stays, and neither fails."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import text

from persist import Store
from persist.framework_state.agent_tasks.schemas import Piece
from persist.framework_state.app_sessions.schemas import ArtifactKey, NewEvent
from persist.framework_state.checkpoints.schemas import Blob
from tests.concurrency.test_conversation_pruning import postgres, until_it_waits

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
