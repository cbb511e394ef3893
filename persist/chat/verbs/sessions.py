"""`tx.chat.sessions`: sessions, each a conversation with one agent."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import delete, insert, select, update

from persist.chat.models import ARCHIVED, sessions
from persist.chat.permissions import BOUND, Source, validate_rule
from persist.chat.schemas import ChatSession, ChatTurn
from persist.chat.storage import turns
from persist.chat.storage.statements import LOCK_SESSION
from persist.chat.verbs import branching
from persist.chat.verbs.listing import SESSION, list_sessions
from persist.db.changes.driver_statements import StatementRunner
from persist.db.expressions.upsert import insert_missing, taken
from persist.db.operations.keyset import Keyset
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.values.arguments import check_list
from persist.db.values.clock import epoch_ms
from persist.db.values.frozen import construct
from persist.db.values.json import Json, merge_patch
from persist.db.values.pages import Page, PagedList
from persist.errors import InvalidValue, NotFound

List = list
_S = sessions.c
_id = param("row_id")
_INSERT = Statement(insert_missing(sessions, "id"))
_INSERT_CHILD = Statement(insert(sessions))
_GET = Statement(select(*SESSION.columns).where(_S.id == _id))
_LOCK = Statement(select(*SESSION.columns).where(_S.id == _id).with_for_update())
_CHILDREN = Keyset(
    "chat.children", SESSION, (_S.created_at, _S.id), {"row_id": _S.parent_id == _id}, descending=False, exact=True
)
# None of these sets `updated_at`: it is the instant of the latest activity, by which lists are ordered.
_SET_METADATA = Statement(update(sessions).where(_S.id == _id).values(metadata_json=param("value")))
_SET_PERMISSIONS = Statement(update(sessions).where(_S.id == _id).values(permissions_json=param("value")))
_ARCHIVE = Statement(update(sessions).where(_S.id == _id, _S.archived_at.is_(None)).values(archived_at=param("at")))
_UNARCHIVE = Statement(update(sessions).where(_S.id == _id, ARCHIVED).values(archived_at=None))
_DELETE = Statement(delete(sessions).where(_S.id == _id))


def get_session(db: StatementRunner, id: str, *, lock: bool = False) -> ChatSession:
    """The session. Raises NotFound. `lock`: against other writers, until the transaction ends."""
    return _found(id, db.row(_LOCK if lock else _GET, row_id=id))


def _found(id: str, row: Row | None) -> ChatSession:
    return SESSION.found(row, "session", id)


class ChatSessions(Repository[F]):
    """`tx.chat.sessions`."""

    @writes
    def create(
        self,
        *,
        agent: str,
        model: Json,
        workspace_root: str | None = None,
        metadata: Json = None,
        permissions: Sequence[Json] = (),
        id: str | None = None,
        owner: str | None = None,
    ) -> ChatSession:
        """Create a session. `agent` and `owner` never change; `model` is the latest one used.

        Raises Conflict if the id is taken.
        """
        work = self._work
        now = work.now()
        if model is None:
            raise InvalidValue("model", "it is required.")
        session = construct(
            ChatSession,
            {
                **dict.fromkeys(SESSION.fields),
                "id": work.runtime.ids.mint("ses") if id is None else work.label("id", id),
                "agent": work.label("agent", agent),
                "workspace_root": None if workspace_root is None else work.label("workspace_root", workspace_root, empty=True),
                "model": model,
                "permissions": session_rules(permissions, now),
                "metadata": work.json_object("metadata", metadata),
                "prompt_tokens": 0,
                "completion_tokens": 0,
                "reasoning_tokens": 0,
                "cache_read": 0,
                "cache_write": 0,
                "total_tokens": 0,
                "cost_usd": 0.0,
                "created_at": now,
                "updated_at": now,
                "owner": None if owner is None else work.label("owner", owner),
            },
        )
        return self._insert(session)

    @reads
    def get(self, id: str) -> ChatSession:
        """The session. Raises NotFound."""
        return get_session(self._work, self._work.label("id", id))

    @reads
    def list(
        self,
        *,
        agent: str | None = None,
        workspace_root: str | None = None,
        owner: str | None = None,
        metadata: Mapping[str, Json] | None = None,
        search: str | None = None,
        archived: bool | None = None,
        include_archived: bool = False,
        limit: int = 20,
        after: str | None = None,
    ) -> Page[ChatSession]:
        """Sessions, most recently active first. Pass a page's `cursor` as `after` for the next page.

        `metadata`: only sessions whose metadata has all these values, none of which is a list or an object. `search`: only those
        with this text in `metadata.title`, in capitals or not. Archived ones are left out. `include_archived=True` adds them,
        `archived=True` returns them alone.
        """
        return list_sessions(
            self._work,
            agent=agent,
            workspace_root=workspace_root,
            owner=owner,
            metadata=metadata,
            search=search,
            archived=archived,
            include_archived=include_archived,
            limit=limit,
            after=after,
        )

    @reads
    def turn(self, id: str) -> ChatTurn | None:
        """The turn that runs in the session now; None if there is none, or if its process is gone. Raises NotFound."""
        work = self._work
        session_id = work.label("id", id)
        _, _, turn = turns.session_agent(work, session_id)
        if turn is None or not turn.running(work.now()):
            return None
        fields = {"session_id": session_id, "message_id": turn.message_id, "started_at": turn.started_at}
        return construct(ChatTurn, {**fields, "stop_requested": turn.stop_requested_at is not None})

    @writes
    def request_stop(self, id: str) -> bool:
        """Ask the session's running turn to stop; False if none runs. Its recorder's host sees it as `stop_requested`.

        Recording goes on until that host ends it. Raises NotFound without the session.
        """
        work = self._work
        return turns.request_stop(work, work.label("id", id), work.now())

    @reads
    def children(self, id: str, *, limit: int | None = None, after: str | None = None) -> PagedList[ChatSession]:
        """Sessions forked from this one, oldest first. They are kept when this one is deleted.

        With a `limit` a page, whose `cursor` is `after` for the next one.
        """
        return _CHILDREN.pages(self._work, limit, after, {"row_id": self._work.label("id", id)})

    @writes
    def update_metadata(self, id: str, patch: Mapping[str, Json]) -> ChatSession:
        """Merge a patch (RFC 7396) into the metadata: objects merge, null removes. Raises NotFound without the session."""
        work = self._work
        work.json("patch", work.json_object("patch", patch))
        session = get_session(work, work.label("id", id), lock=True)
        return self._replace(session, _SET_METADATA, "metadata", merge_patch(session.metadata, patch))

    @writes
    def archive(self, id: str) -> None:
        """Archive a session: `list` leaves it out, nothing is deleted. Raises NotFound without the session."""
        self._set_archived(self._work.label("id", id), _ARCHIVE, at=self._work.now())

    @writes
    def unarchive(self, id: str) -> None:
        """Undo `archive`: `list` shows the session again. Raises NotFound without the session."""
        self._set_archived(self._work.label("id", id), _UNARCHIVE)

    @writes
    def delete(self, id: str) -> None:
        """Delete a session with its messages and parts; sessions forked from it stay. Raises NotFound without the session."""
        with self._work.batch(last=True) as batch:
            deleted = batch.run(_DELETE, row_id=self._work.label("id", id))
        if not deleted.result:
            raise NotFound("session", id)

    @writes
    def fork(self, id: str, at_message_id: str, *, metadata: Json = None) -> ChatSession:
        """Create a child session with copies of the visible messages up to and including `at_message_id`.

        Raises Conflict while a turn runs, NotFound if the message is not of this session, InvalidValue if it is hidden or queued.
        """
        work = self._work
        given = work.json_object("metadata", metadata)
        work.label("at_message_id", at_message_id)
        with work.batch() as batch:
            row = batch.row(_LOCK, row_id=work.label("id", id))
            asked = branching.Parent.ask(batch, id)
        parent = _found(id, row.result)
        child = branching.child_of(parent, at_message_id, given, id=work.runtime.ids.mint("ses"), now=work.now())
        copied = branching.messages_through(work, asked, id, at_message_id)
        parts = branching.parts_of(work, asked, id)
        named = branching.blobs_of(work, parts)
        with work.batch(last=True) as batch:
            batch.run(_INSERT_CHILD, **self._values(child))
            branching.copy_messages(work, batch, child, copied, parts, named)
            stored = batch.row(_GET, row_id=child.id)
        return _found(child.id, stored.result)

    @writes
    def rewind(self, id: str, to_message_id: str | None = None, *, before: str | None = None) -> int:
        """Hide every message after that user message, and show those up to it; the number of messages hidden.

        With `before` instead: hide that message, which may be of any role, and every one after it. A recorder whose message gets
        hidden is refused with Conflict at its next chunk. Raises NotFound without session or message, InvalidValue if
        `to_message_id` is not a user message, or for a queued one.
        """
        work = self._work
        if (to_message_id is None) == (before is None):
            raise InvalidValue("to_message_id", "give the message to rewind to, or the one to rewind before.")
        return branching.rewind(
            work,
            work.label("id", id),
            None if to_message_id is None else work.label("to_message_id", to_message_id),
            None if before is None else work.label("before", before),
            work.now(),
        )

    @writes
    def unrewind(self, id: str, after_message_id: str) -> int:
        """Show the hidden messages after that one again, except canceled ones; the number shown."""
        work = self._work
        return branching.unrewind(work, work.label("id", id), work.label("after_message_id", after_message_id), work.now())

    @writes
    def add_permission(self, id: str, rule: Json) -> ChatSession:
        """Append a permission rule of source `session`. Raises InvalidValue for a rule of another source."""
        work = self._work
        (added,) = session_rules([rule], work.now())
        session = get_session(work, work.label("id", id), lock=True)
        return self._replace(session, _SET_PERMISSIONS, "permissions", [*session.permissions, added])

    @writes
    def remove_permission(self, id: str, rule: Json) -> ChatSession:
        """Remove the session's own rules with that permission, pattern and action."""
        work = self._work
        checked = validate_rule(rule)
        names = ("permission", "pattern", "action")
        session = get_session(work, work.label("id", id), lock=True)
        remaining = [
            stored
            for stored in session.permissions
            if BOUND in stored or any(stored.get(name) != checked[name] for name in names)
        ]
        return self._replace(session, _SET_PERMISSIONS, "permissions", remaining)

    def _insert(self, session: ChatSession) -> ChatSession:
        work, values = self._work, self._values(session)
        with work.batch(last=True) as batch:
            inserted = batch.run(_INSERT, **values)
            row = batch.row(_GET, row_id=session.id)
        if not inserted.result:
            raise taken(_INSERT, "chat session", session.id)
        return _found(session.id, row.result)

    def _values(self, session: ChatSession) -> dict[str, Any]:
        values: dict[str, Any] = {name if name in _S else f"{name}_json": getattr(session, name) for name in SESSION.fields}
        for name in ("model", "metadata", "permissions"):
            values[f"{name}_json"] = self._work.json(name, values[f"{name}_json"])
        return values

    def _replace(self, session: ChatSession, statement: Statement, path: str, value: Json) -> ChatSession:
        work = self._work
        with work.batch(last=True) as batch:
            batch.run(statement, row_id=session.id, value=work.json(path, value))
            row = batch.row(_GET, row_id=session.id)
        return _found(session.id, row.result)

    def _set_archived(self, id: str, statement: Statement, **values: datetime) -> None:
        """Execute the UPDATE, which leaves a session alone that is in that state already. Raises NotFound without the session."""
        with self._work.batch(last=True) as batch:
            found = batch.row(LOCK_SESSION, row_id=id)
            batch.run(statement, row_id=id, **values)
        if found.result is None:
            raise NotFound("session", id)


def session_rules(rules: Sequence[Json], now: datetime) -> List[dict[str, Any]]:
    """Checked copies of the rules, each with `added_at` (epoch milliseconds).

    Raises InvalidValue unless their source is `session`.
    """
    checked = []
    for index, rule in enumerate(check_list("permissions", rules)):
        path = f"permissions[{index}]"
        valid = validate_rule(rule, path=path)
        if valid["source"] != Source.SESSION:
            raise InvalidValue(f"{path}.source", "only session rules are kept with a session.")
        checked.append({"added_at": epoch_ms(now), **valid})
    return checked
