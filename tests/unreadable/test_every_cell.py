"""Every cell of every table, spoilt one at a time, under every verb of its domain."""

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Column, Table, make_url, select, update

from persist import Store
from persist.conversations.models import branches
from persist.db.schema.column_types import Json
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.repository import Repository, writes
from persist.db.unreadable.cells import OnUnreadable
from persist.db.unreadable.conditions import reader_of
from persist.db.values.json import decode, encode
from persist.errors import InvalidValue, UnreadableRow
from persist.maintenance import maintain, prune
from persist.maintenance.pruning import PRUNINGS
from persist.maintenance.unreadable import SHAPES
from persist.schema.metadata import metadata
from persist.store.transaction import transaction_per_verb
from persist.testing import FrozenClock
from tests.cases import each
from tests.statemachines.scene import verbs
from tests.unreadable.cells import spoil_row, tables
from tests.unreadable.verdicts import DOMAINS, NEEDED, SWEEPS, filled, problems


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="persist")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, Any]]:
    """The file that every test of files copies, and its ids."""
    path = tmp_path_factory.mktemp("scene") / "scene.db"
    store, ids = filled(f"sqlite:///{path.as_posix()}", FrozenClock())
    store.close()
    return path, ids


@pytest.mark.parametrize("domain", DOMAINS)
def test_no_cell_stops_more_than_its_row(
    domain: str, scene: tuple[Path, Mapping[str, Any]], tmp_path: Path, clock: FrozenClock, quiet: None
) -> None:
    path, ids = tmp_path / "state.db", scene[1]
    shutil.copyfile(scene[0], path)
    with Store.open(f"sqlite:///{path.as_posix()}", clock=clock) as store:
        assert (found := "\n".join(problems(store, ids, domain, lite=True))) == "", found


def test_no_cell_stops_more_while_statements_are_watched(
    scene: tuple[Path, Mapping[str, Any]], tmp_path: Path, clock: FrozenClock, caplog: pytest.LogCaptureFixture, quiet: None
) -> None:
    caplog.set_level(logging.DEBUG, logger="persist.statements")
    path, ids = tmp_path / "state.db", scene[1]
    shutil.copyfile(scene[0], path)
    with Store.open(f"sqlite:///{path.as_posix()}", clock=clock) as store:
        assert list(problems(store, ids, "usage", lite=True)) == []
    assert any(record.name == "persist.statements" for record in caplog.records)


def test_no_cell_of_a_server_stops_more_than_its_row(postgres_url: str, clock: FrozenClock, quiet: None) -> None:
    store, ids = filled(postgres_url, clock)
    with store:
        assert [problem for domain in DOMAINS for problem in problems(store, ids, domain, lite=False)] == []


def test_sweeps_are_verbs() -> None:
    assert {verb.name for verb in verbs()} >= SWEEPS | set(NEEDED)


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_file_with_a_row_that_is_all_spoilt_opens_and_is_swept(
    domain: str, scene: tuple[Path, Mapping[str, Any]], clock: FrozenClock, tmp_path: Path, quiet: None
) -> None:
    clock.advance(delta=timedelta(days=40))
    for table in tables(domain):
        with _spoilt(scene[0], tmp_path / f"{table.name}.db", [table], clock) as store:
            assert [step for step in maintain(store).steps if step.error] == []
            for kind in PRUNINGS:  # a table's own pruning is one of its domain's
                prune(store, kind, older_than=timedelta(days=30))
    with _spoilt(scene[0], tmp_path / "all.db", tables(domain), clock) as store:
        for kind in PRUNINGS:  # a trial is the same on a copy of the file, and a copy takes long
            prune(store, kind, older_than=timedelta(days=30), dry_run=True)


def _spoilt(scene: Path, path: Path, of: Sequence[Table], clock: FrozenClock) -> Store:
    shutil.copyfile(scene, path)
    for table in of:
        spoil_row(path, table)
    return Store.open(f"sqlite:///{path.as_posix()}", clock=clock, sleep=lambda seconds: None)  # nobody waits for its lock


# A verb's last batch commits on Postgres, and reads what cannot be read: the changes are kept, and the answer says so.


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


# What readers refuse in a column of JSON the doctor finds there, and writers do not write: on both databases.


DIALECTS: list[Any] = [make_url(url).get_dialect()() for url in ("sqlite://", "postgresql+psycopg://")]
VALUES = ["null", "7", '"x"', "[]", "[1]", '["x"]', "[{}]", "{}", '{"a": 1}']
COLUMNS = [
    column
    for table in metadata.sorted_tables
    for column in table.columns
    if isinstance(column.type, Json) and column.type.shape is not None
]


@each("dialect", DIALECTS, ids=["sqlite", "postgres"])
@each("column", COLUMNS, ids=str)
def test_the_doctor_finds_what_readers_refuse(column: Column[Any], dialect: Any) -> None:
    stored: Any = column.type.dialect_impl(dialect)
    kinds: list[Any] = [column.type, stored.column_expression(column).type] if dialect.name == "postgresql" else [column.type]
    finds = reader_of(column, SHAPES.get(column))
    for value in VALUES:
        for kind in kinds:
            assert finds(value) is not None or not _refuses(kind.result_processor(dialect, None), value), value
            assert kind.misfit(decode(value)) is None or _refuses(kind.result_processor(dialect, None), value), value


@pytest.mark.parametrize("dialect", DIALECTS, ids=["sqlite", "postgres"])
@pytest.mark.parametrize("column", COLUMNS, ids=str)
def test_what_readers_refuse_is_not_written(column: Column[Any], dialect: Any) -> None:
    kind: Any = column.type.dialect_impl(dialect)
    for value in map(decode, VALUES[1:]):  # None writes NULL
        assert _refuses(kind.bind_processor(dialect), value) == (kind.misfit(value) is not None), value
        assert _refuses(kind.bind_processor(dialect), encode(value)) == (type(value) is not kind.shape), value


def _refuses(process: Any, value: Any) -> bool:
    try:
        process(value)
    except InvalidValue:
        return True
    return False
