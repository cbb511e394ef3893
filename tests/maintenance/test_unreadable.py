"""Cells that nobody can read: doctor names each of them, sets its row aside, and the row comes back byte for byte."""

import shutil
from collections.abc import Callable, Iterable
from itertools import zip_longest
from pathlib import Path

import pytest

from persist import Store
from persist.db.dialects.interface import Problem
from persist.events.models import event_heads
from persist.maintenance import doctor, rebuild
from persist.maintenance.checkups import check_rows, repaired
from persist.maintenance.quarantine import quarantined, restore_row
from persist.maintenance.transactions import looking
from persist.schema.metadata import metadata
from persist.testing import FrozenClock
from tests.maintenance.filled import filled
from tests.maintenance.spoiling import (
    NO_WORD,
    NOT_UTF8,
    OWN,
    Cell,
    raw_rows,
    server_rows,
    spoil,
    spoilt_on_a_file,
    spoilt_on_a_server,
)
from tests.schema.filling import transcript
from tests.schema.places import Place

CELLS = [cell for cell in spoilt_on_a_file() if cell[2] != NO_WORD]
WORDS = [cell for cell in spoilt_on_a_file() if cell[2] == NO_WORD]
ON_A_SERVER = [cell for cell in spoilt_on_a_server() if cell[2] != NO_WORD]
TABLES = sorted({str(cell[0].name) for cell in CELLS})


def troubles(store: Store) -> list[Problem]:
    with looking(store, "test") as work:
        return list(check_rows(work))


def test_nothing_of_a_healthy_store_is_unreadable(filled_file: Path) -> None:
    rows = raw_rows(filled_file)
    assert {name for name, found in rows.items() if not found} <= {*OWN, "chat_turns", "chat_part_deltas"}
    with Store.open(f"sqlite:///{filled_file}", read_only=True) as store:
        assert troubles(store) == []


