"""The verbs of notes."""

from sqlalchemy import insert, select

from persist.db.statements.prepared import Statement, param
from persist.db.transactions.repository import Domain, F, Repository, on_demand, reads, writes
from persist.errors import NotFound

from .models import LINES, NOTES
from .schemas import Note

_N = NOTES.root.c
_ALL = Statement(select(_N.id, _N.owner).order_by(_N.id))
_ONE = Statement(select(_N.id, _N.owner).where(_N.id == param("row_id")))
_ADD, _ADD_LINE = Statement(insert(NOTES.root)), Statement(insert(LINES))


class Pages(Repository[F]):
    @reads
    def list(self) -> list[Note]:
        return [Note(id=id, owner=owner) for id, owner in self._work.rows(_ALL)]

    @reads
    def get(self, id: str) -> Note:
        for _, owner in self._work.rows(_ONE, row_id=id):
            return Note(id=id, owner=owner)
        raise NotFound("note", id)

    @writes
    def add(self, id: str, owner: str, text: str) -> None:
        self._work.run(_ADD, id=id, owner=owner, updated_at=self._work.now())
        self._work.run(_ADD_LINE, note_id=id, text=text)

    @writes
    def delete(self, id: str) -> bool:
        return NOTES.delete(self._work, id)


class Notes(Domain[F]):
    pages = on_demand(Pages[F])
