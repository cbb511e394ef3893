"""Files of other systems, and what must be so after any of them was adopted."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.adopt.files import Foreign

Make = Callable[..., Foreign]


@pytest.fixture
def foreign(tmp_path: Path) -> Make:
    """`foreign(script, name=…)` makes a file by a script of SQL."""

    def make(script: str, name: str = "foreign.db") -> Foreign:
        path = tmp_path / name
        with closing(sqlite3.connect(path)) as raw:
            raw.executescript(script)
        return Foreign(path)

    return make
