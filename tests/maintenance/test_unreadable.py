"""Cells that nobody can read: doctor names each of them, sets its row aside, and the row comes back byte for byte."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from persist.db.trouble import Trouble
from persist.maintenance.checkups import check_rows
from persist.maintenance.examining import _mended
from persist.maintenance.looking import looking
from persist.maintenance.quarantine import quarantined, restore_row
from persist.metadata import metadata
from persist.store import Store
from persist.testing import FrozenClock
from tests.maintenance.spoiling import OWN, Cell, raw_rows, spoil, spoilt_on_a_file
from tests.schema.filling import fill

CELLS = list(spoilt_on_a_file())
TABLES = sorted({str(cell[0].name) for cell in CELLS})


@pytest.fixture(scope="module")
def filled_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file with something in every table, and nothing running."""
    path, clock = tmp_path_factory.mktemp("filled") / "state.db", FrozenClock()
    with Store.open(f"sqlite:///{path}", clock=clock) as store, ExitStack() as stack:
        fill(store, clock, stack)
    yield path


def troubles(store: Store) -> list[Trouble]:
    with looking(store, "test") as work:
        return list(check_rows(work))


def test_nothing_of_a_healthy_store_is_unreadable(filled_file: Path) -> None:
    rows = raw_rows(filled_file)
    assert {name for name, found in rows.items() if not found} <= {*OWN, "chat_turns", "chat_part_deltas"}
    with Store.open(f"sqlite:///{filled_file}", read_only=True) as store:
        assert troubles(store) == []


@pytest.mark.parametrize("table", TABLES)
def test_every_cell_of_a_table(filled_file: Path, tmp_path: Path, table: str) -> None:
    good = raw_rows(filled_file)
    for number, cell in enumerate(cell for cell in CELLS if cell[0].name == table):
        path = tmp_path / f"{number}.db"
        shutil.copyfile(filled_file, path)
        with Store.open(f"sqlite:///{path}", clock=FrozenClock()) as store:
            if good[table]:
                _named_moved_and_brought_back(store, path, cell)


def _named_moved_and_brought_back(store: Store, path: Path, cell: Cell) -> None:
    table, column, value = cell
    assert spoil(path, cell), cell
    spoilt = raw_rows(path)
    found = troubles(store)
    assert [one.subject.split()[0] for one in found] == [table.name], (column.name, value, found)
    assert found[0].message.startswith(f"{column.name} holds "), (value, found)
    finding = _mended(store, found[0])
    assert finding.fixed, finding
    assert troubles(store) == [], (column.name, value)
    aside = quarantined(store, limit=10_000)
    assert aside, (column.name, value)
    restore_row(store, aside[-1].id)
    assert quarantined(store) == []
    now = raw_rows(path)
    lost = {name: [row for row in rows if row not in now[name]] for name, rows in spoilt.items()}
    more = {name: [row for row in rows if row not in spoilt[name]] for name, rows in now.items()}
    seeded = 1 if table.info.get("seed") and column.primary_key else 0  # a row that must always exist was made anew
    assert not any(lost.values()), (column.name, value, lost)
    assert {name: len(rows) for name, rows in more.items() if rows} == ({table.name: seeded} if seeded else {}), (column.name, value)


def test_every_table_is_spoilt() -> None:
    assert {*TABLES} | {*OWN} == {str(table.name) for table in metadata.sorted_tables}
