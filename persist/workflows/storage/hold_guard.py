"""The check of a lease as SQL, for statements on Postgres that check and write at once, which saves a round trip.

Such a statement writes nothing where `run_rows.check_hold` would refuse. If it writes nothing, that proves nothing: the verb then
locks, checks and writes step by step, which finds the error or does the work. On SQLite, where a statement waits for no network,
verbs always proceed step by step.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Boolean, and_, bindparam, literal, or_
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import FromClause

from persist.db.statements.prepared import among, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_label
from persist.errors import InvalidValue
from persist.workflows.models import runs
from persist.workflows.schemas import Lease
from persist.workflows.transitions import TERMINAL

_R = runs.c
_MAX_TOKEN = 2**63 - 1
_at = bindparam("at", type_=_R.lease_expires_at.type)
_first, _last = (literal(at.replace(tzinfo=UTC), _R.lease_expires_at.type) for at in (datetime.min, datetime.max))


def _has_instants(table: FromClause) -> ColumnElement[bool]:
    certain = (table.c[name].between(_first, _last) for name in ("started_at", "updated_at"))
    others = (table.c[name] for name in ("finished_at", "queued_at", "not_before"))
    return and_(*certain, *(or_(instant.is_(None), instant.between(_first, _last)) for instant in others))


HAS_INSTANTS = _has_instants(runs)
"""Whether the run's instants, its lease's excepted, can be decoded. RETURNING an undecodable one would fail after the write."""


def is_plain(table: FromClause) -> ColumnElement[bool]:
    """Whether a queued run is as `create` and `requeue` leave it, so that a claim of it can be undone by another statement."""
    unheld = and_(
        table.c.lease_owner.is_(None),
        table.c.lease_expires_at.is_(None),
        table.c.lease_token < literal(_MAX_TOKEN, table.c.lease_token.type),
    )
    return and_(_has_instants(table), unheld)


WRITABLE: dict[bool, ColumnElement[bool]] = {
    False: or_(_R.lease_owner.is_(None), _R.lease_expires_at.is_(None), _R.lease_expires_at.between(_first, _at)),
    True: and_(
        _R.lease_token == param("held_token"),
        or_(
            and_(among(_R.status, sorted(TERMINAL)), bindparam("unexpired", type_=Boolean())),
            and_(_R.lease_owner == param("holder"), _R.lease_expires_at > _at, _R.lease_expires_at <= _last),
        ),
    ),
}
"""Whether a write without a lease (False) or under one (True) is allowed. Parameters: `at`, and those of `guard_values`."""


def guard_values(work: UnitOfWork, run_id: object, lease: object) -> dict[str, Any] | None:
    """The parameters of WRITABLE, for the lease or for None; None where a verb has to proceed step by step."""
    if lease is None:
        return None if work.runtime.dialect.one_writer else {}
    if not isinstance(lease, Lease) or lease.run_id != run_id or not -1 < lease.token <= _MAX_TOKEN:
        return None
    try:
        holder = check_label("worker", lease.worker)
    except InvalidValue:
        return None
    return {"held_token": lease.token, "holder": holder, "unexpired": lease.expires_at > work.now()}
