"""Progressions: ordered lists of message ids, shared by sessions and branches."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import select

from persist.conversations import membership, removal
from persist.conversations.intake import node_metadata as checked_metadata
from persist.conversations.models import members, progressions
from persist.conversations.schemas import Progression
from persist.db.checks import check_count
from persist.db.clock import aware
from persist.db.hot import Hot, param
from persist.db.json import Json
from persist.db.repository import Repository, reads, writes
from persist.db.values import build
from persist.db.work import Work
from persist.errors import InvalidValue, NotFound

_M = members.c
_FIELDS = tuple(Progression.model_fields)
_DESCRIBE = Hot(select(*[progressions.c[name] for name in _FIELDS]).where(progressions.c.id == param("row_id")))
_CONTAINING = Hot(select(_M.progression_id).where(_M.message_id == param("message")).distinct().order_by(_M.progression_id))


class Progressions(Repository):
    """`tx.conversations.progressions`. Ids need not name messages that are there."""

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
        """A new progression, duplicates in `ids` kept; one that exists is left as it is. Its id."""
        work = self._work
        given = id_list(work, ids)
        metadata = checked_metadata(work, "node_metadata", node_metadata)
        said = {
            "created_at": work.now() if created_at is None else aware("created_at", created_at),
            "name": None if name is None else work.body("name", name),
            "node_metadata": None if metadata is None else work.json("node_metadata", metadata),
        }
        row_id = work.runtime.ids.mint_uuid() if id is None else work.label("id", id)
        membership.add_progression(work, row_id, given, **said)
        return row_id

    @reads
    def get(self, id: str) -> list[str]:
        """The ids in order; an unknown progression has none."""
        return membership.member_ids(self._work, self._work.label("id", id))

    @reads
    def describe(self, id: str) -> Progression:
        """What is known of it besides its ids; NotFound."""
        row = self._work.row(_DESCRIBE, row_id=self._work.label("id", id))
        if row is None:
            raise NotFound("progression", id)
        return build(Progression, dict(zip(_FIELDS, row, strict=True)))

    @writes
    def append(self, id: str, message_id: str) -> bool:
        """Add an id at the end. False: no such progression, or already there, where it stays in its place."""
        return membership.append(self._work, self._work.label("id", id), self._work.label("message_id", message_id))

    @writes
    def replace(self, id: str, ids: Sequence[str]) -> None:
        """Make these its whole content; NotFound. Forks of branches that show it keep what they inherit."""
        work = self._work
        progression_id, given = work.label("id", id), id_list(work, ids)
        removal.lock_owners(work, progression_id)
        removal.spare_forks(work, progression_id, lambda: membership.unchanged(work, progression_id, given))
        membership.replace(work, progression_id, given)

    @writes
    def insert(self, id: str, index: int, message_id: str) -> bool:
        """Add an id at a place from 0 to the length; what is there and behind moves on. Forks keep what they inherit.

        False: no such progression, or already there, where it stays in its place. InvalidValue for an index beyond the end.
        """
        work = self._work
        progression_id, message = work.label("id", id), work.label("message_id", message_id)
        place = check_count("index", index)
        removal.lock_owners(work, progression_id)
        if not membership.lock_to_insert(work, progression_id, place, message):
            return False
        removal.spare_forks(work, progression_id, lambda: place)
        membership.insert_at(work, progression_id, place, message)
        return True

    @writes
    def remove(self, id: str, message_id: str) -> bool:
        """Take an id out, wherever it stands; what is behind moves up. Forks keep what they inherit.

        False: no such progression, or not in it.
        """
        work = self._work
        progression_id, message = work.label("id", id), work.label("message_id", message_id)
        removal.lock_owners(work, progression_id)
        first = membership.lock_to_remove(work, progression_id, message)
        if first is None:
            return False
        removal.spare_forks(work, progression_id, lambda: first)
        membership.remove_from(work, progression_id, first, message)
        return True

    @reads
    def containing(self, message_id: str) -> list[str]:
        """The progressions that hold the message, sorted by id."""
        rows = self._work.rows(_CONTAINING, message=self._work.label("message_id", message_id))
        return [progression_id for (progression_id,) in rows]


def id_list(work: Work, ids: object, path: str = "ids") -> list[str]:
    """A checked list of ids."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise InvalidValue(path, "expected a list of ids.")
    return [work.label(f"{path}[{index}]", id) for index, id in enumerate(ids)]
