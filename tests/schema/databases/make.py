"""Keeps a database of the current revision, for the tests of later ones: `python -m tests.schema.databases.make`.

Run it once, when a revision is released. What it made is never made again: a later persist would make another file.
"""

import json
import sqlite3
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from unittest.mock import patch

from persist import Store
from persist.programs.storage import run_rows
from persist.schema.metadata import HEAD
from persist.testing import FrozenClock
from tests.schema.filling import LONG, fill, transcript

FOLDER = Path(__file__).parent
GONE = "gone.example/-/-/-/1/-/000000000000"
"""The process that ran the program, on no machine that exists."""


def main() -> None:
    kept = FOLDER / f"{HEAD}.db"
    if kept.exists():
        raise SystemExit(f"{kept.name} exists; a released revision's file is never made again.")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "state.db"
        clock = FrozenClock()
        stack.enter_context(patch.object(run_rows, "this_process_as_owner", return_value=GONE))
        store = stack.enter_context(Store.open(f"sqlite:///{path.as_posix()}", clock=clock, settings=LONG))
        fill(store, clock, stack)
        seen = transcript(store)
        # as a dead process leaves it: the turn still runs, its tail is not folded
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(kept)) as target:
            source.backup(target)
            target.execute("UPDATE chat_turns SET owner = 'gone.example/1/000000000000'")
            target.commit()
            target.execute("PRAGMA journal_mode = DELETE")  # or looking at it would leave files beside it
            target.execute("PRAGMA page_size = 512")  # every table and index has a page, most of them nearly empty
            target.execute("VACUUM")
    (FOLDER / f"{HEAD}.json").write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
