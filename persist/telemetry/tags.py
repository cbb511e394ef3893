"""What agents say they work on: one row for each thing, with when it was said first and last."""

from datetime import datetime

from sqlalchemy import select

from persist.db.checks import check_word
from persist.db.escape import utf8_size
from persist.db.hot import Hot, Row, param
from persist.db.insert import merge
from persist.db.own import own_scope, shown_scope
from persist.db.repository import Repository, reads, writes
from persist.db.values import build
from persist.db.work import Work
from persist.errors import PayloadTooLarge
from persist.telemetry.instants import second_or_now
from persist.telemetry.models import agent_tags
from persist.telemetry.schemas import AgentTag, TagKind

MOST_BYTES = 4096
"""Of a tag's value, in UTF-8."""

List = list
_T = agent_tags.c
_COLUMNS = (_T.kind, _T.value, _T.first_seen, _T.last_seen)
_RECORD = Hot(merge(agent_tags, "instance_id", "kind", "value", first_seen="earliest", last_seen="latest").returning(*_COLUMNS))
_ALL = select(*_COLUMNS).where(_T.instance_id == param("owner")).order_by(_T.kind, _T.value)
_LISTS = {False: Hot(_ALL), True: Hot(_ALL.where(_T.kind == param("of_kind")))}


class AgentTags(Repository):
    """`tx.telemetry.tags`. `instance_id` None: the file's own."""

    @writes
    def record(self, kind: str, value: str, *, at: datetime | None = None, instance_id: str | None = None) -> AgentTag:
        """The agent named a `repo`, `issue`, `pr` or `link`, at an instant or now; the value has at most 4 KiB.

        Said again it is the same tag: the instants move apart, whatever the order in which they come.
        """
        work = self._work
        owner = own_scope(work, "instance_id", instance_id)
        said = check_word("kind", kind, TagKind)
        text = work.label("value", value)
        if (size := utf8_size(text)) > MOST_BYTES:
            raise PayloadTooLarge("value", size, MOST_BYTES)
        seen = second_or_now(work, "at", at)
        row = work.returned(_RECORD, instance_id=owner, kind=said, value=text, first_seen=seen, last_seen=seen)
        assert row is not None
        return _tag(work, owner, row)

    @reads
    def list(self, *, kind: str | None = None, instance_id: str | None = None) -> List[AgentTag]:
        """All of them, or those of a kind, by kind and value."""
        work = self._work
        owner = own_scope(work, "instance_id", instance_id)
        values = {} if kind is None else {"of_kind": check_word("kind", kind, TagKind)}
        return [_tag(work, owner, row) for row in work.rows(_LISTS[kind is not None], owner=owner, **values)]


def _tag(work: Work, owner: str, row: Row) -> AgentTag:
    kind, value, first_seen, last_seen = row
    shown = shown_scope(work, "instance_id", owner)
    fields = {"instance_id": shown, "kind": kind, "value": value, "first_seen": first_seen, "last_seen": last_seen}
    return build(AgentTag, fields)