def in_rounds(cells: Iterable[Cell], group: Callable[[Cell], str] = lambda cell: str(cell[0].name)) -> list[list[Cell]]:
    """The first cells of all groups at once, then the second ones, and so on."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(group(cell), []).append(cell)
    return [[cell for cell in some if cell is not None] for some in zip_longest(*groups.values())]


def alone(cell: Cell) -> bool:
    """Other rows find theirs by it, or it may be a sum that is computed again when another row moves."""
    return cell[1].primary_key or bool(cell[1].foreign_keys) or cell[0].name == "chat_sessions"


def families() -> dict[str, str]:
    """By table, the first of those that foreign keys relate it to, over any number of tables."""
    first = {str(table.name): str(table.name) for table in metadata.sorted_tables}
    for table in metadata.sorted_tables:
        for key in table.foreign_keys:
            ours, theirs = first[str(table.name)], first[str(key.column.table.name)]
            first = {name: theirs if one == ours else one for name, one in first.items()}
    return first


FAMILIES = families()
ROUNDS = in_rounds((cell for cell in CELLS if alone(cell)), lambda cell: FAMILIES[str(cell[0].name)])
ROUNDS += in_rounds(cell for cell in CELLS if not alone(cell))
ORDER = {str(table.name): number for number, table in enumerate(metadata.sorted_tables)}


def test_cells_of_a_file(filled_file: Path, tmp_path: Path) -> None:
    """Some cells of every table."""
    found, seen = [], set[tuple[str, str]]()
    for some in ROUNDS:
        new = [cell for cell in some if (str(cell[0].name), type(cell[1].type).__name__) not in seen]
        seen |= {(str(cell[0].name), type(cell[1].type).__name__) for cell in new}
        found += [new] if new else []
    assert {name for name, _ in seen} == {*TABLES}
    spoil_each(filled_file, tmp_path, found[::8])


@pytest.mark.parametrize("portion", range(4))
def test_every_cell_of_a_file(filled_file: Path, tmp_path: Path, portion: int) -> None:
    spoil_each(filled_file, tmp_path, ROUNDS[portion::4])


def spoil_each(filled_file: Path, tmp_path: Path, rounds: list[list[Cell]]) -> None:
    """Of those on which other rows depend one of each family of tables at a time, of the others one of each table."""
    good = raw_rows(filled_file)
    for number, some in enumerate(rounds):
        path = tmp_path / f"{number}.db"
        shutil.copyfile(filled_file, path)
        with Store.open(f"sqlite:///{path}", clock=FrozenClock()) as store:
            if cells := [cell for cell in some if good[str(cell[0].name)]]:
                _named_moved_and_brought_back(store, path, cells)


def _named_moved_and_brought_back(store: Store, path: Path, cells: list[Cell]) -> None:
    said = [(table.name, column.name, value) for table, column, value in cells]
    assert all(spoil(path, cell) for cell in cells), said
    spoilt = raw_rows(path)
    found = troubles(store)
    named = [(one.subject.split()[0], one.message.partition(" holds ")[0]) for one in found]
    assert sorted(named) == sorted((table, column) for table, column, _ in said), (said, found)
    # The rows that hang on others before those, which would take them along.
    fixed = [repaired(store, one) for one in sorted(found, key=lambda one: ORDER[one.subject.split()[0]], reverse=True)]
    assert all(finding.fixed for finding in fixed), (said, fixed)
    assert troubles(store) == [], said
    groups = dict.fromkeys(row.group_id for row in quarantined(store, limit=10_000))
    assert groups, said
    for group in reversed(groups):
        restore_row(store, group)
    assert quarantined(store) == []
    now = raw_rows(path)
    lost = {name: [row for row in rows if row not in now[name]] for name, rows in spoilt.items()}
    more = {name: [row for row in rows if row not in spoilt[name]] for name, rows in now.items()}
    # a row that must always exist was made anew
    seeded = {
        str(table.name): 1
        for table, column, _ in cells
        if column.primary_key and (table.info.get("seed") or table is event_heads)
    }
    assert not any(lost.values()), (said, lost)
    assert {name: len(rows) for name, rows in more.items() if rows} == seeded, said


def test_every_table_is_spoilt() -> None:
    assert {*TABLES} | {*OWN} == {str(table.name) for table in metadata.sorted_tables}


def one_of_each_table(value: Callable[[Cell], bool]) -> list[Cell]:
    """The last such cell of every table."""
    found = {cell[0].name: cell for cell in CELLS if value(cell) and not cell[1].primary_key}
    found.pop("checkpoint_pieces", None)  # nothing can stand in for a piece of a value: who reads its thread is told so
    found.pop("history_entries", None)  # nor for a message: what follows it is no history without it
    found.pop("blob_pieces", None)  # nor for a blob: only its bytes, put again, mend it
    return list(found.values())


@pytest.mark.parametrize(("kind", "logged"), [("bytes", True), ("words", False)])
def test_a_file_full_of_them(filled_file: Path, tmp_path: Path, kind: str, logged: bool) -> None:
    path = tmp_path / "state.db"
    shutil.copyfile(filled_file, path)
    clock = FrozenClock()
    with Store.open(f"sqlite:///{path}", clock=clock, events=logged) as store:
        cells = one_of_each_table(lambda cell: (cell[2] == NOT_UTF8) == (kind == "bytes"))
        spoilt = {cell[0].name for cell in cells if spoil(path, cell)}
        found = doctor(store)
        assert {one.subject.split()[0] for one in found if one.code == "unreadable"} == spoilt
        assert not [one for one in found if one.code == "corrupt"]
        assert not [one for one in doctor(store, fix=True) if one.code == "unreadable" and not one.fixed]
        assert not [one for one in doctor(store) if one.severity == "error"]
        transcript(store)
        if logged:
            with Store.open(f"sqlite:///{tmp_path / 'again.db'}", clock=clock) as again:
                rebuild(store, again)
                own = {"events": 0, "event_consumers": 0}  # the log and its readers' places are no part of it
                assert transcript(again) | own == transcript(store) | own
    with Store.open(f"sqlite:///{path}") as store:
        assert troubles(store) == []


AS_PERSIST = "SET LOCAL persist.writes = 'on'"
"""What is damaged by a disk leaves no note of a raw write."""


def test_cells_of_a_server(postgres_url: str) -> None:
    """The first cells of all tables at once."""
    rounds = in_rounds(ON_A_SERVER)
    spoil_on_a_server(postgres_url, rounds[:1])


def test_every_cell_of_a_server(postgres_url: str) -> None:
    """The first cells of all tables at once, then the second ones, and so on."""
    spoil_on_a_server(postgres_url, in_rounds(ON_A_SERVER))


def test_a_row_with_a_word_that_its_column_does_not_list_is_named_and_stays(filled_file: Path, tmp_path: Path) -> None:
    """Verbs give the word as it is: another program, or a newer version, knows what it means."""
    path = tmp_path / "state.db"
    shutil.copyfile(filled_file, path)
    spoilt = {f"{cell[0].name}.{cell[1].name}" for cell in WORDS if spoil(path, cell)}
    assert len(spoilt) > 10
    with Store.open(f"sqlite:///{path}", clock=FrozenClock()) as store:
        before = raw_rows(path)
        found = [one for one in doctor(store, fix=True) if one.code == "unreadable"]
        assert {f"{one.subject.split()[0]}.{one.message.split()[0]}" for one in found} == spoilt
        assert not any(one.fixed for one in found)
        assert quarantined(store) == []
    assert raw_rows(path) == before


def spoil_on_a_server(url: str, rounds: list[list[Cell]]) -> None:
    clock = FrozenClock()
    place = filled(url, clock)
    good = server_rows(place)
    with Store.open(url, clock=clock) as store:
        assert troubles(store) == []
        for cells in ([cell for cell in some if good[str(cell[0].name)]] for some in rounds):
            undo = [_spoilt(place, cell) for cell in cells]
            spoilt = server_rows(place)
            found = troubles(store)
            named = {(one.subject.split()[0], one.message.split()[0]) for one in found}
            assert named == {(cell[0].name, cell[1].name) for cell in cells}
            assert all(repaired(store, one).fixed for one in found)
            assert troubles(store) == []
            groups = dict.fromkeys(row.group_id for row in quarantined(store, limit=10_000))
            for group in reversed(groups):
                restore_row(store, group)
            assert server_rows(place) == spoilt
            place.run(AS_PERSIST, *undo)
    assert server_rows(place) == good


def _spoilt(place: Place, cell: Cell) -> str:
    """Write it into the first row by its key; the statement that undoes it."""
    table, column, value = cell
    named, name = place.named(str(table.name)), f'"{column.name}"'
    key = ", ".join(f'"{part.name}"' for part in table.primary_key.columns) or "ctid"
    first = f"(SELECT ctid FROM {named} ORDER BY {key} LIMIT 1)"
    ((saved,),) = place.ask(f"SELECT quote_nullable(CAST({name} AS TEXT)) FROM {named} WHERE ctid = {first}")
    place.run(AS_PERSIST, f"UPDATE {named} SET {name} = {value} WHERE ctid = {first}")
    return f"UPDATE {named} SET {name} = {saved} WHERE {name} = {value}"


def test_a_word_that_a_check_refuses_is_no_damage(filled_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    shutil.copyfile(filled_file, path)
    (cell,) = [one for one in WORDS if (one[0].name, one[1].name) == ("chat_messages", "role")]
    spoil(path, cell)
    with Store.open(f"sqlite:///{path}", clock=FrozenClock()) as store:
        (finding,) = [one for one in doctor(store, full=True) if one.severity == "error"]
    assert finding.code == "unreadable"
    assert finding.message == "role holds 'unheard-of', which is none of user, assistant, system."
