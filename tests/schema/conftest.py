"""Fixtures: databases as `Place`s, and revisions that do not exist yet."""

import shutil
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent

import pytest

import persist
from persist.testing import FrozenClock
from tests.schema.places import ROOT, Place
from tests.seeded_databases import fill_once

_REVISION = '''\
"""Planted by a test."""

import sqlalchemy as sa
from alembic import op

revision = {number!r}
down_revision = {before!r}
branch_labels = None
depends_on = None


def upgrade() -> None:
{body}
    op.execute("UPDATE _meta SET value = '{number}' WHERE key = 'schema_version'")
'''

Plant = Callable[..., list[str]]


@pytest.fixture
def empty_database(backend: str, new_database: Callable[..., str]) -> Callable[[], Place]:
    """A function that makes a database without any table of ours."""

    def create() -> Place:
        return Place(new_database(migrated=False) if backend == "postgres" else new_database())

    return create


@pytest.fixture
def migrated(backend: str, database_url: str) -> Place:
    """A database that persist.upgrade made; a file is a copy of the first one."""
    if backend == "sqlite":
        fill_once(database_url, FrozenClock(), "upgraded", persist.upgrade)
    return Place(database_url)


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plant:
    """`plant(body, …)` makes this code one that has a further revision for each body; their numbers."""

    def add(*bodies: str) -> list[str]:
        folder = tmp_path / "alembic"
        shutil.copytree(ROOT / "alembic", folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        known = list(persist.schema.metadata.REVISIONS)
        planted: list[str] = []
        for body in bodies:
            before = (known + planted)[-1]
            planted.append(f"{int(before) + 1:04d}")
            text = _REVISION.format(number=planted[-1], before=before, body=indent(dedent(body).strip("\n"), "    "))
            (folder / "versions" / f"{planted[-1]}_planted.py").write_text(text)
        monkeypatch.setattr("persist.schema.migrate.script_dir", lambda: str(folder))
        for module in ("persist.db.statements.schema_version", "persist.schema.migrate", "persist.schema.revision"):
            monkeypatch.setattr(f"{module}.HEAD", planted[-1])
        for module in ("persist.db.statements.schema_version", "persist.schema.revision"):
            monkeypatch.setattr(f"{module}.REVISIONS", (*known, *planted))
        return planted

    return add


@pytest.fixture
def empty_file(tmp_path: Path) -> Place:
    """A file that does not exist yet, beside the one of `sqlite_url`."""
    return Place(f"sqlite:///{(tmp_path / 'empty.db').as_posix()}")
