"""Positions of the event log on Postgres: giving them, and telling up to which none is under way.

A transaction takes its positions from a sequence, and may commit long after another one that took later positions. Before its
first position, a transaction therefore takes a shared advisory lock, which ends with it. The lock's key is the sequence and the
number that the sequence had then: every position of that transaction is greater. If there is no lock with a smaller number, the
positions so far are those of transactions that have ended. A lock is given up after its transaction has become visible.
Transactions without positions, in any database of the server, cause no delay. On SQLite these elements are NULL.
"""

from typing import Any, ClassVar

from sqlalchemy import BigInteger, Boolean, Sequence, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.visitors import InternalTraversal
from sqlalchemy.types import TypeEngine

from persist.db.sqlalchemy_private import made_of, written_as

_WRAP = 2**32
_LOCKED = "persist.locks_positions"
"""The setting of a transaction that has locked its positions."""


def lock_call(sequence: str) -> str:
    """The SQL that takes the lock of a sequence, which is given as SQL for a regclass."""
    number = f"mod(coalesce(pg_sequence_last_value({sequence}), 0), {_WRAP})"
    return f"pg_advisory_xact_lock_shared({_signed(f'CAST(CAST({sequence} AS oid) AS bigint)')}, {_signed(number)})"


def _signed(number: str) -> str:
    return f"CAST(mod({number} + {_WRAP // 2}, {_WRAP}) - {_WRAP // 2} AS int)"


@written_as(sqlite="NULL")
@made_of(sequence=InternalTraversal.dp_named_ddl_element)
class _Positions(ColumnElement[Any]):
    """An element about the positions of one sequence. `sql`: its text on Postgres, with the sequence as {named}."""

    inherit_cache = True
    type: TypeEngine[Any] = BigInteger()
    sql: ClassVar[str]

    def __init__(self, sequence: Sequence) -> None:
        self.sequence = sequence


class next_position(_Positions):  # noqa: N801  # reads as the SQL it stands for
    """The next position."""

    inherit_cache = True
    sql = "nextval({named})"


class last_position(_Positions):  # noqa: N801  # reads as the SQL it stands for
    """The last position that was given, to a transaction that may still run or was rolled back; 0 for none."""

    inherit_cache = True
    sql = "coalesce(pg_sequence_last_value({named}), 0)"


class position_lock(_Positions):  # noqa: N801  # reads as the SQL it stands for
    """Takes the lock that a transaction needs before it takes positions. It waits for nobody."""

    inherit_cache = True
    type = Text()
    # Once in a transaction: the first lock has the smallest number. What is noted is undone with a savepoint, as the lock is.
    sql = (
        f"CASE WHEN coalesce(current_setting('{_LOCKED}', true), '') = '' "
        f"THEN concat({lock_call('{named}')}, set_config('{_LOCKED}', 'on', true)) END"
    )


class switch_hold(_Positions):  # noqa: N801  # reads as the SQL it stands for
    """Lets nobody switch the log off before the transaction has ended. It waits for one who is about to."""

    inherit_cache = True
    type = Text()
    sql = "CAST(pg_advisory_xact_lock_shared(CAST(CAST({named} AS oid) AS bigint)) AS TEXT)"


class switch_lock(_Positions):  # noqa: N801  # reads as the SQL it stands for
    """Waits for transactions that hold the switch, and holds it exclusively until this transaction ends."""

    inherit_cache = True
    type = Text()
    sql = "CAST(pg_advisory_xact_lock(CAST(CAST({named} AS oid) AS bigint)) AS TEXT)"


class settled_position(_Positions):  # noqa: N801  # reads as the SQL it stands for
    """Whether no other running transaction has a position up to this one: true for statements of later snapshots."""

    inherit_cache = True
    # The inner query reads the sequence first: its result is an argument of the look at the locks.
    sql = (
        f"(SELECT least(l.last, (SELECT min(l.last - mod(mod(l.last, {_WRAP}) - CAST(k.objid AS bigint) + {_WRAP}, {_WRAP})) "
        "FROM pg_catalog.pg_locks k WHERE k.locktype = 'advisory' AND k.objsubid = 2 AND k.granted "
        "AND k.classid = CAST({named} AS oid) AND k.pid IS DISTINCT FROM pg_backend_pid() "
        "AND k.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))) "
        "FROM (SELECT coalesce(pg_sequence_last_value({named}), 0) AS last OFFSET 0) l)"
    )


@made_of(sequence=InternalTraversal.dp_named_ddl_element, position=InternalTraversal.dp_clauseelement)
class raised_sequence(_Positions):  # noqa: N801  # reads as the SQL it stands for
    """Uses the sequence up to a position, unless it is there or beyond. Setting it would take a privilege that writers lack."""

    sql = "(SELECT max(nextval({named})) FROM generate_series(coalesce(pg_sequence_last_value({named}), 0) + 1, {position}))"

    def __init__(self, sequence: Sequence, position: ColumnElement[int]) -> None:
        super().__init__(sequence)
        self.position = position


@written_as(sqlite="NULL", postgresql="current_setting('transaction_isolation') <> 'read committed'")
@made_of()
class is_snapshot(ColumnElement[Any]):  # noqa: N801  # reads as the SQL it stands for
    """Whether the transaction goes by one snapshot, so that no later statement sees what others have committed since."""

    type = Boolean()


@written_as(sqlite="NULL", postgresql="set_config('synchronous_commit', 'off', true)")
@made_of()
class commits_asynchronously(ColumnElement[Any]):  # noqa: N801  # reads as the SQL it stands for
    """Lets the transaction return from COMMIT before it is on disk: for what may be lost with the server."""

    type = Text()


@compiles(_Positions, "postgresql")
def _render_pg(element: Any, compiler: SQLCompiler, **kw: Any) -> str:
    # as in nextval('schema.name'), in which SQLAlchemy puts the schema that a connection maps the token to
    parts = {"named": f"CAST('{compiler.preparer.format_sequence(element.sequence)}' AS regclass)"}
    if isinstance(element, raised_sequence):
        parts["position"] = compiler.process(element.position, **kw)
    return str(element.sql.format(**parts))
