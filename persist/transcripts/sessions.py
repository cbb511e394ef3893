"""`tx.transcripts.sessions`: finding, listing and deleting transcripts."""

from functools import cache
from typing import Any

from sqlalchemy import and_, bindparam, delete, exists, func, select, tuple_

from persist.db.operations.optional_pages import OptionalPages
from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.clock import epoch_ms
from persist.db.values.frozen import construct
from persist.db.values.pages import Page, PagedList, check_limit, values_after
from persist.errors import NotFound
from persist.transcripts.entry_text import value_of
from persist.transcripts.models import entries, transcripts
from persist.transcripts.schemas import Transcript

List = list
_T, _E = transcripts.c, entries.c
_FIELDS = tuple(Transcript.model_fields)
_COLUMNS = tuple(_T[name] for name in _FIELDS)
_LIST = "transcripts.sessions"

_this = and_(_T.project == param("of_project"), _T.session_id == param("of_session"))
ITS_ID = select(_T.id).where(_this).scalar_subquery()
"""The id of a session's transcript, for the parameters of `of_session`. With a join a planner might read every entry."""

_GET = Statement(select(*_COLUMNS).where(_T.id == param("row_id")))
_FIND = Statement(select(*_COLUMNS).where(_this))
_MAINS = OptionalPages[Transcript](
    "transcripts.mains",
    select(*_COLUMNS).where(_T.project == param("of_project"), _T.main_at.is_not(None)),
    (_T.main_at, _T.id),
    lambda one: (one.main_at, one.id),
    descending=True,
)
_LOCK = Statement(select(_T.id).where(_this).with_for_update())
_DELETE_ENTRIES = Statement(delete(entries).where(_E.transcript_id == ITS_ID))
_DELETE_PART = Statement(delete(entries).where(_E.transcript_id == ITS_ID, _E.subpath == param("of_subpath")))
_DELETE_EMPTY = Statement(delete(transcripts).where(_this, ~exists().where(_E.transcript_id == _T.id)))


def _subpaths() -> Statement:
    """Each subpath once, with one look into the index for each: reading every entry would cost more with every entry."""
    first = select(func.min(_E.subpath).label("subpath")).where(_E.transcript_id == ITS_ID, _E.subpath > "")
    found = first.cte("found", recursive=True)
    after = select(func.min(_E.subpath)).where(_E.transcript_id == ITS_ID, _E.subpath > found.c.subpath).scalar_subquery()
    found = found.union_all(select(after).where(found.c.subpath.is_not(None)))
    return Statement(select(found.c.subpath).where(found.c.subpath.is_not(None)).order_by(found.c.subpath))


_SUBPATHS = _subpaths()


@cache
def _listing(*given: str) -> Statement:
    query = select(*_COLUMNS).order_by(_T.updated_at.desc(), _T.id.desc()).limit(LIMIT)
    if "project" in given:
        query = query.where(_T.project == param("project"))
    if "session_id" in given:
        query = query.where(_T.session_id == param("session_id"))
    if "after" in given:
        after_key = tuple_(bindparam("after_at", type_=_T.updated_at.type), bindparam("after_id", type_=_T.id.type))
        query = query.where(tuple_(_T.updated_at, _T.id) < after_key)
    return Statement(query)


class TranscriptSessions(Repository[F]):
    """`tx.transcripts.sessions`. The first entries create a transcript. A session is known by its project and its id in it."""

    @reads
    def list(
        self, *, project: str | None = None, session_id: str | None = None, limit: int = 20, after: str | None = None
    ) -> Page[Transcript]:
        """Transcripts, most recently updated first. Pass a page's `cursor` as `after` for the next page."""
        work = self._work
        limit = check_limit(limit)
        named = {"project": project, "session_id": session_id}
        filters = {name: work.label(name, value) for name, value in named.items() if value is not None}
        after_key = values_after(after, _LIST, filters)
        given = (*filters, *(["after"] if after_key else []))
        rows = work.rows(_listing(*given), **filters, **after_key, limit=limit + 1)
        return Page.of(rows, limit, _value, name=_LIST, filters=filters, key=lambda _, one: [epoch_ms(one.updated_at), one.id])

    @reads
    def get(self, id: str) -> Transcript:
        """The transcript. Raises NotFound."""
        row = self._work.row(_GET, row_id=self._work.label("id", id))
        if row is None:
            raise NotFound("transcript", id)
        return _value(row)

    @reads
    def find(self, project: str, session_id: str) -> Transcript | None:
        """The transcript of a session; None if nothing of it was appended."""
        row = self._work.row(_FIND, **of_session(self._work, project, session_id))
        return None if row is None else _value(row)

    @reads
    def mains(self, project: str, *, limit: int | None = None, after: str | None = None) -> PagedList[Transcript]:
        """Every transcript of a project whose main part has entries, by `main_at`, newest first.

        With a `limit` a page, whose `cursor` is `after` for the next one.
        """
        return _MAINS.read(self._work, _value, limit, after, {"of_project": self._work.label("project", project)})

    @reads
    def subpaths(self, project: str, session_id: str) -> List[str]:
        """The parts of a session besides the main one, sorted."""
        return [row[0] for row in self._work.rows(_SUBPATHS, **of_session(self._work, project, session_id))]

    @writes
    def delete(self, project: str, session_id: str, *, subpath: str = "") -> bool:
        """Delete a session with all its parts, or with `subpath` that part alone. False if there is nothing to delete."""
        work = self._work
        key = of_session(work, project, session_id)
        part = work.label("subpath", subpath, empty=True)
        if work.row(_LOCK, **key) is None:  # from here on no entry is appended, so that none can be left without its session
            return False
        with work.batch(last=True) as batch:
            deleted = batch.run(_DELETE_PART, **key, of_subpath=part) if part else batch.run(_DELETE_ENTRIES, **key)
            batch.run(_DELETE_EMPTY, **key)
        return bool(deleted.result)


def of_session(work: UnitOfWork, project: str, session_id: str) -> dict[str, Any]:
    """The parameters of ITS_ID."""
    return {"of_project": work.label("project", project), "of_session": work.label("session_id", session_id)}


def _value(row: Row) -> Transcript:
    *plain, summary = row
    return construct(Transcript, dict(zip(_FIELDS, (*plain, value_of(summary)), strict=True)))
