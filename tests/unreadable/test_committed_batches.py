"""A verb's last batch commits on Postgres, and reads what cannot be read: the changes are kept, and the answer says so."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import select, update

from persist import Store
from persist.conversations.models import branches
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.repository import Repository, writes
from persist.db.unreadable.cells import OnUnreadable
from persist.errors import UnreadableRow
from persist.store.transaction import transaction_per_verb

_RENAME = Statement(update(branches).where(branches.c.id == param("row_id")).values(name=param("name")))
_RENAMED = Statement(
    update(branches).where(branches.c.id == param("row_id")).values(name=param("name")).returning(branches.c.started_at)
)
_LOOK = Statement(select(branches.c.started_at).where(branches.c.id == param("row_id")))
_NEED = Statement(
    select(branches.c.id, branches.c.started_at).where(branches.c.id == param("row_id")), unreadable=OnUnreadable.RAISE
)


class Probe(Repository):
    """Verbs that rename a branch and read when it started, in one batch."""

    @writes
    def look(self, id: str) -> Any:
        with self._work.batch(last=True) as batch:
            batch.run(_RENAME, row_id=id, name="looked")
            found = batch.row(_LOOK, row_id=id)
        return found.result

    @writes
    def return_it(self, id: str) -> Any:
        with self._work.batch(last=True) as batch:
            found = batch.returned(_RENAMED, row_id=id, name="returned")
        return found.result

    @writes
    def need(self, id: str) -> Any:
        with self._work.batch(last=True) as batch:
            batch.run(_RENAME, row_id=id, name="needed")
            found = batch.row(_NEED, row_id=id)
        return found.result


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    with Store.open(postgres_url) as store:
        store.conversations.sessions.create(id="talk")
        store.conversations.branches.create("talk", id="branch", name="new")
        with psycopg.connect(postgres_url, autocommit=True) as other:
            other.execute("UPDATE persist.branches SET started_at = 'infinity'")
        yield store


@pytest.mark.parametrize(("verb", "name"), [("look", "looked"), ("return_it", "returned")])
def test_a_cell_that_is_not_needed_is_left_out(store: Store, postgres_url: str, verb: str, name: str) -> None:
    probe = Probe(transaction_per_verb(store.runtime))
    assert getattr(probe, verb)("branch") == (None,)
    with psycopg.connect(postgres_url) as other:
        assert other.execute("SELECT name FROM persist.branches").fetchall() == [(name,)]


def test_a_cell_that_is_needed_raises_and_says_that_the_changes_are_kept(store: Store, postgres_url: str) -> None:
    with pytest.raises(UnreadableRow) as unread:
        Probe(transaction_per_verb(store.runtime)).need("branch")
    assert unread.value.committed
    assert unread.value.column == "started_at"
    assert "what the call changed is committed" in str(unread.value)
    with psycopg.connect(postgres_url) as other:
        assert other.execute("SELECT name FROM persist.branches").fetchall() == [("needed",)]


def test_inside_of_a_transaction_nothing_is_committed(store: Store, postgres_url: str) -> None:
    with pytest.raises(UnreadableRow) as unread, store.begin() as tx:
        Probe(tx._work).need("branch")
    assert not unread.value.committed
    with psycopg.connect(postgres_url) as other:
        assert other.execute("SELECT name FROM persist.branches").fetchall() == [("new",)]
