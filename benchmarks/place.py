"""Where a part of the benchmarks runs."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """An empty folder, and an empty Postgres database unless there is none."""

    folder: Path
    postgres: str | None = None
    quick: bool = False
    """Fewer rounds and smaller sizes, for a look and not for the page."""

    full: bool = False
    """The largest sizes, where a part has larger ones than those of the page."""

    def file(self, name: str) -> str:
        """The URL of a SQLite file."""
        return f"sqlite:///{self.folder / name}.db"
