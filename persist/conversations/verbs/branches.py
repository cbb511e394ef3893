"""Branches: ordered views of messages; a fork costs one insert."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Unpack

from sqlalchemy import select, update

from persist.conversations.models import branches, messages
from persist.conversations.schemas import CLONE_FROM, Branch, ConvMessage, Status, StatusChange, StatusTransition
from persist.conversations.schemas import node_metadata as checked_metadata
from persist.conversations.storage import deletion as removal
from persist.conversations.storage import lineage, records
from persist.conversations.storage import progressions as membership
from persist.conversations.verbs import lifecycle
from persist.conversations.verbs.sessions import Check, checked_changes, instant, label, text
from persist.db.changes.batch import Batch, Pending
from persist.db.expressions.upsert import insert_missing
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import need
from persist.db.values.arguments import UNBOUNDED, check_choice, check_count, optional_label
from persist.db.values.clock import as_utc
from persist.db.values.frozen import construct
from persist.db.values.json import Json, merge_patch
from persist.db.values.pages import check_limit
from persist.errors import Conflict, InvalidValue

_CHANGEABLE: dict[str, Check] = {"name": text, "user": label, "started_at": instant, "ended_at": instant}


List = list
_B = branches.c
_id = param("row_id")
_INSERT = Statement(insert_missing(branches, "id"))
_PARENT = Statement(
    select(lineage.SIZE, _B.session_id, _B.user, _B.system_msg_id, _B.node_metadata, _B.progression_id, _B.forked_at_ord).where(
        _B.id == _id
    )
)
_LIST = Statement(
    select(*records.BRANCHES.values.columns)
    .where(_B.session_id == param("session"), _B.former_of.is_(None))
    .order_by(_B.created_at, _B.id)
)
_SET_METADATA = Statement(update(branches).where(_B.id == _id).values(node_metadata=param("value")))
_SET_SYSTEM = Statement(update(branches).where(_B.id == _id).values(system_msg_id=param("message")))
_MESSAGE = Statement(select(messages.c.id).where(messages.c.id == _id))


class Branches(Repository[F]):
    """`tx.conversations.branches`."""

    @writes
    def create(
        self,
        session_id: str,
        *,
        id: str | None = None,
        name: str | None = None,
        user: str | None = None,
        node_metadata: Json = None,
        status: str | None = None,
        created_at: datetime | None = None,
        started_at: datetime | None = None,
        progression_id: str | None = None,
        system_msg_id: str | None = None,
    ) -> Branch:
        """Create a branch; one of that id in the session is returned unchanged. `node_metadata` holds the agent's configuration.

        `progression_id` None makes a new progression. Conflict: an unknown progression or system message, or the id is taken in
        another session. A branch with status running gets `started_at` now unless given. Raises NotFound for the session.
        """
        work = self._work
        metadata = checked_metadata(work, "node_metadata", node_metadata)
        parent, inherited = _pointers(work, metadata)
        branch_id = work.runtime.ids.mint_uuid() if id is None else work.label("id", id)
        word = None if status is None else check_choice("status", status, Status)
        fields: dict[str, Any] = {
            "id": branch_id,
            "created_at": work.now() if created_at is None else as_utc("created_at", created_at),
            **lifecycle.beginning(work, word, started_at),
            "name": None if name is None else work.body("name", name),
            "user": optional_label("user", user),
            "node_metadata": None if metadata is None else work.json("node_metadata", metadata),
            "system_msg_id": optional_label("system_msg_id", system_msg_id),
            "parent_branch_id": parent,
            "forked_at_ord": inherited,
        }
        wanted = optional_label("progression_id", progression_id)
        system = fields["system_msg_id"]
        with work.batch() as batch:
            session = records.SESSIONS.ask(batch, work.label("id", session_id))
            existing = records.BRANCHES.ask(batch, branch_id)
            message = _ask_message(batch, system)
            line = None if parent is None else lineage.Ancestry(batch, parent, branch_id)
            pool = records.ask_progression(batch, wanted)
            creation = lifecycle.Creation(batch, "branch", branch_id, word)
        records.SESSIONS.found(session, session_id)
        if existing.result is not None:
            return _of_session(records.BRANCHES.found(existing, branch_id), session_id)
        _check_message(message, system)
        if line is not None:
            line.check()
        records.check_progression(pool, wanted)
        with work.batch() as batch:
            fields["progression_id"] = records.owned_progression(work, batch, wanted)
            inserted = batch.run(
                _INSERT,
                **{**dict.fromkeys(records.BRANCHES.values.fields), **fields, "session_id": session_id, "former_of": None},
            )
            creation.log(work, batch)
            stored = records.BRANCHES.ask(batch, branch_id)
        if not inserted.result:  # another writer was faster
            creation.undo(work)
            if wanted is None:
                membership.remove_progression(work, fields["progression_id"])
        return _of_session(records.BRANCHES.found(stored, branch_id), session_id)

    @writes
    def delete(self, id: str) -> bool:
        """Delete a branch; False if there is none. Branches that were forked from it keep their history."""
        branch_id = self._work.label("id", id)
        doomed = records.OF_BRANCH.locked(
            self._work, lambda batch: removal.Doomed(batch, records.OF_BRANCH, row_id=branch_id), row_id=branch_id
        )
        if not doomed.is_there:
            return False
        removal.remove_branches(self._work, doomed)
        return True

    @reads
    def get(self, id: str) -> Branch:
        """The branch. Raises NotFound."""
        return records.BRANCHES.get(self._work, id)

    @reads
    def list(self, session_id: str) -> List[Branch]:
        """The session's branches, oldest first."""
        rows = self._work.rows(_LIST, session=self._work.label("session_id", session_id))
        return [records.BRANCHES.values(row) for row in rows]

    @writes
    def fork(self, id: str, *, at: int | None = None, name: str | None = None, new_id: str | None = None) -> Branch:
        """Fork: a branch of the same session that begins with the first `at` items of this one's history (None: all of them).

        No message is copied, and later messages of this branch do not appear in the fork. Raises InvalidValue for an `at` beyond
        its end. A fork `new_id` of this branch is returned unchanged. Raises Conflict if another branch has it.
        """
        work = self._work
        fork_id = work.runtime.ids.mint_uuid() if new_id is None else work.label("new_id", new_id)
        title = None if name is None else work.body("name", name)
        parent = work.label("id", id)
        with work.batch() as batch:
            records.hold_with(batch, parent)
            found = batch.row(_PARENT, row_id=parent)
            existing = None if new_id is None else records.BRANCHES.ask(batch, fork_id)
        size, session_id, user, system_msg_id, node_metadata, *counted = found.must_exist("branch", id)
        need(*counted)
        if existing is not None and existing.result is not None:
            return _fork_of(records.BRANCHES.found(existing, fork_id), parent, at)
        inherited = size if at is None else check_count("at", at)
        if inherited > size:
            raise InvalidValue("at", f"the branch {id!r} has a history of {size} items.")
        metadata = dict(node_metadata or {}) | {"parent_branch_id": parent, "forked_at_ord": inherited}
        metadata.pop(CLONE_FROM, None)  # a fork inherits; it is no copy
        fields = {
            **dict.fromkeys(records.BRANCHES.values.fields),
            "id": fork_id,
            "session_id": session_id,
            "created_at": work.now(),
            "name": title,
            "user": user,
            "node_metadata": work.json("node_metadata", metadata),
            "system_msg_id": system_msg_id,
            "parent_branch_id": parent,
            "forked_at_ord": inherited,
        }
        with work.batch() as batch:
            fields["progression_id"] = records.owned_progression(work, batch, None)
            inserted = batch.run(_INSERT, **fields, former_of=None)
        if not inserted.result:  # another writer was faster
            membership.remove_progression(work, fields["progression_id"])
            return _fork_of(records.BRANCHES.get(work, fork_id), parent, at)
        return construct(Branch, {**fields, "node_metadata": metadata})

    @reads
    def history(self, id: str, *, limit: int | None = None, before: int | None = None) -> List[ConvMessage]:
        """The branch's messages, oldest first: inherited ones, then its own. Raises NotFound, or Conflict for a circle.

        `limit`: only the newest `limit` items. `before`: only positions below this one; positions count from 0.
        """
        work = self._work
        branch_id = work.label("id", id)
        end = UNBOUNDED if before is None else check_count("before", before)
        first = 0
        if limit is not None:
            check_limit(limit, maximum=100_000)
            end = min(end, lineage.length(work, branch_id))
            first = max(0, end - limit)
        return lineage.history(work, branch_id, first=first, end=end)

    @writes
    def update(self, /, id: str, **columns: Any) -> Branch:
        """Change name, user, started_at or ended_at. Unknown columns are InvalidValue."""
        work = self._work
        changes = checked_changes(work, "branch", _CHANGEABLE, columns)
        branch = records.BRANCHES.get(work, id, lock=True)
        with work.batch(last=True) as batch:
            if changes:
                records.BRANCHES.change(batch, branch.id, changes)
            stored = records.BRANCHES.ask(batch, id)
        return records.BRANCHES.found(stored, id)

    @writes
    def update_metadata(self, id: str, patch: Mapping[str, Json]) -> Branch:
        """Merge a patch (RFC 7396) into node_metadata: objects merge, null removes. Fork pointers do not change."""
        work = self._work
        given = checked_metadata(work, "patch", patch) or {}
        for key in lineage.POINTERS:
            if key in given:
                raise InvalidValue(f"patch.{key}", "where a branch was forked never changes.")
        branch = records.BRANCHES.get(work, id, lock=True)
        merged = work.json("node_metadata", merge_patch(branch.node_metadata or {}, given))
        with work.batch(last=True) as batch:
            batch.run(_SET_METADATA, row_id=id, value=merged)
            stored = records.BRANCHES.ask(batch, id)
        return records.BRANCHES.found(stored, id)

    @writes
    def set_system_message(self, id: str, message_id: str | None) -> Branch:
        """Set the branch's system message, None for none. Raises Conflict for an unknown message."""
        work = self._work
        wanted = optional_label("message_id", message_id)
        with work.batch() as batch:
            locked = records.BRANCHES.ask(batch, work.label("id", id), lock=True)
            message = _ask_message(batch, wanted)
        records.BRANCHES.found(locked, id)
        _check_message(message, wanted)
        with work.batch(last=True) as batch:
            batch.run(_SET_SYSTEM, row_id=id, message=wanted)
            stored = records.BRANCHES.ask(batch, id)
        return records.BRANCHES.found(stored, id)

    @writes
    def set_status(self, id: str, status: str, **change: Unpack[StatusChange]) -> bool:
        """Change the status, as `sessions.set_status` does for a session; reasons are stored only in the history."""
        branch_id = self._work.label("id", id)
        with self._work.batch() as batch:
            locked = records.BRANCHES.ask(batch, branch_id, lock=True)
            known = lifecycle.StatusFacts(self._work, batch, "branch", branch_id)
        return lifecycle.set_status(self._work, records.BRANCHES.found(locked, id), status, known=known, **change)

    @reads
    def transitions(self, id: str) -> List[StatusTransition]:
        """Every status change of the branch, oldest first; kept after the branch is deleted. Raises NotFound."""
        found = lifecycle.history_of(self._work, "branch", self._work.label("id", id))
        if not found:
            records.BRANCHES.get(self._work, id)
        return found

    @writes
    def finalize(self, id: str, status: str, *, ended_at: datetime | None = None) -> bool:
        """End a branch that is running or has no status. False if `status` is not a final one, or the branch has ended."""
        work = self._work
        wanted = check_choice("status", status, Status)
        ended = None if ended_at is None else as_utc("ended_at", ended_at)
        branch_id = work.label("id", id)
        with work.batch() as batch:
            locked = records.BRANCHES.ask(batch, branch_id, lock=True)
            known = lifecycle.StatusFacts(work, batch, "branch", branch_id)
        if locked.result is None:
            return False
        return lifecycle.finalize_branch(work, records.BRANCHES.found(locked, id), wanted, ended, known)


def _of_session(branch: Branch, session_id: str) -> Branch:
    if branch.session_id != session_id:
        raise Conflict(f"The branch {branch.id!r} is one of the session {branch.session_id!r}.")
    return branch


def _fork_of(branch: Branch, parent: str, at: int | None) -> Branch:
    if branch.parent_branch_id != parent or (at is not None and branch.forked_at_ord != at):
        raise Conflict(f"The branch {branch.id!r} is there, and is no such fork of {parent!r}.")
    return branch


def _ask_message(batch: Batch, message_id: str | None) -> Pending[Row | None] | None:
    return None if message_id is None else batch.row(_MESSAGE, row_id=message_id)


def _check_message(found: Pending[Row | None] | None, message_id: str | None) -> None:
    if found is not None and found.result is None:
        raise Conflict(f"There is no message {message_id!r} to point at.", constraint="fk_branches_system_msg_id")


def _pointers(work: UnitOfWork, metadata: Mapping[str, Any] | None) -> tuple[str | None, int | None]:
    parent, inherited = ((metadata or {}).get(key) for key in lineage.POINTERS)
    if parent is None and inherited is None:
        return None, None
    return work.label("node_metadata.parent_branch_id", parent), check_count("node_metadata.forked_at_ord", inherited)
