"""A file that another system made: looking into it, adopting it, and comparing it with what it was."""

import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any

from persist.maintenance import AdoptReport, adopt

Rows = list[tuple[Any, ...]]


class Foreign:
    """One such file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path.as_posix()}"

    def rows(self, statement: str, path: Path | None = None) -> Rows:
        """What a reader without persist sees."""
        with closing(sqlite3.connect(path or self.path)) as raw:
            return [tuple(row) for row in raw.execute(statement)]

    def run(self, script: str) -> None:
        with closing(sqlite3.connect(self.path)) as raw:
            raw.executescript(script)

    def adopt(self, **options: Any) -> AdoptReport:
        """Adopt it, and check what must be so whatever it is."""
        report = adopt(self.url, **options)
        assert self.rows("PRAGMA integrity_check") == [("ok",)]
        before = self.path.read_bytes()
        again = adopt(self.url)
        assert (again.adopted, again.backup_path) == (False, None)
        assert self.path.read_bytes() == before
        return report

    def assert_kept(self, report: AdoptReport, *, but: Collection[str] = ()) -> None:
        """Every row, by the columns it had, and every index and trigger, is as in the backup; tables of `but` may differ."""
        backup = report.backup_path
        assert backup is not None
        for (table,) in self.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'", backup):
            names = [name for _, name, *_ in self.rows(f"PRAGMA table_info('{table}')", backup)]
            query = "SELECT {0} FROM {1} ORDER BY {0}".format(", ".join(f'"{name}"' for name in names), table)
            if table not in {"_meta", *but}:
                assert self.rows(query) == self.rows(query, backup), table
        others = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE type IN ('index', 'trigger') AND sql IS NOT NULL"
        assert set(self.rows(others, backup)) <= set(self.rows(others))
