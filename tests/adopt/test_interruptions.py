"""Killed at any moment, a file is as it was, and adopting it again works."""

import signal
from collections.abc import Callable

import pytest

from tests.adopt.files import Foreign
from tests.adopt.shapes import FIRST_WORKFLOWS, INSTANCE
from tests.subprocesses import Worker

Make = Callable[..., Foreign]

WORKER = "tests.adopt.adopting_worker"
MOMENTS = [
    ("back_up", 1, "delete"),
    ("copy_to", 1, "delete"),
    ("copy_to", 1, "wal"),
    ("rebuild_without_unique", 1, "wal"),
    ("run", 3, "delete"),
    ("add_column", 9, "delete"),
    ("add_index", 30, "wal"),
    ("orphans", 2, "delete"),
    ("commit", 1, "delete"),
    ("commit", 1, "wal"),
]
ROWS = "INSERT INTO messaging_sessions VALUES ('s', 'p', 'c', NULL, 'u', '2025', '2025', 0, 1, 'x');"


@pytest.mark.parametrize(("step", "number", "journal"), MOMENTS, ids=["-".join(map(str, moment)) for moment in MOMENTS])
def test_a_kill_leaves_the_file_as_it_was(foreign: Make, step: str, number: int, journal: str) -> None:
    file = foreign(f"PRAGMA journal_mode = {journal};{FIRST_WORKFLOWS}{INSTANCE}{ROWS}")
    schema = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
    before = file.rows(schema)
    with Worker(WORKER, file.url, step, number) as killed:
        assert killed.wait(60) == -signal.SIGKILL
    assert file.rows(schema) == before
    assert file.rows("PRAGMA integrity_check") == [("ok",)]
    report = file.adopt()
    assert report.adopted
    assert file.rows(schema, report.backup_path) == before
    assert list(file.path.parent.glob("*.partial")) == []


def test_two_at_once_make_one_backup(foreign: Make) -> None:
    file = foreign(FIRST_WORKFLOWS + INSTANCE + ROWS)
    with Worker(WORKER, file.url) as one, Worker(WORKER, file.url) as other:
        said = sorted(worker.communicate(timeout=60)[0].strip() for worker in (one, other))
    assert said == ["False", "True"]
    assert len(list(file.path.parent.glob("*before-adopt*"))) == 1
