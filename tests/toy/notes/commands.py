"""`persist notes`."""

from persist.cli.nouns import Noun, Table

notes = Noun("notes")
ROWS = Table("No notes.", ("ID", "OWNER"), lambda note: (note.id, note.owner))
notes.lists("List notes by id.", ROWS, lambda tx: tx.notes.pages.list)
