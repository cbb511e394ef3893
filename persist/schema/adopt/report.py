"""What was done to a file that was taken over."""

from dataclasses import dataclass
from pathlib import Path

from persist.db.operations.adopting import Notice, Settled


@dataclass(frozen=True, slots=True)
class AdoptReport:
    """What was added to the file at `path`, which is at `revision` now. Everything is empty where it was ours already.

    Columns are "table.column", indexes "table.index". `rebuilt` are tables that were made anew, `settled` rows that were changed
    by rule, `moved` places of progressions that became rows, `notices` what is in the file, was left as it is, and needs a look.
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
