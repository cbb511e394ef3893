"""Foreign keys on the connections of hosts, where SQLite leaves them unchecked unless each connection says otherwise.

A host's pragma stays as it is. Where it is off, temporary triggers of the connection do for the tables of persist what the pragma
would: delete what depends on a deleted row, refuse to delete what another row needs, and refuse rows without their parent. They
are no part of the file. They cannot wait for the end of a statement: nobody checks whether a row of the same table refers to a
deleted one.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any
from weakref import WeakSet

from sqlalchemy import Engine, ForeignKeyConstraint, Pool, Table, event

log = logging.getLogger("persist")

REFUSED = "FOREIGN KEY constraint failed"
"""What SQLite says itself where a foreign key is violated."""
_PREFIX = "persist_references"
_LAST = f"{_PREFIX}_kept"
_ENFORCED = "persist_references_enforced"
_REFUSE = f"SELECT RAISE(ABORT, '{REFUSED}') WHERE"
_WARNED: WeakSet[Pool] = WeakSet()
_UNCHECKED: set[int] = set()
"""The ids of those connections whose references are not kept now."""


class HostReferences:
    """Keeps the foreign keys of tables on the connections of hosts. `tables`: these tables, parents first."""

    def __init__(self) -> None:
        self.tables: Callable[[], Sequence[Table]] = list

    def keep(self, connection: Any, info: dict[Any, Any], driver: Any, pool: Pool | None = None) -> None:
        """See that foreign keys are kept on a connection, of whatever driver, before something is written.

        `info`: what SQLAlchemy keeps for the connection as long as it is open. A rollback may take the triggers back: so a
        connection whose pragma is off is asked for them each time, any other one once for its pragma.
        """
        if _ENFORCED in info or id(driver) in _UNCHECKED or not (tables := tuple(self.tables())):
            return
        cursor = connection.cursor()
        try:
            cursor.execute(
                f"SELECT foreign_keys, (SELECT 1 FROM sqlite_temp_master WHERE name = '{_LAST}') FROM pragma_foreign_keys"
            )
            on, kept = cursor.fetchone()
            if on:
                info[_ENFORCED] = True
            elif not kept:
                if pool is not None:
                    warn(pool)
                for trigger in _triggers(tables).values():
                    cursor.execute(trigger)
        finally:
            cursor.close()


def leave_unchecked(driver: Any) -> Callable[[], None]:
    """Keep no references on a connection until the returned function is called; both outside of a transaction."""
    (on,) = driver.execute("PRAGMA foreign_keys").fetchone()
    if on:
        driver.execute("PRAGMA foreign_keys=OFF")
        return lambda: driver.execute("PRAGMA foreign_keys=ON")
    let_go(driver)
    _UNCHECKED.add(id(driver))
    return lambda: _UNCHECKED.discard(id(driver))


def let_go(driver: Any) -> None:
    """Drop the triggers of a connection; `keep` makes them again."""
    named = f"SELECT name FROM sqlite_temp_master WHERE type = 'trigger' AND name LIKE '{_PREFIX}%'"
    for (name,) in driver.execute(named).fetchall():
        driver.execute(f"DROP TRIGGER temp.{name}")


def warn(pool: Pool) -> None:
    """Warn, once for each engine, that its foreign keys are off."""
    if pool not in _WARNED:
        _WARNED.add(pool)
        log.warning(
            "foreign_keys is OFF on this engine: persist keeps the references of its own tables by triggers of each connection;"
            " call persist.prepare_engine(engine) before the engine connects, so that SQLite keeps all"
        )


def prepare(engine: Engine) -> None:
    """Switch foreign keys on for every connection that the engine opens from now on."""
    if not event.contains(engine, "connect", _switch_on):
        event.listen(engine, "connect", _switch_on)


def _switch_on(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


@lru_cache(maxsize=1)
def _triggers(tables: tuple[Table, ...]) -> dict[str, str]:
    """The statements that make the triggers, by the name of each."""
    made: dict[str, str] = {}

    def trigger(name: str, head: str, statements: list[str]) -> None:
        if statements:
            body = " ".join(f"{statement};" for statement in statements)
            made[name] = f"CREATE TEMP TRIGGER IF NOT EXISTS {name} {head} BEGIN {body} END"

    for table in tables:
        keys = _keys(table)
        columns = ", ".join(dict.fromkeys(name for key in keys for name in key.column_keys))
        missing = [f"{_REFUSE} {_lacks_parent(key)}" for key in keys]
        trigger(f"{_PREFIX}_of_{table.name}", f"AFTER INSERT ON main.{table.name}", missing)
        trigger(f"{_PREFIX}_in_{table.name}", f"AFTER UPDATE OF {columns} ON main.{table.name}", missing)
        trigger(f"{_PREFIX}_to_{table.name}", f"AFTER DELETE ON main.{table.name}", [*_deleted(table, tables)])
    name = [*made][-1]
    made[_LAST] = made.pop(name).replace(name, _LAST, 1)  # whether it is there says whether all are
    return made


def _deleted(parent: Table, tables: Sequence[Table]) -> Iterator[str]:
    """What happens to rows that refer to a deleted row, those first that others do not refer to."""
    keys = [key for table in reversed(tables) for key in _keys(table) if key.referred_table is parent is not table]
    for key in keys:
        if key.ondelete == "CASCADE":
            yield f"DELETE FROM {key.table.name} WHERE {_refers(key)}"
        elif key.ondelete == "SET NULL":
            emptied = ", ".join(f"{name} = NULL" for name in key.column_keys)
            yield f"UPDATE {key.table.name} SET {emptied} WHERE {_refers(key)}"
    for key in keys:
        if key.ondelete not in ("CASCADE", "SET NULL"):
            yield f"{_REFUSE} EXISTS (SELECT 1 FROM {key.table.name} WHERE {_refers(key)})"


def _keys(table: Table) -> list[ForeignKeyConstraint]:
    """The foreign keys that the table has in a file."""
    return [key for key in table.foreign_key_constraints if key.info.get("dialect", "sqlite") == "sqlite"]


def _refers(key: ForeignKeyConstraint) -> str:
    return " AND ".join(f"{element.parent.name} = OLD.{element.column.name}" for element in key.elements)


def _lacks_parent(key: ForeignKeyConstraint) -> str:
    given = " AND ".join(f"NEW.{name} IS NOT NULL" for name in key.column_keys)
    same = " AND ".join(f"is_parent.{element.column.name} = NEW.{element.parent.name}" for element in key.elements)
    return f"{given} AND NOT EXISTS (SELECT 1 FROM {key.referred_table.name} AS is_parent WHERE {same})"
