"""`tx.transcripts.entries`: appending entries to a session's transcript, and reading all or the last of them."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, update

from persist.db.expressions.upsert import merge
from persist.db.schema.arrays import among_labels
from persist.db.statements.prepared import LIMIT, Statement, param
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.unreadable.cells import is_unreadable
from persist.db.values.arguments import check_count, check_flag
from persist.errors import InvalidValue
from persist.transcripts.entry_text import Entry, entries_of, labels_of, new_entries, stored_entries, text_of, value_of
from persist.transcripts.models import entries, transcripts
from persist.transcripts.sessions import ITS_ID, of_session

List = list
Fold = Callable[[Any, List[Entry]], Any]
"""Makes a summary of the previous one (None for none) and the entries that follow it."""

_MAX = 2**31 - 1

_T, _E = transcripts.c, entries.c
_in_part = (_E.transcript_id == ITS_ID, _E.subpath == param("of_subpath"))
_of_part = select(_E.entry).where(*_in_part)
_OPEN = Statement(
    merge(transcripts, "project", "session_id", updated_at="latest").returning(_T.id, _T.length, _T.main_at, _T.summary)
)
_STORED = Statement(select(_E.uuid, _E.entry).where(*_in_part, _E.uuid.is_not(None), among_labels(_E.uuid, "labels")))
_WITHOUT_UUID = Statement(_of_part.where(_E.uuid.is_(None)).order_by(_E.position))
_APPEND = Statement(insert(entries))
_GROW = Statement(
    update(transcripts)
    .where(_T.id == param("row_id"))
    .values(length=param("new_length"), main_at=param("new_main_at"), summary=param("new_summary"))
)
_ALL = Statement(_of_part.order_by(_E.position))
_TAIL = Statement(_of_part.order_by(_E.position.desc()).limit(LIMIT))


class TranscriptEntries(Repository[F]):
    """`tx.transcripts.entries`. An entry is a JSON object. Of those with a `uuid` a part has each once, by uuid and content."""

    @writes
    def append(
        self,
        project: str,
        session_id: str,
        entries: Sequence[Entry],
        *,
        subpath: str = "",
        fold: Fold | None = None,
        once: bool = False,
    ) -> int:
        """Append entries in their order; the number of new ones. The first ones create the transcript.

        An entry with a `uuid` that is there already is left out; one that shares it and differs is appended. Those without a
        uuid are appended every time, unless `once`: then
        each that is there already is left out, as when a file is imported again. Two writers of one session wait for each
        other, so that every reader has the entries in the order of the commits.

        `fold` makes the new `summary`, in this transaction, of the previous one and the new entries of the main part; of all
        entries where the previous ones had no fold. Without it, new entries of the main part clear the summary.
        """
        work = self._work
        where = self._part(project, session_id, subpath)
        part = where["of_subpath"]
        given = entries_of(work, "entries", entries)
        if fold is not None and not callable(fold):
            raise InvalidValue("fold", f"expected a function, got {type(fold).__name__}.")
        check_flag("once", once)
        if not given:
            return 0
        now = work.now()
        with work.batch() as batch:
            opened = batch.returned(_OPEN, **_new(work.runtime.ids.mint("trn"), where, now))
            stored = batch.rows(_STORED, **where, labels=labels_of(given))
            alike = batch.rows(_WITHOUT_UUID, **where) if once else None
        assert opened.result is not None
        id, length, main_at, summary = opened.result
        known = None if alike is None else stored_entries(session_id, (row[0] for row in alike.result))
        new = new_entries(given, map(tuple, stored.result), known)
        if not part:
            previous = None if is_unreadable(main_at) else main_at
            main_at = now if previous is None else max(previous, now)
            if new:
                summary = self._summary(session_id, where, fold, [entry for entry, *_ in new], previous, summary)
        rows = [
            {"transcript_id": id, "subpath": part, "position": length + index, "uuid": label, "entry": text}
            for index, (_, text, label) in enumerate(new)
        ]
        with work.batch(last=True) as batch:
            batch.run_many(_APPEND, rows)
            batch.run(_GROW, row_id=id, new_length=length + len(new), new_main_at=main_at, new_summary=summary)
        return len(new)

    @reads
    def list(self, project: str, session_id: str, *, subpath: str = "") -> List[Entry]:
        """The entries of a part of a session, in the order in which they were appended. Unreadable ones are left out."""
        rows = self._work.rows(_ALL, **self._part(project, session_id, subpath))
        return stored_entries(session_id, (row[0] for row in rows))

    @reads
    def tail(self, project: str, session_id: str, limit: int, *, subpath: str = "") -> List[Entry]:
        """The last `limit` entries of a part of a session, oldest first; the others are not read. Leaves out unreadable ones."""
        maximum = min(check_count("limit", limit), _MAX)
        rows = self._work.rows(_TAIL, **self._part(project, session_id, subpath), limit=maximum)
        return stored_entries(session_id, (row[0] for row in reversed(rows)))

    def _part(self, project: str, session_id: str, subpath: str) -> dict[str, Any]:
        return {**of_session(self._work, project, session_id), "of_subpath": self._work.label("subpath", subpath, empty=True)}

    def _summary(
        self, session_id: str, where: dict[str, Any], fold: Fold | None, new: List[Entry], main_at: datetime | None, stored: Any
    ) -> str | None:
        """The text of the new summary; None without a fold."""
        if fold is None:
            return None
        previous = None if is_unreadable(stored) else value_of(stored)
        if previous is None and main_at is not None:  # what is there was not folded
            new = stored_entries(session_id, (row[0] for row in self._work.rows(_ALL, **where))) + new
        return text_of(self._work, "summary", fold(previous, new))


def _new(id: str, key: dict[str, Any], now: datetime) -> dict[str, Any]:
    return {
        "id": id,
        "project": key["of_project"],
        "session_id": key["of_session"],
        "created_at": now,
        "updated_at": now,
        "main_at": None,
        "length": 0,
        "summary": None,
    }
