"""`tx.telemetry.tags`: what agents say they work on, one row for each tag with when it was first and last named."""

from datetime import datetime

from sqlalchemy import select

from persist.db.expressions.upsert import merge
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.own_scope import public_scope, resolve_scope
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_choice
from persist.db.values.escaping import utf8_size
from persist.db.values.frozen import construct
from persist.errors import PayloadTooLarge
from persist.telemetry.instants import second_or_now
from persist.telemetry.models import agent_tags
from persist.telemetry.schemas import AgentTag, TagKind

MAX_BYTES = 4096
"""The most bytes of a tag's value, in UTF-8."""

List = list
_T = agent_tags.c
_COLUMNS = (_T.kind, _T.value, _T.first_seen, _T.last_seen)
_RECORD = Statement(
    merge(agent_tags, "instance_id", "kind", "value", first_seen="earliest", last_seen="latest").returning(*_COLUMNS)
)
_ALL = select(*_COLUMNS).where(_T.instance_id == param("owner")).order_by(_T.kind, _T.value)
_LISTS = {False: Statement(_ALL), True: Statement(_ALL.where(_T.kind == param("of_kind")))}


class AgentTags(Repository[F]):
    """`tx.telemetry.tags`. `instance_id` None: the instance that owns the file."""

    @writes
    def record(self, kind: str, value: str, *, at: datetime | None = None, instance_id: str | None = None) -> AgentTag:
        """Record that the agent named a `repo`, `issue`, `pr` or `link`, at an instant or now. The value has at most 4 KiB.

        A tag named again is the same row: `first_seen` is the earliest instant given and `last_seen` the latest.
        """
        work = self._work
        owner = resolve_scope(work, "instance_id", instance_id)
        tag_kind = check_choice("kind", kind, TagKind)
        text = work.label("value", value)
        if (size := utf8_size(text)) > MAX_BYTES:
            raise PayloadTooLarge("value", size, MAX_BYTES)
        seen = second_or_now(work, "at", at)
        with work.batch(last=True) as batch:
            recorded = batch.returned(_RECORD, instance_id=owner, kind=tag_kind, value=text, first_seen=seen, last_seen=seen)
        assert recorded.result is not None
        return _tag(work, owner, recorded.result)

    @reads
    def list(self, *, kind: str | None = None, instance_id: str | None = None) -> List[AgentTag]:
        """All tags of the instance, or those of a kind, ordered by kind and value."""
        work = self._work
        owner = resolve_scope(work, "instance_id", instance_id)
        values = {} if kind is None else {"of_kind": check_choice("kind", kind, TagKind)}
        return [_tag(work, owner, row) for row in work.rows(_LISTS[kind is not None], owner=owner, **values)]


def _tag(work: UnitOfWork, owner: str, row: Row) -> AgentTag:
    kind, value, first_seen, last_seen = row
    public_owner = public_scope(work, "instance_id", owner)
    fields = {"instance_id": public_owner, "kind": kind, "value": value, "first_seen": first_seen, "last_seen": last_seen}
    return construct(AgentTag, fields)
