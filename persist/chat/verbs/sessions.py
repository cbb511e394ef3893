"""`tx.chat.sessions`, each a conversation with one agent, their lists, and `tx.chat.prompts`."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Text, bindparam, delete, insert, or_, select, update

from persist.chat.models import ARCHIVED, OWNED, TITLE, prompts, sessions
from persist.chat.permissions import BOUND, Source, validate_rule
from persist.chat.recording.flush import ADD_PROMPT
from persist.chat.recording.recording import digest_of
from persist.chat.schemas import ChatSession, ChatTurn
from persist.chat.storage import turns
from persist.chat.storage.statements import LOCK_SESSION
from persist.chat.verbs import branching
from persist.db.changes.batch import StatementRunner
from persist.db.expressions.json_text import json_has_member
from persist.db.expressions.keyset import behind
from persist.db.expressions.upsert import insert_missing, taken
from persist.db.operations.keyset import Keyset
from persist.db.schema.base import LABEL_CHARACTERS
from persist.db.statements.prepared import LIMIT, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_flag, check_list, must_exist
from persist.db.values.clock import epoch_ms
from persist.db.values.escaping import LEAD
from persist.db.values.frozen import construct
from persist.db.values.json import Json, merge_patch
from persist.db.values.pages import Page, PagedList, check_limit, values_after
from persist.errors import InvalidValue, NotFound

# `tx.chat.prompts`: system prompts, each stored once under the sha256 of its text.

_GET_PROMPT = Statement(select(prompts.c.body).where(prompts.c.digest == param("row_id")))


class SystemPrompts(Repository[F]):
    """`tx.chat.prompts`."""

    @writes
    def put(self, body: str) -> str:
        """Store a prompt and return its sha256 (64 hex digits). Equal text is stored once."""
        work = self._work
        digest = digest_of(work.body("body", body))
        work.run_last(ADD_PROMPT, digest=digest, body=body, created_at=work.now())
        return digest

    @reads
    def get(self, digest: str) -> str:
        """The prompt with that digest. Raises NotFound."""
        row = must_exist(self._work.row(_GET_PROMPT, row_id=self._work.label("digest", digest)), "system prompt", digest)
        body: str = row[0]
        return body


# Lists of sessions: their filters, and the statement that selects a page.

_LIST = "chat.sessions"
_S = sessions.c
SESSION = Values(ChatSession, sessions)
_MAX_MEMBERS = 16
"""The most metadata values that one list is filtered by."""
_MAX_INTEGER = 2**63


@cache
def _listing(archived: bool | None, goes_on: bool, members: int, patterns: int, *given: str) -> Statement:
    """The SELECT of a list, with those of the filters `agent`, `owner` and `workspace_root` that are given."""
    query = select(*SESSION.columns).order_by(_S.updated_at.desc(), _S.id.desc()).limit(LIMIT)
    query = query.where(*(_S[name] == param(name) for name in given))
    if "owner" in given:
        query = query.where(OWNED)  # the condition of the partial index
    if archived is not None:
        query = query.where(ARCHIVED if archived else _S.archived_at.is_(None))
    for place in range(members):
        member: ColumnElement[Any] = bindparam(f"member_{place}", type_=_S.metadata_json.type)
        query = query.where(json_has_member(_S.metadata_json, member))
    if patterns:
        spelt = (bindparam(f"pattern_{place}", type_=Text()) for place in range(patterns))
        query = query.where(or_(*(TITLE.ilike(pattern, escape="\\") for pattern in spelt)))
    if goes_on:
        query = query.where(behind((_S.updated_at, _S.id), ("after_at", "after_id"), descending=True))
    return Statement(query)


def _members(work: UnitOfWork, metadata: Mapping[str, Json]) -> list[dict[str, Json]]:
    wanted = work.json_object("metadata", metadata)
    work.json("metadata", wanted)
    if len(wanted) > _MAX_MEMBERS:
        raise InvalidValue("metadata", f"at most {_MAX_MEMBERS} values can be asked for.")
    for key, value in wanted.items():
        if isinstance(value, (dict, list)):
            raise InvalidValue(f"metadata.{key}", "text, a number, true, false or null can be asked for, no list and no object.")
        if isinstance(value, int) and not -_MAX_INTEGER <= value < _MAX_INTEGER:
            raise InvalidValue(f"metadata.{key}", "integers of more than 64 bits cannot be asked for.")
        if isinstance(value, str) and "\x00" in value:
            raise InvalidValue(f"metadata.{key}", "text with NUL cannot be asked for.")
    return [{key: value} for key, value in wanted.items()]


def _patterns(search: str) -> list[str]:
    """LIKE patterns of the text, in its usual spellings where the databases do not ignore the case. Raises InvalidValue."""
    if len(search) > LABEL_CHARACTERS:
        raise InvalidValue("search", f"at most {LABEL_CHARACTERS} characters of a title are searched.")
    spellings = [search]
    if not search.isascii():
        spellings += [search.lower(), search.upper(), search.capitalize(), search.title()]
    return [f"%{_literal(spelling)}%" for spelling in dict.fromkeys(spellings)]


def _literal(text: str) -> str:
    for special in ("\\", "%", "_"):
        text = text.replace(special, "\\" + special)
    return text.replace(LEAD, "%")  # stored once on SQLite, twice on Postgres


List = list
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
    return SESSION.found(db.row(_LOCK if lock else _GET, row_id=id), "session", id)


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
        """Create a session. `agent` and `owner` never change; `model` is the latest. Raises Conflict if the id is taken."""
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
                "model": work.json_object("model", model),
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
        if id is not None:
            work.refuse_former(sessions, "chat session", session.id)
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
        work, limit = self._work, check_limit(limit)
        if archived is not None:
            check_flag("archived", archived)
        shown = archived if archived is not None or include_archived else False
        filters: dict[str, Any] = {"agent": agent, "workspace_root": workspace_root, "include_archived": shown is None}
        filters |= {} if owner is None else {"owner": owner}
        filters |= {"archived": True} if shown else {}
        given: dict[str, Any] = {}
        if agent is not None:
            given["agent"] = work.label("agent", agent)
        if owner is not None:
            given["owner"] = work.label("owner", owner)
        if workspace_root is not None:
            given["workspace_root"] = work.label("workspace_root", workspace_root, empty=True)
        members = [] if metadata is None else _members(work, metadata)
        if members:
            filters["metadata"] = members
        patterns = [] if search is None else _patterns(work.label("search", search))
        if patterns:
            filters["search"] = search
        after_key = values_after(after, _LIST, filters)
        statement = _listing(shown, bool(after_key), len(members), len(patterns), *given)
        values: dict[str, Any] = {f"member_{place}": member for place, member in enumerate(members)}
        values |= {f"pattern_{place}": pattern for place, pattern in enumerate(patterns)}
        rows = work.rows(statement, **given, **values, **after_key, limit=limit + 1)
        return Page.of(
            rows, limit, SESSION, name=_LIST, filters=filters, key=lambda _, item: [epoch_ms(item.updated_at), item.id]
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
        """Forks of this session, oldest first; they outlive it. With a `limit` a page, whose `cursor` is the next `after`."""
        return _CHILDREN.pages(self._work, limit, after, {"row_id": self._work.label("id", id)})

    @writes
    def update_metadata(self, id: str, patch: Mapping[str, Json]) -> ChatSession:
        """Merge a patch (RFC 7396) into the metadata: objects merge, null removes. Raises NotFound without the session."""
        work = self._work
        given = work.json_object("patch", patch)
        work.json("patch", given)
        session = get_session(work, work.label("id", id), lock=True)
        return self._replace(session, _SET_METADATA, "metadata", merge_patch(session.metadata, given))

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
        if not self._work.run_last(_DELETE, row_id=self._work.label("id", id)):
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
        parent = SESSION.found(row.result, "session", id)
        child = branching.child_of(parent, at_message_id, given, id=work.runtime.ids.mint("ses"), now=work.now())
        copied = branching.messages_through(work, asked, id, at_message_id)
        parts = branching.parts_of(work, asked, id)
        named = branching.blobs_of(work, parts)
        with work.batch(last=True) as batch:
            batch.run(_INSERT_CHILD, **self._values(child))
            branching.copy_messages(work, batch, child, copied, parts, named)
            stored = batch.row(_GET, row_id=child.id)
        return SESSION.found(stored.result, "session", child.id)

    @writes
    def rewind(self, id: str, to_message_id: str | None = None, *, before: str | None = None) -> int:
        """Hide every message after that user message, and show those up to it; the number of messages hidden.

        With `before` instead: hide the message `before`, of any role, and all later messages. A recorder whose message gets
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
        """Show the hidden messages after `after_message_id` again, except canceled messages; the number shown."""
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
        return SESSION.found(row.result, "session", session.id)

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
        return SESSION.found(row.result, "session", session.id)

    def _set_archived(self, id: str, statement: Statement, **values: datetime) -> None:
        """Execute the UPDATE, which leaves a session alone that is in that state already. Raises NotFound without the session."""
        with self._work.batch(last=True) as batch:
            found = batch.row(LOCK_SESSION, row_id=id)
            batch.run(statement, row_id=id, **values)
        found.must_exist("session", id)


def session_rules(rules: Sequence[Json], now: datetime) -> List[dict[str, Any]]:
    """Checked copies of the rules, with `added_at` (epoch milliseconds). Raises InvalidValue unless the source is `session`."""
    checked = []
    for index, rule in enumerate(check_list("permissions", rules)):
        path = f"permissions[{index}]"
        valid = validate_rule(rule, path=path)
        if valid["source"] != Source.SESSION:
            raise InvalidValue(f"{path}.source", "only session rules are kept with a session.")
        checked.append({"added_at": epoch_ms(now), **valid})
    return checked
