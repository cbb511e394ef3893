"""The verbs of notes."""

from sqlalchemy import insert

from persist.db.operations.keyset import Keyset
from persist.db.statements.prepared import Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import Domain, F, Repository, on_demand, reads, writes
from persist.db.values.arguments import must_exist
from persist.db.values.pages import Page

from .models import LINES, NOTES
from .schemas import Note

_NOTES = Keyset("notes", Values(Note, NOTES.root), (NOTES.key,), {"id": NOTES.key == param("id")}, descending=False)
_ADD, _ADD_LINE = Statement(insert(NOTES.root)), Statement(insert(LINES))


class Pages(Repository[F]):
    @reads
    def list(self, limit: int = 20, after: str | None = None) -> Page[Note]:
        return _NOTES.page(self._work, limit, after)

    @reads
    def get(self, id: str) -> Note:
        return must_exist(next(iter(_NOTES.first(self._work, 1, {"id": id})), None), "note", id)

    @writes
    def add(self, id: str, owner: str, text: str) -> None:
        self._work.run(_ADD, id=id, owner=owner, updated_at=self._work.now())
        self._work.run(_ADD_LINE, note_id=id, text=text)

    @writes
    def delete(self, id: str) -> bool:
        return NOTES.delete(self._work, id)


class Notes(Domain[F]):
    pages = on_demand(Pages[F])
