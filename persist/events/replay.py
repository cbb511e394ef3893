"""Replaying events: the rows of a database from its event log."""

from collections.abc import Mapping
from itertools import count
from typing import Any

from sqlalchemy import Table, and_, delete, insert, update
from sqlalchemy.sql.elements import ColumnElement

from persist.db.changes.event_streams import key_of
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import InvalidValue
from persist.events.schemas import SNAPSHOT, SNAPSHOT_CONTINUED, VERSION, Event
from persist.events.writing import plain_rows


class Replay:
    """Applies events to the tables of one transaction. `owners`: the value for each scope column whose logged value is empty."""

    def __init__(self, work: UnitOfWork, tables: Mapping[str, Table], owners: Mapping[str, str]) -> None:
        self._work, self._tables, self._owners = work, tables, owners
        self._pieces = count(1)
        self._tails: dict[str, tuple[Table, str, str]] = {}
        for table in tables.values():
            if "deltas_of" in table.info:
                part, column = table.info["deltas_of"]
                (link,) = table.c[part].foreign_keys
                self._tails[link.column.table.name] = (table, part, column)

    def apply(self, event: Event) -> None:
        """Apply one event. Events without changes, as a caller's own, do nothing. InvalidValue: unknown version or table."""
        is_snapshot = event.type in (SNAPSHOT, SNAPSHOT_CONTINUED)
        data = event.data
        if not isinstance(data, dict) or "changes" not in data:
            return
        if data.get("v") != VERSION:
            raise InvalidValue(f"event {event.position}", f"its data is of version {data.get('v')!r}, and {VERSION} is known.")
        for change in data["changes"]:
            table = self._tables.get(change["table"])
            if table is None:
                raise InvalidValue(f"event {event.position}", f"there is no table {change['table']!r}.")
            if change["op"] == "put":
                self._put(table, change["row"])
                if is_snapshot:  # which has the pieces, too, that events before it may have written
                    self._forget_pieces(table, change["row"])
            elif change["op"] == "set":
                self._set(table, change["key"], change["row"])
            else:
                self._work.change(delete(table).where(self._matches(table, self._values(table, change["key"]))))

    def _put(self, table: Table, logged: Mapping[str, Any]) -> None:
        row = self._values(table, logged)
        if "deltas_of" in table.info:
            row[self._sequence_column(table)] = next(self._pieces)
        key = {name: row[name] for name in key_of(table)}
        other_columns = {name: value for name, value in row.items() if name not in key}
        if not other_columns or not self._work.change(update(table).where(self._matches(table, key)).values(other_columns)):
            if not other_columns:
                self._work.change(delete(table).where(self._matches(table, key)))
            self._work.change(insert(table).values(row))

    @staticmethod
    def _sequence_column(table: Table) -> str:
        """The column that orders deltas. Folds, which are not logged, restart its numbers, so a replay counts events instead."""
        (name,) = [name for name in key_of(table) if name != table.info["deltas_of"][0]]
        return name

    def _set(self, table: Table, key: Mapping[str, Any], logged: Mapping[str, Any]) -> None:
        row = self._values(table, logged)
        if row:
            self._work.change(update(table).where(self._matches(table, self._values(table, key))).values(row))
        tail = self._tails.get(table.name)
        if tail is not None and tail[2] in row:
            self._forget_pieces(table, key)

    def _forget_pieces(self, table: Table, key: Mapping[str, Any]) -> None:
        if table.name in self._tails:
            rows, part, _ = self._tails[table.name]
            (link,) = rows.c[part].foreign_keys
            self._work.change(delete(rows).where(rows.c[part] == key[link.column.name]))

    def _values(self, table: Table, logged: Mapping[str, Any]) -> dict[str, Any]:
        row = plain_rows(table).values(logged)
        for scope, owner in self._owners.items():
            if row.get(scope) == "":
                row[scope] = owner
        return row

    @staticmethod
    def _matches(table: Table, key: Mapping[str, Any]) -> ColumnElement[bool]:
        return and_(*(table.c[name].is_(None) if value is None else table.c[name] == value for name, value in key.items()))
