"""`tx.transcripts.sessions`: finding, listing and deleting transcripts."""

from typing import Any

from sqlalchemy import and_, delete, exists, func, select

from persist.db.operations.keyset import Keyset
from persist.db.statements.prepared import Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.pages import Page, PagedList
from persist.transcripts.entry_text import value_of
from persist.transcripts.models import entries, transcripts
from persist.transcripts.schemas import Transcript

List = list
_T, _E = transcripts.c, entries.c
_TRANSCRIPT = Values(Transcript, transcripts, decode={"summary": value_of})
_NEWEST = Keyset(
    "transcripts.sessions",
    _TRANSCRIPT,
    (_T.updated_at, _T.id),
    {"project": _T.project == param("project"), "session_id": _T.session_id == param("session_id")},
)
_MAINS = Keyset(
    "transcripts.mains",
    _TRANSCRIPT,
    (_T.main_at, _T.id),
    {"of_project": _T.project == param("of_project")},
    where=[_T.main_at.is_not(None)],
    exact=True,
)

_this = and_(_T.project == param("of_project"), _T.session_id == param("of_session"))
ITS_ID = select(_T.id).where(_this).scalar_subquery()
"""The id of a session's transcript, for the parameters of `of_session`. With a join a planner might read every entry."""

_GET = Statement(select(*_TRANSCRIPT.columns).where(_T.id == param("row_id")))
_FIND = Statement(select(*_TRANSCRIPT.columns).where(_this))
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


class TranscriptSessions(Repository[F]):
    """`tx.transcripts.sessions`. The first entries create a transcript. A session is known by its project and its id in it."""

    @reads
    def list(
        self, *, project: str | None = None, session_id: str | None = None, limit: int = 20, after: str | None = None
    ) -> Page[Transcript]:
        """Transcripts, most recently updated first. Pass a page's `cursor` as `after` for the next page."""
        work = self._work
        named = {"project": project, "session_id": session_id}
        filters = {name: work.label(name, value) for name, value in named.items() if value is not None}
        return _NEWEST.page(work, limit, after, filters)

    @reads
    def get(self, id: str) -> Transcript:
        """The transcript. Raises NotFound."""
        return _TRANSCRIPT.found(self._work.row(_GET, row_id=self._work.label("id", id)), "transcript", id)

    @reads
    def find(self, project: str, session_id: str) -> Transcript | None:
        """The transcript of a session; None if nothing of it was appended."""
        return _TRANSCRIPT.optional(self._work.row(_FIND, **of_session(self._work, project, session_id)))

    @reads
    def mains(self, project: str, *, limit: int | None = None, after: str | None = None) -> PagedList[Transcript]:
        """Every transcript of a project whose main part has entries, by `main_at`, newest first.

        With a `limit` a page, whose `cursor` is `after` for the next one.
        """
        return _MAINS.pages(self._work, limit, after, {"of_project": self._work.label("project", project)})

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
