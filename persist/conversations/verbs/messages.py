"""Messages of conversations: put, read, and `record`, the live write."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from sqlalchemy import bindparam, case, delete, func, or_, select, update

from persist.conversations.embeddings import pack
from persist.conversations.models import branches, members, messages, sessions
from persist.conversations.schemas import ConvMessage, Metric, message_fields, message_list
from persist.conversations.storage import lineage, records
from persist.conversations.storage import progressions as membership
from persist.conversations.storage.progressions import Extension
from persist.conversations.vector_search import Query, Scope, candidates, nearest
from persist.db.schema.column_types import LABEL_BYTES, Label
from persist.db.schema.instants import EpochReal
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_choice
from persist.db.values.escaping import utf8_size
from persist.db.values.json import Json
from persist.db.values.pages import check_limit
from persist.errors import Conflict, InvalidValue


def id_list(work: UnitOfWork, ids: object, path: str = "ids") -> list[str]:
    """A checked list of ids."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise InvalidValue(path, "expected a list of ids.")
    return [work.label(f"{path}[{index}]", id) for index, id in enumerate(ids)]


class Vectors(Repository[F]):
    """`tx.conversations.vectors`."""

    @reads
    def search(
        self,
        query: Sequence[float],
        *,
        k: int = 10,
        session_id: str | None = None,
        branch_id: str | None = None,
        metric: Literal["cosine", "l2"] = "cosine",
    ) -> list[tuple[ConvMessage, float]]:
        """The `k` (1 to 1000) messages nearest to the query with their distances, nearest first, equal distances by id.

        Exact, and equal on every backend: cosine is 1 - cos, 1.0 if either vector is zero; l2 is Euclidean. `query`:
        numbers or packed float32, rounded to float32 as embeddings are. Messages without an embedding of its dimension, and
        those that cannot be read, are skipped. `session_id`: the session's pool. `branch_id`: the branch's history, what it
        inherits included. Raises NotFound.
        """
        work = self._work
        packed = pack("query", query)
        if not packed:
            raise InvalidValue("query", "expected one number or more.")
        wanted = Query(packed, check_choice("metric", metric, Metric))
        check_limit(k, path="k")
        scope = Scope(work, session_id=session_id, branch_id=branch_id)
        near, count, looked, found = candidates(work).near, k, set[str](), dict[str, ConvMessage]()
        while True:
            ranked = nearest(wanted, count, near(scope, wanted, count))
            new = [id for _, id in ranked if id not in looked]
            looked |= {*new}
            found |= records.find_messages(work, [id for id in new if utf8_size(id) <= LABEL_BYTES])
            hits = [(found[id], distance) for distance, id in ranked if id in found]
            if len(hits) >= k or len(ranked) < count:
                return hits[:k]
            count *= 2  # some cannot be read: the next nearest take their places

    @reads
    def backend(self) -> str:
        """What computes candidates in this transaction: "sqlite-vec", "numpy" or "python". Results do not depend on it."""
        return candidates(self._work).name


_S, _B, _M = sessions.c, branches.c, members.c
_id = param("row_id")
_BRANCH = Statement(
    select(_B.session_id, _B.progression_id, _S.progression_id, _B.forked_at_ord)
    .select_from(branches.join(sessions, _S.id == _B.session_id))
    .where(_B.id == _id)
    .with_for_update(read=True, key_share=True, of=branches)
)
_SESSION_POOL = Statement(select(_S.progression_id).where(_S.id == _id))
_SET_SYSTEM = Statement(update(branches).where(_B.id == _id).values(system_msg_id=param("message")))
_at = bindparam("at", type_=EpochReal())
_ACTIVITY = Statement(
    update(sessions)
    .where(_S.id == _id)
    .values(
        first_msg_id=func.coalesce(_S.first_msg_id, bindparam("first", type_=Label())),
        last_msg_id=param("last"),
        last_message_at=case((_S.last_message_at > _at, _S.last_message_at), else_=_at),
        updated_at=case((_S.updated_at > _at, _S.updated_at), else_=_at),
    )
)
_LOCK = Statement(select(messages.c.id).where(messages.c.id == _id).with_for_update())
_DELETE = Statement(delete(messages).where(messages.c.id == _id))
_NAMED_BY = (
    ("a progression", Statement(select(_M.progression_id).where(_M.message_id == _id).limit(1))),
    ("a branch's system_msg_id", Statement(select(_B.id).where(_B.system_msg_id == _id).limit(1))),
    (
        "a session's first_msg_id or last_msg_id",
        Statement(select(_S.id).where(or_(_S.first_msg_id == _id, _S.last_msg_id == _id)).limit(1)),
    ),
)


