"""Memories: JSON objects under keys of namespaces, some of which expire."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import and_, bindparam, delete, or_, select, update

from persist.checkpoints import intake
from persist.checkpoints.models import memories, vectors
from persist.checkpoints.schemas import Memory
from persist.db.checks import check_count, check_items, optional_amount
from persist.db.hot import Hot, Row, param
from persist.db.insert import merge
from persist.db.repository import Repository, reads, writes
from persist.db.types import Whole
from persist.db.values import build
from persist.db.work import Work
from persist.errors import InvalidValue
from persist.quoting import shown

List = list
Namespace = tuple[str, ...]

_M, _X = memories.c, vectors.c
_FIELDS = tuple(Memory.model_fields)
_COLUMNS = (_M.namespace, _M.key, _M.value_json, _M.created_at, _M.updated_at, _M.expires_at, _M.ttl_minutes)
_MOST = 2**62

_alive = or_(_M.expires_at.is_(None), _M.expires_at > param("now"))
_is = and_(_M.namespace == param("namespace"), _M.key == param("row_key"))
# a dot and the character after it enclose everything below a namespace
_below = or_(
    _M.namespace == param("prefix"),
    and_(_M.namespace >= bindparam("low", type_=_M.namespace.type), _M.namespace < bindparam("high", type_=_M.namespace.type)),
)
_GET = Hot(select(*_COLUMNS).where(_is, _alive))
_PUT = Hot(merge(memories, "namespace", "key", updated_at="new", expires_at="new", ttl_minutes="new", value_json="new"))
_DELETE = Hot(delete(memories).where(_is))
_EXPIRED = Hot(delete(memories).where(_M.expires_at <= param("now")))
_GONE = Hot(delete(memories).where(_is, _M.expires_at <= param("now")))
_REFRESH = Hot(
    update(memories)
    .where(_M.namespace == param("in_namespace"), _M.key == param("row_key"), _alive)
    .values(expires_at=bindparam("until", type_=_M.expires_at.type))
)
_FORGET = Hot(delete(vectors).where(_X.namespace == param("namespace"), _X.key == param("row_key")))
_EMBED = Hot(vectors.insert())


@cache
def _listing(whole: bool) -> Hot:
    query = select(*_COLUMNS).where(_alive).order_by(_M.updated_at.desc(), _M.namespace, _M.key)
    if not whole:
        query = query.where(_below)
    return Hot(query.limit(bindparam("most", type_=Whole())).offset(bindparam("skip", type_=Whole())))


@cache
def _namespaces(whole: bool) -> Hot:
    query = select(_M.namespace).where(_alive).distinct().order_by(_M.namespace)
    return Hot(query if whole else query.where(_below))


@cache
def _embeddings(whole: bool) -> Hot:
    joined = vectors.join(memories, and_(_M.namespace == _X.namespace, _M.key == _X.key))
    query = select(_X.namespace, _X.key, _X.embedding).select_from(joined).where(_alive).order_by(_X.namespace, _X.key, _X.path)
    return Hot(query if whole else query.where(_below))


class Memories(Repository):
    """`tx.checkpoints.memories`. A namespace is a tuple of labels; one that has expired is not there."""

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
        """Store a JSON object under a key; what was there keeps its `created_at`.

        `ttl_minutes`: it expires so long after it was stored or refreshed. `embeddings`: vectors of its texts by their path.
        """
        work = self._work
        place = {"namespace": _text(work, namespace), "key": work.label("key", key, empty=True)}
        text = work.json("value", work.json_object("value", value))
        now = work.now()
        ttl = optional_amount("ttl_minutes", ttl_minutes)
        found = {work.label("path", path, empty=True): data for path, data in intake.mapping("embeddings", embeddings).items()}
        for data in found.values():
            intake.check_bytes("embeddings", data)
        row = {"created_at": now, "updated_at": now, "expires_at": _until(now, ttl), "ttl_minutes": ttl, "value_json": text}
        work.run(_GONE, namespace=place["namespace"], row_key=place["key"], now=now)
        work.run(_PUT, **place, **row)
        work.run(_FORGET, namespace=place["namespace"], row_key=key)
        work.run_many(_EMBED, [{**place, "path": path, "embedding": data} for path, data in found.items()])

    @writes
    def delete(self, namespace: Namespace, key: str) -> bool:
        """Delete it; False where there was none."""
        work = self._work
        return work.run(_DELETE, namespace=_text(work, namespace), row_key=work.label("key", key, empty=True)) == 1

    @reads
    def get(self, namespace: Namespace, key: str) -> Memory | None:
        """What is stored under the key, or None."""
        work = self._work
        row = work.row(_GET, namespace=_text(work, namespace), row_key=work.label("key", key, empty=True), now=work.now())
        return None if row is None else _value(row)

    @reads
    def list(self, prefix: Namespace = (), *, limit: int | None = None, offset: int = 0) -> List[Memory]:
        """Those of a namespace and of the namespaces below it, changed last first; `limit` None: all."""
        work = self._work
        most = _MOST if limit is None else check_count("limit", limit)
        paging = {"most": most, "skip": check_count("offset", offset)}
        rows = work.rows(_listing(not prefix), **_prefix(work, prefix), **paging, now=work.now())
        return [_value(row) for row in rows]

    @reads
    def namespaces(self, prefix: Namespace = ()) -> List[Namespace]:
        """The namespaces that hold something, of those that begin with the prefix, in order."""
        work = self._work
        rows = work.rows(_namespaces(not prefix), **_prefix(work, prefix), now=work.now())
        return sorted(_labels(text) for (text,) in rows)

    @reads
    def embeddings(self, prefix: Namespace = ()) -> List[tuple[Namespace, str, bytes]]:
        """Every vector below the prefix, with the namespace and the key that it belongs to."""
        work = self._work
        rows = work.rows(_embeddings(not prefix), **_prefix(work, prefix), now=work.now())
        return [(_labels(text), key, bytes(data)) for text, key, data in rows]

    @writes
    def refresh(self, found: Iterable[Memory]) -> None:
        """These live for their `ttl_minutes` again, from now on."""
        work = self._work
        now = work.now()
        for memory in intake.items("found", found, Memory):
            if memory.ttl_minutes is not None:
                until = _until(now, memory.ttl_minutes)
                work.run(_REFRESH, in_namespace=_text(work, memory.namespace), row_key=memory.key, until=until, now=now)

    @writes
    def sweep(self) -> int:
        """Delete what has expired; how many."""
        return self._work.run(_EXPIRED, now=self._work.now())


def _text(work: Work, namespace: Sequence[str]) -> str:
    """The namespace as it is stored."""
    labels = check_items("namespace", namespace)
    for label in labels:
        if not work.label("namespace", label) or "." in label:
            raise InvalidValue("namespace", f"the label {shown(label)} holds a dot.")
    return ".".join(labels)


def _labels(text: str) -> Namespace:
    return tuple(text.split(".")) if text else ()


def _prefix(work: Work, prefix: Namespace) -> dict[str, str]:
    text = _text(work, prefix)
    return {"prefix": text, "low": f"{text}.", "high": f"{text}/"} if text else {}


def _until(now: datetime, ttl_minutes: float | None) -> datetime | None:
    if ttl_minutes is None:
        return None
    try:
        return now + timedelta(minutes=ttl_minutes)
    except OverflowError:
        raise InvalidValue("ttl_minutes", f"{ttl_minutes} minutes from now is beyond the calendar.") from None


def _value(row: Row) -> Memory:
    namespace, key, value, *rest = row
    return build(Memory, dict(zip(_FIELDS, (_labels(namespace), key, value, *rest), strict=True)))
