"""Every cell of every table, spoilt one at a time, under every verb of its domain."""

import logging
import shutil
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table

from persist import Store
from persist.maintenance import maintain, prune
from persist.maintenance.pruning import PRUNINGS
from persist.testing import FrozenClock
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
