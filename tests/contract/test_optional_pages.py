"""Lists that return everything, as they always did, and a page of it where a limit is given."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from persist.db.values.pages import PagedList
from persist.errors import InvalidValue
from tests.contract.chat.scenes import MODEL

LISTS: dict[str, Callable[..., Any]] = {
    "chat.sessions.children": lambda tx, **page: tx.chat.sessions.children("ses_parent", **page),
    "histories.runs.started": lambda tx, **page: tx.histories.runs.started(conversation_id="talk", **page),
    "telemetry.tasks.list": lambda tx, **page: tx.telemetry.tasks.list(workspace_id="w", **page),
    "telemetry.tasks.list of a state": lambda tx, **page: tx.telemetry.tasks.list(state="queued", workspace_id="w", **page),
    "transcripts.sessions.mains": lambda tx, **page: tx.transcripts.sessions.mains("p", **page),
    "usage.budgets.standings of a key": lambda tx, **page: tx.usage.budgets.standings("owner:team", **page),
    "workflows.cron_overrides.all": lambda tx, **page: tx.workflows.cron_overrides.all(**page),
    "workflows.limits.list": lambda tx, **page: tx.workflows.limits.list(**page),
    "workflows.schedules.list": lambda tx, **page: tx.workflows.schedules.list(**page),
    "workflows.workflow_overrides.all": lambda tx, **page: tx.workflows.workflow_overrides.all(**page),
}
COUNT = 5


def fill(store: Any, clock: Any) -> None:
    """Five of each, two of them from the same instant."""
    with store.begin() as tx:
        tx.chat.sessions.create(id="ses_parent", agent="build", model=MODEL)
        said = tx.chat.messages.append("ses_parent", role="user", parts=[{"type": "text", "text": "hi"}])
        for number in range(COUNT):
            name = f"n{number}"
            tx.chat.sessions.fork("ses_parent", said.id)
            tx.histories.runs.register(name, started_at=clock(), conversation_id="talk")
            task = {"id": name, "source_id": "s", "kind": "k", "title": "t", "discovered_at": clock()}
            tx.telemetry.tasks.poll([task], workspace_id="w")
            tx.transcripts.entries.append("p", name, [{"type": "x"}])
            tx.usage.budgets.set(f"owner:{name}", period=("day", "week")[number % 2], max_tokens=1)
            tx.usage.budgets.set("owner:team", period=("hour", "day", "week", "month", "total")[number], max_tokens=1)
            tx.workflows.cron_overrides.set(name, enabled=False)
            tx.workflows.workflow_overrides.set(name, enabled=False)
            tx.workflows.limits.set(name, concurrency=1)
            tx.workflows.schedules.set(name, workflow_name="w", cron="0 0 * * *")
            if number != 2:
                clock.advance(delta=timedelta(milliseconds=1_001))


def test_pages_of_a_list_are_the_list(store: Any, clock: Any) -> None:
    fill(store, clock)
    with store.read() as tx:
        cursors: dict[str, str | None] = {}
        for name, read in LISTS.items():
            everything: Any = read(tx)
            assert isinstance(everything, PagedList)
            assert (len(everything), everything.cursor) == (COUNT, None), name
            found: list[Any] = []
            after: str | None = None
            for size in (2, 2, 1):
                page = read(tx, limit=2, after=after)
                assert len(page) == size, name
                found += page.items
                after = page.cursor
                cursors.setdefault(name, after)
            assert (found, after) == (everything, None), name
            assert read(tx, limit=COUNT).cursor is None
        for name, read in LISTS.items():
            for refused in ({"limit": 0}, {"limit": True}, {"after": cursors[name]}, {"limit": 2, "after": "x"}):
                with pytest.raises(InvalidValue):
                    read(tx, **refused)
            for other in cursors.keys() - {name}:
                with pytest.raises(InvalidValue):
                    read(tx, limit=2, after=cursors[other])


# A list of each kind whose rows can be spoilt one by one: how it is read, and what of a row to spoil.
SPOILT: dict[str, tuple[Callable[..., Any], str]] = {
    "pages": (lambda tx, **page: tx.chat.sessions.list(**page), "chat_sessions SET metadata_json = '[]'"),
    "pages where a limit is given": (LISTS["workflows.schedules.list"], "workflow_schedules SET context = '[]'"),
    "pages by statements of their own": (
        lambda tx, **page: tx.workflows.runs.list_queued(**page),
        "workflow_runs SET phase_history = '{}'",
    ),
    "pages with a literal limit": (
        lambda tx, **page: tx.workflows.runs.list(status="queued", **page),
        "workflow_runs SET phase_history = '{}'",
    ),
}


@pytest.mark.parametrize("unreadable", ["0", "12", "234", "0123", "01234"])
def test_rows_that_cannot_be_read_neither_shorten_pages_nor_end_them(store: Any, raw: Any, unreadable: str) -> None:
    ids = [f"n{number}" for number in range(COUNT)]
    with store.begin() as tx:
        for id in ids:
            tx.chat.sessions.create(id=id, agent="build", model=MODEL)
            tx.workflows.schedules.set(id, workflow_name="w", cron="0 0 * * *")
            tx.workflows.runs.create("w", trigger_id=id, current_phase="plan", status="queued", id=id)
    readable = {id for id in ids if id[1] not in unreadable}
    for name, (read, column) in SPOILT.items():
        for number in unreadable:
            raw.rows(f"UPDATE {column} WHERE {'name' if 'schedules' in column else 'id'} = 'n{number}'")
        with store.read() as tx:
            sizes: list[int] = []
            found, after = set(), None
            while sizes == [] or after is not None:
                page = read(tx, limit=2, after=after)
                sizes.append(len(page.items))
                found |= {getattr(item, "id", None) or item.name for item in page.items}
                after = page.cursor
        assert found == readable, name
        assert sizes == {4: [2, 2], 3: [2, 1], 2: [2], 1: [1], 0: [0]}[len(readable)], name


def test_pages_of_budgets_and_of_what_is_used_of_them(store: Any) -> None:
    """They share their cursors."""
    with store.begin() as tx:
        for key in ("owner:a", "owner:b"):
            for period in ("week", "day"):
                tx.usage.budgets.set(key, period=period, max_tokens=1)
    with store.read() as tx:
        budgets = tx.usage.budgets
        expected = [("owner:a", "day"), ("owner:a", "week"), ("owner:b", "day"), ("owner:b", "week")]
        assert [(one.key, one.period) for one in budgets.list()] == expected
        first = budgets.list(limit=3)
        rest = budgets.standings(limit=3, after=first.cursor)
        assert [one.budget for one in budgets.standings()] == budgets.list() == [*first, *(one.budget for one in rest)]
        assert rest.cursor is None
