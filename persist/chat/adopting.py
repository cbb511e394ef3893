"""Adopting chat databases of other implementations of sessions, messages and parts: repairs of their rows."""

from sqlalchemy import ColumnElement, Table, Text, bindparam, column, func, literal, or_, select, type_coerce, update
from sqlalchemy.sql.selectable import ScalarSelect

from persist.chat.models import messages, parts, sessions
from persist.db.operations.adopting import Rules, Takeover

_of_message = messages.c.id == parts.c.message_id


def _from_message(name: str) -> ScalarSelect[object]:
    return select(messages.c[name]).where(_of_message).scalar_subquery()


def _number_parts(takeover: Takeover) -> None:
    """Give parts of a message that share an index, or have none, the next free ones, in the order of (index, id)."""
    place = parts.c.index
    shared = select(parts.c.message_id).group_by(parts.c.message_id, place).having(or_(func.count() > 1, place.is_(None)))
    changes = []
    message, following = None, 0
    query = select(parts.c.id, parts.c.message_id, place).where(parts.c.message_id.in_(shared))
    for id, message_id, index in takeover.rows(query.order_by(parts.c.message_id, place.is_(None), place, parts.c.id)):
        if message_id != message:
            message, following = message_id, index or 0
        if index is None or index < following:
            changes.append({"part": id, "place": following})
        following = max(following if index is None else index, following) + 1
    if changes:
        renumber = update(parts).where(parts.c.id == bindparam("part")).values({place: bindparam("place")})
        takeover.connection.execute(renumber, changes)
    takeover.settle(parts, "parts that shared a place in their message got the next free ones", len(changes))


def _into_metadata(takeover: Takeover) -> None:
    """Copy titles and hiding times, which some implementations keep in columns, into the metadata."""
    for table, name in ((sessions, "title"), (messages, "hidden_at")):
        if takeover.brought(table, name):
            _copy_into_metadata(takeover, name, table)


def _copy_into_metadata(takeover: Takeover, name: str, table: Table) -> None:
    metadata = table.c.metadata_json
    path, text = literal(f"$.{name}"), type_coerce(metadata, Text())
    source: ColumnElement[object] = column(name)
    absent = func.json_extract(text, path).is_(None)
    statement = update(table).where(source.isnot(None), func.json_valid(text) == 1, absent)
    count = takeover.run(statement.values({metadata: type_coerce(func.json_set(text, path, source), Text())}))
    takeover.settle(table, f"the column {name} was copied into the metadata", count)


RULES = Rules(
    values={
        sessions.c.updated_at: sessions.c.created_at,
        messages.c.updated_at: messages.c.created_at,
        parts.c.created_at: _from_message("created_at"),
        parts.c.updated_at: _from_message("updated_at"),
    },
    settle=(_number_parts, _into_metadata),
)
