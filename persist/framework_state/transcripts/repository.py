"""`tx.transcripts`: finding and deleting transcripts, appending entries, and reading all or the last of one's entries."""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from sqlalchemy import and_, delete, exists, func, insert, select, update

from persist.db.expressions.upsert import merge
from persist.db.operations.keyset import Keyset
from persist.db.schema.column_types import among_labels
from persist.db.statements.prepared import LIMIT, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import Domain, F, Repository, on_demand, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.db.values.arguments import check_count, check_flag, check_list
from persist.db.values.escaping import escape_text, utf8_size
from persist.db.values.pages import Page, PagedList
from persist.errors import InvalidValue, shown
from persist.framework_state.transcripts.models import entries, transcripts
from persist.framework_state.transcripts.schemas import Transcript

# Entries as JSON text. What is read is equal to what was given, for every value that `json` itself writes and reads.

log = logging.getLogger("persist")
Entry = dict[str, Any]
_MAX_UUID_BYTES = 500
_PLAIN = {str, int, float, bool, type(None)}


class Given(NamedTuple):
    """An entry to append and its text. `uuid` names it in its part, `further` where another one has that uuid."""

    entry: Entry
    text: str
    uuid: str | None
    further: str | None


def entries_of(work: UnitOfWork, path: str, value: object) -> list[Given]:
    """The entries of a list, each with its text and labels. Raises InvalidValue for anything but JSON objects."""
    return [_given(entry, text_of(work, f"{path}[{at}]", entry, kind=dict)) for at, entry in enumerate(check_list(path, value))]


def _given(entry: Entry, text: str) -> Given:
    uuid = _uuid_of(entry)
    return Given(entry, text, uuid, None if uuid is None else _further(uuid, entry))


def text_of(work: UnitOfWork, path: str, value: object, *, kind: type | None = None) -> str:
    """The JSON text of a value. Raises InvalidValue for what would be read back as something else, such as a tuple."""
    if kind is not None and type(value) is not kind:
        raise InvalidValue(path, f"expected a {kind.__name__}, got {type(value).__name__}.")
    _check(path, value, work.runtime.limits.max_depth)
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except ValueError as error:  # an integer of more digits than Python writes
        raise InvalidValue(path, f"it is no JSON: {error}.") from None
    return work.body(path, text)


def _check(path: str, value: object, depth: int) -> None:
    kind = type(value)
    if kind in _PLAIN:
        return
    if depth == 0:
        raise InvalidValue(path, "it is nested too deep.")
    if kind is dict:
        for key, item in value.items():  # type: ignore[attr-defined]  # kind is dict
            if type(key) is not str:
                raise InvalidValue(path, f"the key {shown(key)} is not a string.")
            if type(item) not in _PLAIN:
                _check(f"{path}.{key}", item, depth - 1)
    elif kind is list:
        for index, item in enumerate(value):  # type: ignore[arg-type]  # kind is list
            if type(item) not in _PLAIN:
                _check(f"{path}[{index}]", item, depth - 1)
    else:
        raise InvalidValue(path, f"{kind.__name__} is not a JSON value.")


def stored_entries(id: str, texts: Iterable[str]) -> list[Entry]:
    """The entries of stored texts. One that another program made unreadable is left out, with a warning."""
    found = []
    for text in texts:
        entry = value_of(text)
        if isinstance(entry, dict):
            found.append(entry)
        else:
            log.warning("an entry of the transcript of session %s is left out: it is no JSON object", shown(id))
    return found


def value_of(text: str | None) -> Any:
    """The value of a stored text; None for NULL and for text that is no JSON."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _uuid_of(entry: Entry) -> str | None:
    """What names an entry in its part: its `uuid`, escaped, a digest of a very long one; None if it has none."""
    uuid = entry.get("uuid")
    if not isinstance(uuid, str) or not uuid:
        return None
    label = escape_text(uuid, nul=True)
    return label if utf8_size(label) <= _MAX_UUID_BYTES else _digest(label)


def labels_of(given: Iterable[Given]) -> list[str]:
    """The labels under which these entries are stored if they are stored already."""
    return list(dict.fromkeys(label for one in given for label in (one.uuid, one.further) if label is not None))


def new_entries(
    given: Iterable[Given], stored: Iterable[tuple[str, str]], alike: Iterable[Entry] | None = None
) -> list[tuple[Entry, str, str | None]]:
    """The given entries not among the `stored` labels and texts, nor, one for one, `alike`; with text and label."""
    counts = Counter(map(_canonical, alike or ()))
    seen = {label: None if is_unreadable(text) else _further(label, value_of(text)) for label, text in stored}
    found = []
    for entry, text, label, further in given:
        if label is not None and further is not None:
            if label in seen and (seen[label] == further or (label := further) in seen):
                continue
            seen[label] = further
        elif counts and counts[key := _canonical(entry)]:
            counts[key] -= 1
            continue
        found.append((entry, text, label))
    return found


def _further(uuid: str, entry: Entry) -> str:
    """The label of an entry whose uuid another one has: labels are unique, so that the entry is stored once, too."""
    return _digest(f"{uuid}\n{_canonical(entry)}")


def _digest(text: str) -> str:
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def _canonical(entry: Any) -> str:
    return json.dumps(entry, sort_keys=True)


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


Fold = Callable[[Any, List[Entry]], Any]
"""Makes a summary of the previous one (None for none) and the entries that follow it."""
_MAX = 2**31 - 1
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

        An entry with a `uuid` that is there already is left out; one that shares it and differs is appended. Those without a uuid
        are appended every time, unless `once`: then each that is there already is left out, as when a file is imported again. Two
        writers of one session wait for each other, so that every reader has the entries in the order of the commits.

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


class Transcripts(Domain[F]):
    """Transcripts of agent sessions, and their entries."""

    sessions = on_demand(TranscriptSessions[F])
    entries = on_demand(TranscriptEntries[F])
