"""Sessions of conversations: each has branches and a pool of messages."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Any, Unpack

from sqlalchemy import func, select, type_coerce, update

from persist.conversations import pruning, schemas
from persist.conversations.models import sessions
from persist.conversations.schemas import node_metadata as checked_metadata
from persist.conversations.storage import deletion as removal
from persist.conversations.storage import records
from persist.conversations.verbs import lifecycle
from persist.conversations.verbs.lifecycle import TERMINAL
from persist.db.expressions.keyset import behind
from persist.db.expressions.upsert import insert_missing
from persist.db.schema.column_types import Float64
from persist.db.statements.prepared import LIMIT, Statement, param
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_choice, check_count, optional_label
from persist.db.values.clock import as_utc, epoch_us
from persist.db.values.json import Json, JsonText, merge_patch
from persist.db.values.pages import Page, check_limit, decode_cursor
from persist.errors import InvalidValue

Check = Callable[[UnitOfWork, str, Any], Any]


def label(work: UnitOfWork, path: str, value: Any) -> str | None:
    """A checked identifier, or None."""
    return optional_label(path, value)


def text(work: UnitOfWork, path: str, value: Any) -> str | None:
    """Checked text, or None."""
    return None if value is None else work.body(path, value)


def _choice(kind: type[StrEnum]) -> Check:
    return lambda work, path, value: None if value is None else check_choice(path, value, kind)


def instant(work: UnitOfWork, path: str, value: Any) -> datetime | None:
    """A checked aware datetime, or None."""
    return None if value is None else as_utc(path, value)


def _required_instant(work: UnitOfWork, path: str, value: Any) -> datetime:
    return as_utc(path, value)


def _metadata(work: UnitOfWork, path: str, value: Any) -> JsonText | None:
    metadata = checked_metadata(work, path, value)
    return None if metadata is None else work.json(path, metadata)


_PROVENANCE: dict[str, Check] = {
    "playbook_name": label,
    "agent_name": label,
    "invocation_kind": _choice(schemas.InvocationKind),
    "show_topic": label,
    "show_play_name": label,
    "artifacts_path": label,
    "source_kind": _choice(schemas.SourceKind),
}
_CHANGEABLE: dict[str, Check] = {
    **_PROVENANCE,
    "name": text,
    "user": label,
    "first_msg_id": label,
    "last_msg_id": label,
    "started_at": instant,
    "ended_at": instant,
    "last_message_at": instant,
    "updated_at": _required_instant,
    "node_metadata": _metadata,
}


def checked_changes(work: UnitOfWork, what: str, checks: Mapping[str, Check], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Checked columns of an update; InvalidValue names a column that cannot be changed."""
    for name in columns:
        if name not in checks:
            raise InvalidValue(name, f"a {what} has no such column to change; there are {', '.join(checks)}.")
    return {name: checks[name](work, name, value) for name, value in columns.items()}


