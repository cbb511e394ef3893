"""Which databases keep bodies in one folder or bucket, by an id and the place of each: none removes what another may name."""

import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import sha256
from time import monotonic
from typing import NamedTuple, Protocol, runtime_checkable

from sqlalchemy import select

from persist.blobs.body_stores import BlobStore, Bodies, FolderBlobStore, body_store
from persist.db.expressions.upsert import insert_missing
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.statements.prepared import Statement
from persist.db.statements.schema_version import DATABASE_ID
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.snapshots import in_transaction
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.transactions.verb_frame import Verb
from persist.db.values.clock import Clock, as_utc
from persist.errors import NotFound, PersistError

_META = table_of(Meta)
_KEEP_ID = Statement(insert_missing(_META, "key"))
_ID = Statement(select(_META.c.value).where(_META.c.key == DATABASE_ID))

GRACE = timedelta(days=1)
"""How long a database waits before it removes bodies of a place that was in use before anybody registered there."""
LOOK_SECONDS = 1.0
"""Seconds for which a reading of the register counts. A database that registers beside others waits twice as long."""
OWN_PREFIX = "{database}"
"""The placeholder of a path or URL for the database's id, which gives every database a separate place."""


@runtime_checkable
class Register(Protocol):
    """What a place for bodies has beside the methods of BlobStore, if several databases may use it."""

    def registered(self) -> Mapping[str, str]:
        """The names that are registered, with what was written for each."""

    def register(self, name: str, text: str) -> None:
        """Register a name, or write something else for it."""

    def unregister(self, name: str) -> None:
        """Remove a name. Without it nothing happens."""

    def is_empty(self) -> bool:
        """Whether nothing is there."""


class RegisteredDatabase(NamedTuple):
    """A database that keeps bodies in a place. `name` is its entry in the register, `own`: it is the database that asks."""

    name: str
    database: str
    since: datetime | None
    own: bool