class ConvMessages(Repository[F]):
    """`tx.conversations.messages`."""

    @writes
    def put(self, message: Mapping[str, Json]) -> ConvMessage:
        """Insert a message as `Message.model_dump()` shapes it, or overwrite the one with its id.

        `created_at` keeps its first value. Content may be any JSON value but None: 0, "" and [] are content.
        """
        work = self._work
        return records.put_message(work, message_fields(work, message))

    @writes
    def put_many(
        self, messages: Sequence[Mapping[str, Json]], *, progression_ids: Sequence[str] = (), session_id: str | None = None
    ) -> int:
        """Put each message, and append to each progression those that are not members yet, in order; return how many were given.

        With `session_id` they join its pool too, and the session counts as active now. NotFound: progression or session.
        """
        work = self._work
        fields = [message_fields(work, one, path=f"messages[{index}]") for index, one in enumerate(message_list(messages))]
        pools = id_list(work, progression_ids, "progression_ids")
        if session_id is not None:
            pools.append(self._checked(pools, work.label("session_id", session_id)))
        else:
            membership.check_progressions(work, pools)
        ids = [one["id"] for one in fields]
        growing = [Extension(work, pool, ids) for pool in sorted(set(pools))]  # one order: no deadlock
        rows = records.message_rows(work, fields)
        if not rows and not growing:
            return 0
        with work.batch(last=not growing) as batch:
            records.write_messages(batch, rows)
            for one in growing:
                one.add(batch)
            if session_id is not None and ids:
                batch.run(_ACTIVITY, row_id=session_id, first=ids[0], last=ids[-1], at=work.now())
        for one in growing:
            one.end()
        return len(fields)

    def _checked(self, progression_ids: Sequence[str], session_id: str) -> str:
        with self._work.batch() as batch:
            pool = batch.row(_SESSION_POOL, row_id=session_id)
            progressions = membership.ask_progressions(batch, progression_ids)
        home = pool.must_exist("session", session_id)[0]
        membership.check_found(progressions)
        return str(home)

    @reads
    def get(self, id: str) -> ConvMessage | None:
        """The message, None if it does not exist."""
        return records.find_message(self._work, self._work.label("id", id))

    @reads
    def get_many(self, ids: Sequence[str]) -> dict[str, ConvMessage]:
        """Messages by id, in the order of `ids`; unknown ids are left out."""
        return records.find_messages(self._work, id_list(self._work, ids))

    @writes
    def delete(self, id: str) -> bool:
        """Delete a message; False if there is none. Raises Conflict while a progression, branch or session names it."""
        work = self._work
        message_id = work.label("id", id)
        with work.batch() as batch:
            batch.lock(_LOCK, row_id=message_id)  # waits for a transaction that is naming it, so that the name is visible
            named_by = [(what, batch.row(statement, row_id=message_id)) for what, statement in _NAMED_BY]
        for what, found in named_by:
            if found.result is not None:
                raise Conflict(f"The message {message_id!r} is named by {what} ({found.result[0]!r}).")
        with work.batch(last=True) as batch:
            deleted = batch.run(_DELETE, row_id=message_id)
        return bool(deleted.result)

    @writes
    def record(self, branch_id: str, message: Mapping[str, Json]) -> ConvMessage:
        """Record a message live: put it, append it to the branch and its session's pool, mark the session active.

        A system message becomes the branch's. An inherited message is not appended again. Raises NotFound for an unknown branch.
        """
        work = self._work
        fields = message_fields(work, message)
        message_id = fields["id"]
        with work.batch() as batch:
            found = batch.row(_BRANCH, row_id=work.label("branch_id", branch_id))
            inherits = lineage.ask_inherits(batch, branch_id, message_id) if work.runtime.dialect.pipelines else None
        session_id, own, pool, inherited = found.must_exist("branch", branch_id)
        if inherits is None:
            shown = bool(inherited) and lineage.inherits(work, branch_id, message_id)
        else:
            shown = inherits.result is not None
        number = records.type_number(work, fields["lion_class"])
        with work.batch() as batch:
            stored = records.add_message(batch, fields, number)
            if fields["role"] == "system":  # before the progressions: the locking order of ending a branch
                batch.run(_SET_SYSTEM, row_id=branch_id, message=message_id)
            appended = [(one, membership.add(batch, one, message_id)) for one in sorted({pool} if shown else {own, pool})]
            batch.run(_ACTIVITY, row_id=session_id, first=message_id, last=message_id, at=work.now())
        for progression_id, added in appended:
            membership.note_added(work, progression_id, added)
        return records.stored_message(stored)
