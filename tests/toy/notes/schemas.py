"""The values of notes."""

from persist.db.values.frozen import Value


class Note(Value):
    id: str
    owner: str
