"""`tx.checkpoints.memories`: JSON objects stored under a namespace and key, optionally with an expiry."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import and_, bindparam, delete, or_, select, update

from persist.db.expressions.upsert import merge
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import UNBOUNDED, check_count, check_list, optional_amount
from persist.errors import InvalidValue, shown
from persist.framework_state.checkpoints import schemas
from persist.framework_state.checkpoints.models import memories, vectors
from persist.framework_state.checkpoints.schemas import Memory

List = list
Namespace = tuple[str, ...]


def _labels(text: str) -> Namespace:
    return tuple(text.split(".")) if text else ()


_M, _X = memories.c, vectors.c
_MEMORY = Values(Memory, memories, decode={"namespace": _labels})
_alive = or_(_M.expires_at.is_(None), _M.expires_at > param("now"))
_this_memory = and_(_M.namespace == param("namespace"), _M.key == param("row_key"))
# everything below a namespace sorts between its text plus "." and its text plus "/", the next character
_below = or_(
    _M.namespace == param("prefix"),
    and_(_M.namespace >= bindparam("low", type_=_M.namespace.type), _M.namespace < bindparam("high", type_=_M.namespace.type)),
)
_GET = Statement(select(*_MEMORY.columns).where(_this_memory, _alive))
_PUT = Statement(merge(memories, "namespace", "key", updated_at="later", expires_at="new", ttl_minutes="new", value_json="new"))
_DELETE = Statement(delete(memories).where(_this_memory))
_DELETE_EXPIRED = Statement(delete(memories).where(_M.expires_at <= param("now")))
_DELETE_IF_EXPIRED = Statement(delete(memories).where(_this_memory, _M.expires_at <= param("now")))
_REFRESH = Statement(
    update(memories)
    .where(_M.namespace == param("in_namespace"), _M.key == param("row_key"), _alive)
    .values(expires_at=bindparam("until", type_=_M.expires_at.type))
)
_DELETE_EMBEDDINGS = Statement(delete(vectors).where(_X.namespace == param("namespace"), _X.key == param("row_key")))
_EMBED = Statement(vectors.insert())


@cache
def _listing(everything: bool) -> Statement:
    query = select(*_MEMORY.columns).where(_alive).order_by(_M.updated_at.desc(), _M.namespace, _M.key)
    if not everything:
        query = query.where(_below)
    return Statement(query.limit(bindparam("maximum", type_=Int64())).offset(bindparam("skip", type_=Int64())))


@cache
def _namespaces(everything: bool) -> Statement:
    query = select(_M.namespace).where(_alive).distinct().order_by(_M.namespace)
    return Statement(query if everything else query.where(_below))


@cache
def _embeddings(everything: bool) -> Statement:
    joined = vectors.join(memories, and_(_M.namespace == _X.namespace, _M.key == _X.key))
    query = select(_X.namespace, _X.key, _X.embedding).select_from(joined).where(_alive).order_by(_X.namespace, _X.key, _X.path)
    return Statement(query if everything else query.where(_below))


class Memories(Repository[F]):
    """`tx.checkpoints.memories`. A namespace is a tuple of labels without dots. Expired memories are not returned."""

    @writes
    def put(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, Any],
        *,
        ttl_minutes: float | None = None,
        embeddings: Mapping[str, bytes] | None = None,
    ) -> None:
        """Store a JSON object under a key. If it replaces one, `created_at` is kept and the embeddings are replaced.

        Its `updated_at` is now, but at least 1 ms after the replaced memory's, whatever the clock says.

        `ttl_minutes`: minutes until it expires, from now and again from each `refresh`; None: never. `embeddings`: vectors of its
        texts by path, as little-endian 32-bit floats.
        """
        work = self._work
        memory_key = {"namespace": _namespace_text(work, namespace), "key": work.label("key", key, empty=True)}
        text = work.json("value", work.json_object("value", value))
        now = work.now()
        ttl = optional_amount("ttl_minutes", ttl_minutes)
        found = {work.label("path", path, empty=True): data for path, data in schemas.mapping("embeddings", embeddings).items()}
        for data in found.values():
            schemas.check_bytes("embeddings", data)
        row = {"created_at": now, "updated_at": now, "expires_at": _expiry(now, ttl), "ttl_minutes": ttl, "value_json": text}
        with work.batch(last=True) as batch:
            batch.run(_DELETE_IF_EXPIRED, namespace=memory_key["namespace"], row_key=memory_key["key"], now=now)
            batch.run(_PUT, **memory_key, **row)
            batch.run(_DELETE_EMBEDDINGS, namespace=memory_key["namespace"], row_key=key)
            batch.run_many(_EMBED, [{**memory_key, "path": path, "embedding": data} for path, data in found.items()])

    @writes
    def delete(self, namespace: Namespace, key: str) -> bool:
        """Delete a memory. False if there was none; an expired one that is not swept yet counts as there."""
        work = self._work
        memory_key = {"namespace": _namespace_text(work, namespace), "row_key": work.label("key", key, empty=True)}
        with work.batch(last=True) as batch:
            deleted = batch.run(_DELETE, **memory_key)
        return deleted.result == 1

    @reads
    def get(self, namespace: Namespace, key: str) -> Memory | None:
        """The memory under that key; None if there is none or it has expired."""
        work = self._work
        row = work.row(
            _GET, namespace=_namespace_text(work, namespace), row_key=work.label("key", key, empty=True), now=work.now()
        )
        return _MEMORY.optional(row)

    @reads
    def list(self, prefix: Namespace = (), *, limit: int | None = None, offset: int = 0) -> List[Memory]:
        """Memories of a namespace and all below it, most recently updated first. `limit` None: all."""
        work = self._work
        maximum = UNBOUNDED if limit is None else check_count("limit", limit)
        paging = {"maximum": maximum, "skip": check_count("offset", offset)}
        rows = work.rows(_listing(not prefix), **_prefix(work, prefix), **paging, now=work.now())
        return [_MEMORY(row) for row in rows]

    @reads
    def namespaces(self, prefix: Namespace = ()) -> List[Namespace]:
        """The namespaces with memories that begin with the prefix, sorted."""
        work = self._work
        rows = work.rows(_namespaces(not prefix), **_prefix(work, prefix), now=work.now())
        return sorted(_labels(text) for (text,) in rows)

    @reads
    def embeddings(self, prefix: Namespace = ()) -> List[tuple[Namespace, str, bytes]]:
        """(namespace, key, vector) of all embeddings of memories whose namespace begins with the prefix."""
        work = self._work
        rows = work.rows(_embeddings(not prefix), **_prefix(work, prefix), now=work.now())
        return [(_labels(text), key, bytes(data)) for text, key, data in rows]

    @writes
    def refresh(self, found: Iterable[Memory]) -> None:
        """Restart the expiry of these memories: each expires its `ttl_minutes` from now. Expired ones stay expired."""
        work = self._work
        now = work.now()
        refreshed = [
            {
                "in_namespace": _namespace_text(work, memory.namespace),
                "row_key": memory.key,
                "until": _expiry(now, memory.ttl_minutes),
                "now": now,
            }
            for memory in schemas.items("found", found, Memory)
            if memory.ttl_minutes is not None
        ]
        with work.batch(last=True) as batch:
            for values in refreshed:
                batch.run(_REFRESH, **values)

    @writes
    def sweep(self) -> int:
        """Delete expired memories; the number deleted."""
        return self._work.run(_DELETE_EXPIRED, now=self._work.now())


def _namespace_text(work: UnitOfWork, namespace: Sequence[str]) -> str:
    """The stored text of a namespace: its labels joined with dots. Raises InvalidValue for a label with a dot."""
    labels = check_list("namespace", namespace)
    for label in labels:
        if not work.label("namespace", label) or "." in label:
            raise InvalidValue("namespace", f"the label {shown(label)} holds a dot.")
    return ".".join(labels)


def _prefix(work: UnitOfWork, prefix: Namespace) -> dict[str, str]:
    text = _namespace_text(work, prefix)
    return {"prefix": text, "low": f"{text}.", "high": f"{text}/"} if text else {}


def _expiry(now: datetime, ttl_minutes: float | None) -> datetime | None:
    if ttl_minutes is None:
        return None
    try:
        return now + timedelta(minutes=ttl_minutes)
    except OverflowError:
        raise InvalidValue("ttl_minutes", f"{ttl_minutes} minutes from now is beyond the calendar.") from None
