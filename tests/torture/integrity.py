"""Whether a database is whole, asked of the database itself and of the doctor."""

import sqlite3
from pathlib import Path

from persist.maintenance import doctor
from persist.store import Store
from tests.torture.scenario import Tally


def intact(url: str, tally: Tally) -> None:
    """Note what is broken; a file must also be whole for SQLite itself."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(Path(url.removeprefix("sqlite:///")))
        try:
            for check in ("integrity_check", "foreign_key_check"):
                if (found := connection.execute(f"PRAGMA {check}").fetchall()) not in ([("ok",)], []):
                    tally.problems.append(f"{check} of {url}: {found[:5]}")
        finally:
            connection.close()
    with Store.open(url) as store:
        tally.problems += [f"doctor: {finding}" for finding in doctor(store) if finding.severity == "error"]
