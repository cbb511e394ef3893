"""The report on an adopted file."""

from dataclasses import dataclass
from pathlib import Path

from persist.db.operations.adopting import Notice, Settled


@dataclass(frozen=True, slots=True)
class AdoptReport:
    """The changes to the file at `path`, which is at `revision` now. All fields are empty if it was persist's already.

    Columns are "table.column", indexes "table.index". `rebuilt` are rebuilt tables, `settled` rows that a rule changed, `moved`
    counts places of progressions that became rows, `notices` are problems that were left in the file and need attention.
    """

    path: Path
    revision: str
    backup_path: Path | None = None
    added_tables: tuple[str, ...] = ()
    added_columns: tuple[str, ...] = ()
    added_indexes: tuple[str, ...] = ()
    rebuilt: tuple[str, ...] = ()
    settled: tuple[Settled, ...] = ()
    moved: int = 0
    notices: tuple[Notice, ...] = ()
    run_id: str | None = None
    adopted: bool = False
    """Whether there was anything to do: False for a file that persist made or adopted before."""
