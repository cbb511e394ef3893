"""Whether a database is whole, asked of the database itself and of the doctor."""

import sqlite3
from contextlib import closing
from pathlib import Path

from persist import Store
from persist.maintenance import doctor
from tests.torture.scenario import Tally


def intact(url: str, tally: Tally, *, schema: str | None = None) -> None:
    """Note what is broken; a file must also be whole for SQLite itself."""
    whole(url, tally)
    with Store.open(url, schema=schema) as store:
        healthy(store, url, tally)


def healthy(store: Store, what: str, tally: Tally) -> None:
    """Note the errors that the doctor finds."""
    tally.problems += [f"doctor of {what}: {finding}" for finding in doctor(store) if finding.severity == "error"]


def whole(url: str, tally: Tally) -> None:
    """Note what SQLite finds wrong with a file; nothing of a server."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(Path(url.removeprefix("sqlite:///")))) as connection:
            for check in ("integrity_check", "foreign_key_check"):
                if (found := connection.execute(f"PRAGMA {check}").fetchall()) not in ([("ok",)], []):
                    tally.problems.append(f"{check} of {url}: {found[:5]}")
