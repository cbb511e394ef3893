"""Positions of the event log on Postgres: giving them, and telling up to which none is under way.

A transaction takes its positions from a sequence, and may commit long after another one that took later positions. Before its
first position, a transaction therefore takes a shared advisory lock, which ends with it. The lock's key is the sequence and the
number that the sequence had then: every position of that transaction is greater. If there is no lock with a smaller number, the
positions so far are those of transactions that have ended. A lock is given up after its transaction has become visible.
Transactions without positions, in any database of the server, cause no delay. On SQLite these elements are NULL.
"""

from typing import Any

from sqlalchemy import BigInteger, Boolean, Sequence, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.visitors import InternalTraversal
from sqlalchemy.types import TypeEngine

from persist.db.sqlalchemy_private import made_of

_WRAP = 2**32
_LOCKED = "persist.locks_positions"
"""The setting of a transaction that has locked its positions."""


@made_of(sequence=InternalTraversal.dp_named_ddl_element)
class _Positions(ColumnElement[Any]):
    """An element about the positions of one sequence."""

    inherit_cache = True
    type: TypeEngine[Any] = BigInteger()

    def __init__(self, sequence: Sequence) -> None:
        self.sequence = sequence


class next_position(_Positions):  # noqa: N801  # reads as the SQL it stands for
    """The next position."""

    inherit_cache = True


class last_position(_Positions):  # noqa: N801  # reads as the SQL it stands for
    """The last position that was given, to a transaction that may still run or was rolled back; 0 for none."""

    inherit_cache = True


class position_lock(_Positions):  # noqa: N801  # reads as the SQL it stands for
    """Takes the lock that a transaction needs before it takes positions. It waits for nobody."""

    inherit_cache = True

    type = Text()


class switch_hold(_Positions):  # noqa: N801  # reads as the SQL it stands for
    """Lets nobody switch the log off before the transaction has ended. It waits for one who is about to."""

    inherit_cache = True

    type = Text()


class switch_lock(_Positions):  # noqa: N801  # reads as the SQL it stands for
    """Waits for transactions that hold the switch, and holds it exclusively until this transaction ends."""

    inherit_cache = True

    type = Text()


class settled_position(_Positions):  # noqa: N801  # reads as the SQL it stands for
    """Whether no other running transaction has a position up to this one: true for statements of later snapshots."""

    inherit_cache = True


@made_of(sequence=InternalTraversal.dp_named_ddl_element, position=InternalTraversal.dp_clauseelement)
class raised_sequence(_Positions):  # noqa: N801  # reads as the SQL it stands for
    """Uses the sequence up to a position, unless it is there or beyond. Setting it would take a privilege that writers lack."""

    def __init__(self, sequence: Sequence, position: ColumnElement[int]) -> None:
        super().__init__(sequence)
        self.position = position


@made_of()
class is_snapshot(ColumnElement[Any]):  # noqa: N801  # reads as the SQL it stands for
    """Whether the transaction goes by one snapshot, so that no later statement sees what others have committed since."""

    type = Boolean()


@made_of()
class commits_asynchronously(ColumnElement[Any]):  # noqa: N801  # reads as the SQL it stands for
    """Lets the transaction return from COMMIT before it is on disk: for what may be lost with the server."""

    type = Text()


@compiles(_Positions, "sqlite")
@compiles(commits_asynchronously, "sqlite")
@compiles(is_snapshot, "sqlite")
def _render_lite(element: ColumnElement[Any], compiler: SQLCompiler, **kw: Any) -> str:
    return "NULL"


@compiles(commits_asynchronously, "postgresql")
def _render_asynchronous(element: commits_asynchronously, compiler: SQLCompiler, **kw: Any) -> str:
    return "set_config('synchronous_commit', 'off', true)"


@compiles(next_position, "postgresql")
def _render_next(element: next_position, compiler: SQLCompiler, **kw: Any) -> str:
    return f"nextval({_named(element, compiler)})"


@compiles(last_position, "postgresql")
def _render_last(element: last_position, compiler: SQLCompiler, **kw: Any) -> str:
    return f"coalesce(pg_sequence_last_value({_named(element, compiler)}), 0)"


@compiles(position_lock, "postgresql")
def _render_lock(element: position_lock, compiler: SQLCompiler, **kw: Any) -> str:
    # Once in a transaction: the first lock has the smallest number. What is noted is undone with a savepoint, as the lock is.
    first = f"coalesce(current_setting('{_LOCKED}', true), '') = ''"
    return f"CASE WHEN {first} THEN concat({lock_call(_named(element, compiler))}, set_config('{_LOCKED}', 'on', true)) END"


@compiles(switch_hold, "postgresql")
def _render_hold(element: switch_hold, compiler: SQLCompiler, **kw: Any) -> str:
    return f"CAST(pg_advisory_xact_lock_shared(CAST(CAST({_named(element, compiler)} AS oid) AS bigint)) AS TEXT)"


@compiles(switch_lock, "postgresql")
def _render_switch(element: switch_lock, compiler: SQLCompiler, **kw: Any) -> str:
    return f"CAST(pg_advisory_xact_lock(CAST(CAST({_named(element, compiler)} AS oid) AS bigint)) AS TEXT)"


@compiles(is_snapshot, "postgresql")
def _render_snapshot(element: is_snapshot, compiler: SQLCompiler, **kw: Any) -> str:
    return "current_setting('transaction_isolation') <> 'read committed'"


@compiles(settled_position, "postgresql")
def _render_settled(element: settled_position, compiler: SQLCompiler, **kw: Any) -> str:
    named = _named(element, compiler)
    # The inner query reads the sequence first: its result is an argument of the look at the locks.
    return (
        f"(SELECT least(l.last, (SELECT min(l.last - mod(mod(l.last, {_WRAP}) - CAST(k.objid AS bigint) + {_WRAP}, {_WRAP})) "
        "FROM pg_catalog.pg_locks k WHERE k.locktype = 'advisory' AND k.objsubid = 2 AND k.granted "
        f"AND k.classid = CAST({named} AS oid) AND k.pid IS DISTINCT FROM pg_backend_pid() "
        "AND k.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))) "
        f"FROM (SELECT coalesce(pg_sequence_last_value({named}), 0) AS last OFFSET 0) l)"
    )


@compiles(raised_sequence, "postgresql")
def _render_raised(element: raised_sequence, compiler: SQLCompiler, **kw: Any) -> str:
    named, position = _named(element, compiler), compiler.process(element.position, **kw)
    return f"(SELECT max(nextval({named})) FROM generate_series(coalesce(pg_sequence_last_value({named}), 0) + 1, {position}))"


def lock_call(sequence: str) -> str:
    """The SQL that takes the lock of a sequence, which is given as SQL for a regclass."""
    number = f"mod(coalesce(pg_sequence_last_value({sequence}), 0), {_WRAP})"
    return f"pg_advisory_xact_lock_shared({_signed(f'CAST(CAST({sequence} AS oid) AS bigint)')}, {_signed(number)})"


def _signed(number: str) -> str:
    """The int4 whose 32 bits are those of an unsigned number."""
    return f"CAST(mod({number} + {_WRAP // 2}, {_WRAP}) - {_WRAP // 2} AS int)"


def _named(element: _Positions, compiler: SQLCompiler) -> str:
    # as in nextval('schema.name'), in which SQLAlchemy puts the schema that a connection maps the token to
    return f"CAST('{compiler.preparer.format_sequence(element.sequence)}' AS regclass)"
