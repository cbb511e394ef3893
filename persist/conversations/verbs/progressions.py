"""Progressions: ordered lists of message ids, shared by sessions and branches."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select

from persist.conversations.models import members, progressions
from persist.conversations.schemas import Progression
from persist.conversations.schemas import node_metadata as checked_metadata
from persist.conversations.storage import progressions as membership
from persist.conversations.storage.deletion import Change
from persist.conversations.storage.progressions import member_ids
from persist.conversations.verbs.messages import id_list
from persist.db.statements.prepared import Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.values.arguments import check_count
from persist.db.values.clock import as_utc
from persist.db.values.json import Json
from persist.errors import InvalidValue, NotFound

_M = members.c
_PROGRESSION = Values(Progression, progressions)
_DESCRIBE = Statement(select(*_PROGRESSION.columns).where(progressions.c.id == param("row_id")))
_CONTAINING = Statement(select(_M.progression_id).where(_M.message_id == param("message")).distinct().order_by(_M.progression_id))


class Progressions(Repository[F]):
    """`tx.conversations.progressions`. Ids need not name messages that exist."""

    @writes
    def create(
        self,
        id: str | None = None,
        *,
        ids: Sequence[str] = (),
        created_at: datetime | None = None,
        name: str | None = None,
        node_metadata: Json = None,
    ) -> str:
        """Create a progression, duplicates in `ids` kept; one that exists is left unchanged. Returns its id."""
        work = self._work
        given = id_list(work, ids)
        metadata = checked_metadata(work, "node_metadata", node_metadata)
        said = {
            "created_at": work.now() if created_at is None else as_utc("created_at", created_at),
            "name": None if name is None else work.body("name", name),
            "node_metadata": None if metadata is None else work.json("node_metadata", metadata),
        }
        row_id = work.runtime.ids.mint_uuid() if id is None else work.label("id", id)
        if id is not None:
            work.refuse_former(progressions, "progression", row_id)
        membership.add_progression(work, row_id, given, last=True, **said)
        return row_id

    @reads
    def get(self, id: str) -> list[str]:
        """The ids in order; empty for an unknown progression."""
        return member_ids(self._work, self._work.label("id", id))

    @reads
    def describe(self, id: str) -> Progression:
        """The progression without its ids. Raises NotFound."""
        return _PROGRESSION.found(self._work.row(_DESCRIBE, row_id=self._work.label("id", id)), "progression", id)

    @writes
    def append(self, id: str, message_id: str) -> bool:
        """Append an id. False: no such progression, or the id is a member already and keeps its place."""
        return membership.append(self._work, self._work.label("id", id), self._work.label("message_id", message_id))

    @writes
    def replace(self, id: str, ids: Sequence[str]) -> None:
        """Replace all ids. Raises NotFound. Forks keep the items that they inherited from the progression."""
        work = self._work
        progression_id, given = work.label("id", id), id_list(work, ids)
        change = Change(work, progression_id, membership.ask_ids)
        if not change.places.is_there:
            raise NotFound("progression", id)
        same = membership.unchanged(change.found.result, given)
        change.spare_forks(same)
        with work.batch(last=True) as batch:
            change.places.replace(batch, same, given)

    @writes
    def insert(self, id: str, index: int, message_id: str) -> bool:
        """Insert an id at a place from 0 to the length; ids from there on move back. Forks keep what they inherit.

        False: no such progression, or the id is a member already and keeps its place. InvalidValue: an index past the end.
        """
        work = self._work
        progression_id, message = work.label("id", id), work.label("message_id", message_id)
        place = check_count("index", index)
        change = Change(
            work,
            progression_id,
            lambda batch, pool: (membership.ask_size(batch, pool, message), membership.ask_ids(batch, pool, place)),
        )
        found, following = change.found
        if not change.places.is_there:
            return False
        assert found.result is not None
        size, is_there = found.result
        if place > size:
            raise InvalidValue("index", f"the progression {id!r} has {size} items.")
        if is_there:
            return False
        change.spare_forks(place)
        with work.batch(last=True) as batch:
            change.places.rewrite(batch, place, [message, *(one for (one,) in following.result)], message)
        return True

    @writes
    def remove(self, id: str, message_id: str) -> bool:
        """Remove every occurrence of an id. Forks keep what they inherit. False: no such progression, or no such member."""
        work = self._work
        progression_id, message = work.label("id", id), work.label("message_id", message_id)
        change = Change(work, progression_id, lambda batch, pool: membership.ask_from(batch, pool, message))
        if not (found := change.found.result):
            return False
        first = found[0][0]
        change.spare_forks(first)
        with work.batch(last=True) as batch:
            change.places.rewrite(batch, first, [one for _, one in found if one != message])
        return True

    @reads
    def containing(self, message_id: str) -> list[str]:
        """The ids of the progressions that contain the message, sorted."""
        rows = self._work.rows(_CONTAINING, message=self._work.label("message_id", message_id))
        return [progression_id for (progression_id,) in rows]
