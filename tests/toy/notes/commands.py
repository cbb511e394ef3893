"""`persist notes`."""

from typing import Any

from persist.cli.nouns import Noun, Table

ROWS = Table[Any]("No notes.", ("ID", "OWNER"), lambda note: (note.id, note.owner))
notes = Noun("notes")
notes.lists("List notes by id.", ROWS, lambda tx: tx.notes.pages.list)  # type: ignore[attr-defined]  # registered by the walk