class SharedBlobStore:
    """The bodies of one database in a place that others may share. A `store` that is no Register serves one database alone."""

    def __init__(
        self, store: BlobStore, database: tuple[str, str] | None, clock: Clock, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """`database`: its id, and where it is; None for a database that cannot be opened again, which does not register."""
        self.store, self._clock, self._sleep = store, clock, sleep
        self._alone_since: float | None = None
        self._register = store if isinstance(store, Register) else None
        self._name = None if database is None else sha256("\n".join(database).encode()).hexdigest()[:32]
        self._shown = "" if database is None else database[1]
        self._is_registered = self._register is None or self._name is None

    def __repr__(self) -> str:
        return repr(self.store)

    def put(self, sha256: str, pieces: Iterable[bytes]) -> None:
        self.register()
        self.store.put(sha256, pieces)

    def open(self, sha256: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        self.try_to_register()
        return self.store.open(sha256, start, end)

    def exists(self, sha256: str) -> bool:
        self.try_to_register()
        return self.store.exists(sha256)

    def has(self, sha256: str, size: int) -> bool:
        """Whether the whole body is there, as far as that can be told cheaply: of the size that it has to have."""
        self.try_to_register()
        found = getattr(self.store, "size", None)
        return self.store.exists(sha256) if found is None else found(sha256) == size

    def delete(self, sha256: str) -> None:
        if self._is_alone():
            self.store.delete(sha256)

    def _is_alone(self) -> bool:
        """Whether bodies may be removed, as of a look that is not old."""
        at = monotonic()
        if self._alone_since is None or at - self._alone_since > LOOK_SECONDS:
            self._alone_since = at if self.why_kept() is None else None
        return self._alone_since is not None

    def stored(self) -> Iterable[tuple[str, datetime]]:
        self.try_to_register()
        return self.store.stored()

    def register(self) -> None:
        """Register this database, unless that has been done."""
        if self._is_registered:
            return
        place, name = self._register, self._name
        assert place is not None
        assert name is not None
        there = place.registered()
        if name not in there:
            about = {"database": self._shown, "since": self._now().isoformat(), "waits": not place.is_empty()}
            place.register(name, json.dumps(about))
            if there:
                self._sleep(2 * LOOK_SECONDS)
        self._is_registered = True

    def try_to_register(self) -> None:
        """As `register`, but a place that cannot be written, or is not reached, is no error: it may be for reading alone."""
        try:
            self.register()
        except PersistError:
            return

    def databases(self) -> list[RegisteredDatabase]:
        found = {} if self._register is None else self._register.registered()
        return [_entry(name, text, own=name == self._name) for name, text in sorted(found.items())]

    def forget_own(self) -> None:
        """Take this database out of the register, since it is gone."""
        if self._name is not None:
            self.forget(self._name)

    def forget(self, name: str) -> None:
        """Take a database out of the register, since it does not use the place any more. Raises NotFound."""
        if self._register is None or name not in self._register.registered():
            raise NotFound("registered database", name)
        self._register.unregister(name)
        self._alone_since = None
        if name == self._name:
            self._is_registered = False

    def why_kept(self) -> str | None:
        """Why no body is removed from the place now; None if bodies may be removed."""
        if self._register is None:
            return None
        self.try_to_register()
        found = self._register.registered()
        others = [_entry(name, text, own=False).database for name, text in sorted(found.items()) if name != self._name]
        if others:
            return f"other databases are registered in {self.store!r}, too: {', '.join(others)}"
        if self._name is None:
            return f"a database in memory is not registered in {self.store!r}, where others cannot see what it names"
        if self._name not in found:
            return f"this database could not be registered in {self.store!r}"
        since = _entry(self._name, found[self._name], own=True).since
        if since is not None and _about(found[self._name]).get("waits") is not False and self._now() - since < GRACE:
            return f"{self.store!r} was in use before any database registered there, and others have a day for that"
        return None

    def _now(self) -> datetime:
        return as_utc("clock", self._clock())


def checked(bodies: Bodies) -> Bodies:
    """Return the place as it was given. Raises InvalidValue if no bodies can be kept there."""
    body_store(bodies)
    return bodies


def shared(runtime: Runtime, bodies: Bodies, id: str | None, place: str | None) -> SharedBlobStore | None:
    """The bodies of a database that was opened, which gets an id with its first shared place. None: it has no bodies there."""
    path = runtime.dialect.path
    where = place if path is None else os.path.realpath(path)
    pattern = os.fspath(bodies) if isinstance(bodies, str | os.PathLike) else ""
    store, named = body_store(bodies), OWN_PREFIX in pattern
    assert store is not None
    if id is None and not runtime.read_only and (named or (where is not None and isinstance(store, Register))):
        with suppress(PersistError):  # a role that may not write there: its owner gives the id
            id = in_transaction(runtime, _minted)
    if named and id is None:
        return None
    if named:
        store = body_store(pattern.replace(OWN_PREFIX, str(id)))
        assert store is not None
    if where is not None and runtime.dialect.schema is not None:
        where = f"{where} {runtime.dialect.schema}"
    known = None if where is None or id is None else (id, where)
    made = SharedBlobStore(store, known, runtime.clock, runtime.sleep)
    if isinstance(store, FolderBlobStore):  # a bucket may be slow: the first body does it
        made.try_to_register()
    return made


def _minted(work: UnitOfWork) -> str | None:
    with Verb(work, "Store.open", writes=True):
        work.run(_KEEP_ID, key=DATABASE_ID, value=secrets.token_hex(16))
        row = work.row(_ID)
    return None if row is None else str(row[0])


def _entry(name: str, text: str, *, own: bool) -> RegisteredDatabase:
    about = _about(text)
    try:
        since = datetime.fromisoformat(str(about.get("since")))
    except ValueError:
        since = None
    return RegisteredDatabase(name, str(about.get("database", "unknown")), since, own)


def _about(text: str) -> dict[str, object]:
    try:
        about = json.loads(text)
    except ValueError:
        return {}
    return about if isinstance(about, dict) else {}
