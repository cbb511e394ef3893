"""Every cell that must hold something and holds nothing, as files of other programs allow, one at a time, under every verb."""

import logging
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table

from persist import Store, UnreadableRow
from persist.blobs.models import blobs
from persist.db.unreadable.cells import Cells
from persist.testing import FrozenClock
from tests.statemachines.scene import verbs
from tests.unreadable.cells import Attempt, Cell, loosened
from tests.unreadable.verdicts import DOMAINS, filled, problems


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="persist")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, Any]]:
    """The file that every test copies, whose tables take NULL everywhere, and its ids."""
    path = tmp_path_factory.mktemp("scene") / "scene.db"
    store, ids = filled(f"sqlite:///{path.as_posix()}", FrozenClock())
    store.close()
    loosened(path)
    return path, ids


def _empty_cells(table: Table) -> Iterator[Cell]:
    for column in table.columns:
        if not column.nullable:
            yield from (Cell(table, column.name, place, "NULL") for place in (0, 1))


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_cell_that_holds_nothing_is_read_or_named(
    domain: str, scene: tuple[Path, Mapping[str, Any]], tmp_path: Path, clock: FrozenClock, quiet: None
) -> None:
    path, ids = tmp_path / "state.db", scene[1]
    shutil.copyfile(scene[0], path)
    with Store.open(f"sqlite:///{path.as_posix()}", clock=clock) as store:
        found = "\n".join(problems(store, ids, domain, lite=True, wanted=_empty_cells))
        assert found == "", found


def test_no_verb_misses_anything_where_everything_is_there(
    scene: tuple[Path, Mapping[str, Any]], tmp_path: Path, clock: FrozenClock, quiet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    missed: list[str] = []
    monkeypatch.setattr(Cells, "_miss", lambda self, place, *_: missed.append(str(self._columns[place])))
    path, ids = tmp_path / "state.db", scene[1]
    shutil.copyfile(scene[0], path)
    with Store.open(f"sqlite:///{path.as_posix()}", clock=clock) as store:
        attempts = [Attempt(store, verb, ids, None) for verb in verbs()]
    assert [attempt.error for attempt in attempts if attempt.is_bare] == []
    assert missed == []


def test_the_error_says_which_cell_holds_nothing_and_promises_no_repair(
    scene: tuple[Path, Mapping[str, Any]], tmp_path: Path, clock: FrozenClock, quiet: None
) -> None:
    path, ids = tmp_path / "state.db", scene[1]
    shutil.copyfile(scene[0], path)
    verb = next(verb for verb in verbs() if verb.name == "blobs.read")
    with Store.open(f"sqlite:///{path.as_posix()}", clock=clock) as store:
        error = Attempt(store, verb, ids, Cell(blobs, "size", 0, "NULL")).error
    assert isinstance(error, UnreadableRow)
    assert (error.table, error.column) == ("blobs", "size")
    assert str(error).endswith("size: it holds nothing, and must hold a value; `persist doctor` names it.")
