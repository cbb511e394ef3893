"""What the tests of sessions, statuses, deletion, pruning and exchange make and look at, each in a transaction of its own."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from persist.conversations.schemas import Branch, ConvMessage, ConvSession, PruneReport, StatusTransition
from tests.contract.conftest import Raw

DAY = timedelta(days=1)
AT = datetime(2025, 11, 12, 13, 14, 15, 678_901, tzinfo=UTC)
STATUSES = ["running", "completed", "completed_empty", "failed", "timed_out", "aborted", "cancelled"]
ENDED = STATUSES[1:]
PROVENANCE = {
    "playbook_name": "release",
    "agent_name": "reviewer",
    "invocation_kind": "show-play",
    "show_topic": "quality",
    "show_play_name": "opening",
    "artifacts_path": "/srv/artifacts/1",
    "source_kind": "imported_fs",
}
TABLES = ["sessions", "branches", "progressions", "progression_members", "messages", "status_transitions"]


def make_session(store: Any, id: str | None = None, **fields: Any) -> ConvSession:
    made: ConvSession = store.conversations.sessions.create(id=id, **fields)
    return made


def change(store: Any, id: str, **fields: Any) -> ConvSession:
    changed: ConvSession = store.conversations.sessions.update(id, **fields)
    return changed


def set_status(store: Any, id: str, status: Any, **options: Any) -> bool:
    return bool(store.conversations.sessions.set_status(id, status, **options))


def make_branch(store: Any, session_id: str, id: str | None = None, **fields: Any) -> str:
    """A branch -> its id."""
    return str(store.conversations.branches.create(session_id, id=id, **fields).id)


def fork(store: Any, id: str, at: int | None = None) -> str:
    """A fork in the same session -> its id."""
    return str(store.conversations.branches.fork(id, at=at).id)


def fork_into(store: Any, session_id: str, parent: str, at: int, **fields: Any) -> str:
    """A fork in another session, as the published metadata says it -> its id."""
    pointers = {"parent_branch_id": parent, "forked_at_ord": at}
    return make_branch(store, session_id, node_metadata={"model": "m", **pointers}, **fields)


def message(id: str, **fields: Any) -> dict[str, Any]:
    return {"id": id, "created_at": 1_700_000_000.5, "role": "user", "content": {"text": id}, **fields}


def put(store: Any, *ids: str) -> None:
    with store.begin() as tx:
        for id in ids:
            tx.conversations.messages.put(message(id))


def say(store: Any, branch_id: str, *ids: str, role: str = "user") -> None:
    """Record these messages in the branch."""
    with store.begin() as tx:
        for id in ids:
            tx.conversations.messages.record(branch_id, message(id, role=role))


def delete_session(store: Any, id: str) -> bool:
    return bool(store.conversations.sessions.delete(id))


def delete_branch(store: Any, id: str) -> bool:
    return bool(store.conversations.branches.delete(id))


def prune(store: Any, **options: Any) -> PruneReport:
    report: PruneReport = store.conversations.sessions.prune(**options)
    return report


@contextmanager
def without_history(raw: Raw) -> Iterator[None]:
    """As long as it lasts, no row of history can be written."""
    raw.rows("ALTER TABLE status_transitions RENAME TO status_transitions_away")
    try:
        yield
    finally:
        raw.rows("ALTER TABLE status_transitions_away RENAME TO status_transitions")


def session_of(store: Any, id: str) -> ConvSession:
    found: ConvSession = store.conversations.sessions.get(id)
    return found


def sessions(store: Any, **options: Any) -> list[str]:
    """The ids of the first page of the list."""
    return [session.id for session in store.conversations.sessions.list(**options).items]


def transitions(store: Any, id: str) -> list[StatusTransition]:
    found: list[StatusTransition] = store.conversations.sessions.transitions(id)
    return found


def branch_of(store: Any, id: str) -> Branch:
    found: Branch = store.conversations.branches.get(id)
    return found


def branches(store: Any, session_id: str) -> list[str]:
    return [branch.id for branch in store.conversations.branches.list(session_id)]


def shown(store: Any, branch_id: str) -> list[str]:
    """The ids of what the branch shows."""
    return [one.id for one in store.conversations.branches.history(branch_id)]


def members(store: Any, progression_id: str) -> list[str]:
    found: list[str] = store.conversations.progressions.get(progression_id)
    return found


def stored(store: Any, *ids: str) -> list[str]:
    """Those of these messages that are there."""
    return list(store.conversations.messages.get_many(ids))


def texts(found: Iterable[ConvMessage]) -> list[Any]:
    return [one.content for one in found]


def dump(raw: Raw) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table of theirs, comparable."""
    return {table: sorted(raw.rows(f"SELECT * FROM {table}"), key=repr) for table in TABLES}


def counts(raw: Raw) -> dict[str, int]:
    """How many rows there are of what a prune counts."""
    return {table: raw.count(table) for table in ("sessions", "branches", "progressions", "messages")}


def gone(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {table: before[table] - after[table] for table in before}


LONG = 1000 * DAY
NOTHING = PruneReport(sessions=0, branches=0, progressions=0, messages=0)


def talk(store: Any, name: str, *ids: str, **fields: Any) -> str:
    """A session with one branch of the same name -> its name."""
    make_session(store, name, **fields)
    make_branch(store, name, name)
    say(store, name, *ids)
    return name


def pruned(store: Any, raw: Raw, **options: Any) -> PruneReport:
    """Prune, after a dry run that must say the same and change nothing; the report must be what is gone."""
    before, before_counts = dump(raw), counts(raw)
    foretold = prune(store, dry_run=True, **options)
    assert dump(raw) == before
    report = prune(store, **options)
    assert report == foretold
    assert report.model_dump() == gone(before_counts, counts(raw))
    return report