def session_changes(work: UnitOfWork, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The checked columns of a session's update."""
    changes = checked_changes(work, "session", _CHANGEABLE, columns)
    if changes.get("ended_at") is not None:
        changes["ended_at_is_approximate"] = False
    return changes


def new_session(
    work: UnitOfWork, *, id: str | None, node_metadata: Json, status: str | None, provenance: Mapping[str, Any], **columns: Any
) -> dict[str, Any]:
    """Every column of a new session; `progression_id` is passed through as given."""
    for name in provenance:
        if name not in _PROVENANCE:
            raise InvalidValue(name, f"a session has no such column; its provenance is {', '.join(_PROVENANCE)}.")
    now = work.now()
    word = None if status is None else check_choice("status", status, schemas.Status)
    created, updated, progression = columns.pop("created_at"), columns.pop("updated_at"), columns.pop("progression_id")
    fields: dict[str, Any] = {
        **dict.fromkeys(records.SESSIONS.values.fields),
        "source_kind": schemas.SourceKind.LIVE,
        **session_changes(work, {**columns, **provenance, "node_metadata": node_metadata}),
        "id": work.runtime.ids.mint_uuid() if id is None else work.label("id", id),
        "progression_id": optional_label("progression_id", progression),
        "created_at": now if created is None else as_utc("created_at", created),
        "updated_at": now if updated is None else as_utc("updated_at", updated),
        "status": word,
        "ended_at_is_approximate": False,
    }
    if word is schemas.Status.RUNNING and fields["started_at"] is None:
        fields["started_at"] = now
    fields["last_message_at"] = fields["started_at"] or now
    if word in TERMINAL and fields["ended_at"] is None:
        known = (fields["created_at"], fields["started_at"], fields["updated_at"] if updated is not None else None)
        fields["ended_at"] = max(at for at in known if at is not None)
        fields["ended_at_is_approximate"] = True
    return fields


_LIST = "conversations.sessions"
_S = sessions.c
_exactly = type_coerce(_S.updated_at, Float64())  # a cursor holds the stored float, which a datetime would round
_WORDS: dict[str, type[StrEnum]] = {
    "status": schemas.Status,
    "invocation_kind": schemas.InvocationKind,
    "source_kind": schemas.SourceKind,
}


@cache
def _page(names: tuple[str, ...], *, since: bool, after: bool) -> Statement:
    query = select(*records.SESSIONS.values.columns, _exactly).order_by(_S.updated_at.desc(), _S.id.desc()).limit(LIMIT)
    for name in names:
        query = query.where(_S[name] == param(name))
    if since:
        query = query.where(_S.updated_at >= param("since"))
    if after:
        query = query.where(behind((_exactly, _S.id), ("after_at", "after_id"), descending=True))
    return Statement(query)


def page(
    work: UnitOfWork, given: Mapping[str, str | None], *, since: datetime | None, limit: int, after: str | None
) -> Page[schemas.ConvSession]:
    """One page of sessions, the latest update first."""
    limit = check_limit(limit)
    filters = {name: _checked(work, name, value) for name, value in given.items() if value is not None}
    names = tuple(filters)
    values: dict[str, Any] = dict(filters)
    remembered: dict[str, Any] = dict(filters)
    if since is not None:
        values["since"] = as_utc("since", since)
        remembered["since"] = epoch_us(values["since"])
    if after is not None:
        at, last = decode_cursor(work.label("after", after), _LIST, remembered, (float, str))
        values |= {"after_at": at, "after_id": last}
    statement = _page(names, since=since is not None, after=after is not None)
    rows = work.rows(statement, limit=limit + 1, **values)
    return Page.of(
        rows,
        limit,
        lambda row: records.SESSIONS.values(row[:-1]),
        name=_LIST,
        filters=remembered,
        key=lambda row, item: [row[-1], item.id],
    )


def _checked(work: UnitOfWork, name: str, value: str) -> str:
    return check_choice(name, value, _WORDS[name]) if name in _WORDS else work.label(name, value)


List = list
_id = param("row_id")
_INSERT = Statement(insert_missing(sessions, "id"))
_COUNTS = Statement(select(_S.status, func.count()).group_by(_S.status))
_SET_METADATA = Statement(update(sessions).where(_S.id == _id).values(node_metadata=param("value"), updated_at=param("at")))
_TOUCH = Statement(update(sessions).where(_S.id == _id).values(last_message_at=param("last"), updated_at=param("at")))


class ConvSessions(Repository[F]):
    """`tx.conversations.sessions`."""

    @writes
    def create(
        self,
        /,
        *,
        id: str | None = None,
        name: str | None = None,
        user: str | None = None,
        node_metadata: Json = None,
        status: str | None = None,
        created_at: datetime | None = None,
        started_at: datetime | None = None,
        ended_at: datetime | None = None,
        updated_at: datetime | None = None,
        progression_id: str | None = None,
        first_msg_id: str | None = None,
        last_msg_id: str | None = None,
        **provenance: str | None,
    ) -> schemas.ConvSession:
        """Create a session; one that exists is returned unchanged.

        `progression_id` None makes a new progression; an unknown one raises Conflict. Provenance: playbook_name, agent_name,
        invocation_kind, show_topic, show_play_name, artifacts_path, source_kind ("live" unless given). `created_at` and
        `updated_at` default to now. A session created as ended without `ended_at` gets the latest of its instants, with
        `ended_at_is_approximate` set.
        """
        work = self._work
        fields = new_session(
            work,
            id=id,
            name=name,
            user=user,
            node_metadata=node_metadata,
            status=status,
            created_at=created_at,
            started_at=started_at,
            ended_at=ended_at,
            updated_at=updated_at,
            progression_id=progression_id,
            first_msg_id=first_msg_id,
            last_msg_id=last_msg_id,
            provenance=provenance,
        )
        row_id, wanted = fields["id"], fields["progression_id"]
        with work.batch() as batch:
            existing = records.SESSIONS.ask(batch, row_id)
            pointers = removal.ask_pointers(batch, fields)
            pool = records.ask_progression(batch, wanted)
            creation = lifecycle.Creation(batch, "session", row_id, fields["status"])
        if existing.result is not None:
            return records.SESSIONS.found(existing, row_id)
        removal.check_pointers(pointers)
        records.check_progression(pool, wanted)
        if id is not None:
            work.refuse_former(sessions, "session", row_id)
        with work.batch() as batch:
            fields["progression_id"] = records.owned_progression(work, batch, wanted)
            inserted = batch.run(_INSERT, **fields)
            creation.log(work, batch)
            stored = records.SESSIONS.ask(batch, row_id)
        if not inserted.result:  # another writer was faster
            creation.undo(work)
            removal.remove_unowned(work, [] if wanted is not None else [fields["progression_id"]])
        return records.SESSIONS.found(stored, row_id)

    @reads
    def get(self, id: str) -> schemas.ConvSession:
        """The session. Raises NotFound."""
        return records.SESSIONS.get(self._work, id)

    @reads
    def list(
        self,
        *,
        status: str | None = None,
        agent_name: str | None = None,
        playbook_name: str | None = None,
        invocation_kind: str | None = None,
        source_kind: str | None = None,
        show_topic: str | None = None,
        since: datetime | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[schemas.ConvSession]:
        """Most recently updated first; `since` is inclusive. Pass `cursor` as `after` for the next page."""
        filters = {
            "status": status,
            "agent_name": agent_name,
            "playbook_name": playbook_name,
            "invocation_kind": invocation_kind,
            "source_kind": source_kind,
            "show_topic": show_topic,
        }
        return page(self._work, filters, since=since, limit=limit, after=after)

    @reads
    def counts(self) -> dict[str | None, int]:
        """The number of sessions by status; the key None counts sessions without a status."""
        return dict(self._work.rows(_COUNTS))

    @writes
    def update(self, /, id: str, *, metadata_patch: Mapping[str, Json] | None = None, **columns: Any) -> schemas.ConvSession:
        """Change columns, and merge a patch (RFC 7396) into node_metadata. Unknown columns are InvalidValue.

        A `status` is set as `set_status` sets it; `node_metadata` replaces it whole, and excludes a patch.
        """
        work = self._work
        patch = checked_metadata(work, "metadata_patch", metadata_patch)
        if patch is not None and "node_metadata" in columns:
            raise InvalidValue("metadata_patch", "node_metadata is replaced or patched, not both.")
        says_status = "status" in columns
        status = columns.pop("status", None)
        changes = session_changes(work, columns)
        row_id = work.label("id", id)
        with work.batch() as batch:
            locked = records.lock_with_pool(batch, row_id) if says_status else records.SESSIONS.ask(batch, row_id, lock=True)
            pointers = removal.ask_pointers(batch, changes)
            known = lifecycle.StatusFacts(work, batch, "session", row_id) if says_status else None
        session = records.SESSIONS.found(locked, id)
        removal.check_pointers(pointers)
        if known is not None and (status is None or status != session.status):
            lifecycle.set_status(work, session, status, last=False, known=known)
        now = work.now()
        patched = None if patch is None else work.json("node_metadata", merge_patch(session.node_metadata or {}, patch))
        with work.batch(last=True) as batch:
            if changes:
                records.SESSIONS.change(batch, id, {"updated_at": now, **changes})
            if patched is not None:
                batch.run(_SET_METADATA, row_id=id, value=patched, at=changes.get("updated_at", now))
            stored = records.SESSIONS.ask(batch, row_id)
        return records.SESSIONS.found(stored, id)

    @writes
    def touch(self, id: str, at: datetime) -> schemas.ConvSession:
        """Note activity at an instant: `last_message_at` and `updated_at` move forward to it, never back."""
        work = self._work
        instant = as_utc("at", at)
        session = records.SESSIONS.get(work, id, lock=True)
        last = max(session.last_message_at or instant, instant)
        with work.batch(last=True) as batch:
            batch.run(_TOUCH, row_id=id, last=last, at=max(session.updated_at, instant))
            stored = records.SESSIONS.ask(batch, id)
        return records.SESSIONS.found(stored, id)

    @writes
    def set_status(self, id: str, status: str, **change: Unpack[schemas.StatusChange]) -> bool:
        """Change the status and write a row of history. False if the current status is none of `expected`.

        A final status does not change (TransitionError), unless `override` gives a justification and `actor` who gave it. The
        reasons stay on the session until its next change, and in the history.
        """
        row_id = self._work.label("id", id)
        with self._work.batch() as batch:
            locked = records.lock_with_pool(batch, row_id)
            known = lifecycle.StatusFacts(self._work, batch, "session", row_id)
        return lifecycle.set_status(self._work, records.SESSIONS.found(locked, id), status, known=known, **change)

    @reads
    def transitions(self, id: str) -> List[schemas.StatusTransition]:
        """Every status change of the session, oldest first; kept after the session is deleted. Raises NotFound."""
        found = lifecycle.history_of(self._work, "session", self._work.label("id", id))
        if not found:
            records.SESSIONS.get(self._work, id)
        return found

    @writes
    def delete(self, id: str) -> bool:
        """Delete a session and its branches; False if there is none. Forks keep their history; messages stay until `prune`."""
        session_id = self._work.label("id", id)
        session, doomed = records.OF_SESSIONS.locked(
            self._work,
            lambda batch: (removal.DoomedSessions(batch, [session_id]), records.SESSIONS.ask(batch, session_id, lock=True))[::-1],
            ids=[session_id],
        )
        if session.result is None:
            return False
        removal.remove_sessions(self._work, doomed)
        return True

    @writes
    def prune(
        self, *, keep_days: int = 30, keep_n: int = 100, dry_run: bool = False, orphan_grace: timedelta = pruning.ORPHAN_GRACE
    ) -> schemas.PruneReport:
        """Delete sessions that were not updated for `keep_days`, beyond the `keep_n` latest; running ones are kept.

        Also deleted: their branches, progressions without another owner, and messages that nothing names any more. Forks in
        other sessions keep what they show. Messages that never belonged to anything are deleted once older than `orphan_grace`.
        The counts of a `dry_run` are exact: on Postgres it counts and locks nothing, on SQLite it rolls back what it deletes.
        """
        return pruning.prune(
            self._work,
            keep_days=check_count("keep_days", keep_days),
            keep_n=check_count("keep_n", keep_n),
            dry_run=dry_run,
            orphan_grace=orphan_grace,
        )
