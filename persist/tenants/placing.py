"""Which names tenants may have, and on which server each is: the only one, or one that a rule or a map names."""

import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from persist.db.dialects.backends import tenant_server
from persist.db.dialects.interface import TenantServer
from persist.errors import InvalidValue, NotFound, PersistError, SchemaOutdated, named
from persist.lazy_imports import lazy_module
from persist.schema.opening import prepare
from persist.settings import Settings
from persist.tenants.open_stores import TenantMap

if TYPE_CHECKING:
    from persist.schema import migrate
else:
    migrate = lazy_module("persist.schema.migrate")


MAX_BYTES = 63
"""The longest name in bytes: Postgres cuts longer identifiers off, so that two tenants would share a schema."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_OF_SERVERS = {"public", "information_schema", "citus", "citus_internal", "columnar", "columnar_internal"}
_OF_WINDOWS = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}
_BEGINNINGS = ("pg_", "persist")


def is_tenant(name: str) -> bool:
    """Whether a tenant may have the name."""
    return (
        _NAME.fullmatch(name) is not None
        and name not in _OF_SERVERS
        and name not in _OF_WINDOWS
        and not name.startswith(_BEGINNINGS)
    )


def check_tenant(name: object) -> str:
    """Return the name of a tenant, or raise InvalidValue.

    A name has lower-case letters of ASCII, digits and underscores, begins with a letter, and has at most 63 bytes. Capital
    letters are refused, because some file systems and unquoted SQL do not tell them apart, and letters outside of ASCII, because
    one of them can be written in several ways. Names that the databases, Windows or persist keep for themselves are refused.
    """
    if not isinstance(name, str):
        raise InvalidValue("tenant", f"{named(name)} is not text.")
    if len(name.encode("utf-8", "replace")) > MAX_BYTES:
        raise InvalidValue("tenant", f"{named(name)} is longer than {MAX_BYTES} bytes.")
    if _NAME.fullmatch(name) is None:
        raise InvalidValue(
            "tenant", f"{named(name)} is no name of lower-case letters a to z, digits and underscores that begins with a letter."
        )
    if not is_tenant(name):
        raise InvalidValue("tenant", f"{named(name)} is a name that the database, Windows or persist keeps for itself.")
    return name


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant, and the key of the server that it is on: "" where there is one server."""

    name: str
    server: str


class UpgradeStatus(StrEnum):
    """What became of a tenant in `upgrade_all`."""

    UPGRADED = "upgraded"
    CURRENT = "current"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class UpgradeOutcome:
    """What `upgrade_all` did with one tenant. `found`: its revision before; `error`: why it failed, in one sentence."""

    tenant: str
    server: str
    status: UpgradeStatus
    found: str | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class UpgradeReport:
    """The outcome of every tenant, by server and name."""

    outcomes: tuple[UpgradeOutcome, ...]

    @property
    def failed(self) -> tuple[UpgradeOutcome, ...]:
        """The outcomes of the tenants that could not be upgraded, and are as they were."""
        return tuple(outcome for outcome in self.outcomes if outcome.status is UpgradeStatus.FAILED)

    def count(self, status: UpgradeStatus) -> int:
        """How many tenants have that status."""
        return sum(outcome.status is status for outcome in self.outcomes)


ONLY = ""
"""The key of the server, if the Tenants has only one."""


class Servers:
    """The servers of a Tenants by their keys, and which one a tenant belongs to."""

    def __init__(
        self,
        urls: str | PathLike[str] | Mapping[str, str],
        settings: Settings,
        *,
        pooler: str | None,
        rule: Callable[[str], str] | None,
        map_url: str | None,
    ) -> None:
        given = {ONLY: urls} if isinstance(urls, str | PathLike) else dict(urls)
        if not given:
            raise InvalidValue("urls", "there is no server.")
        if rule is not None and map_url is not None:
            raise InvalidValue("map_url", "give a rule or a map, not both.")
        if len(given) > 1 and rule is None and map_url is None:
            raise InvalidValue("urls", "for several servers, give a rule that names the server of a tenant, or map_url.")
        self._rule = rule
        self.by_key: dict[str, TenantServer] = {}
        try:
            for key, url in given.items():
                self.by_key[key] = tenant_server(url, settings, pooler=pooler)
            self.map = None if map_url is None else TenantMap(map_url, settings)
        except BaseException:
            self.close()
            raise

    def server(self, key: str) -> TenantServer:
        """The server of that key. Raises InvalidValue if there is none."""
        try:
            return self.by_key[key]
        except KeyError:
            known = ", ".join(map(named, sorted(self.by_key)))
            raise InvalidValue("server", f"{named(key)} is none of the servers {known}.") from None

    def ruled(self, name: str) -> str:
        """The key of the server on which the tenant has to be, where no map says it."""
        if self._rule is None:
            return next(iter(self.by_key))
        key = self._rule(name)
        self.server(key)
        return key

    def close(self) -> None:
        for server in self.by_key.values():
            server.close()
        if getattr(self, "map", None) is not None:
            assert self.map is not None
            self.map.close()


Progress = Callable[[UpgradeOutcome], object]
"""Called with the outcome of each tenant, one at a time and in any order."""

_PAGE = 500
MAX_PARALLEL = 64


class _Task(NamedTuple):
    name: str
    key: str
    server: TenantServer
    found: str


def upgrade_all(servers: Servers, *, parallel: int, progress: Progress | None) -> UpgradeReport:
    """Bring every tenant of every server to this code's revision. See Tenants.upgrade_all."""
    if type(parallel) is not int or not 1 <= parallel <= MAX_PARALLEL:
        raise InvalidValue("parallel", f"expected a whole number from 1 to {MAX_PARALLEL}.")
    outcomes: list[UpgradeOutcome] = []
    telling = threading.Lock()

    def tell(outcome: UpgradeOutcome) -> None:
        with telling:
            outcomes.append(outcome)
            if progress is not None:
                progress(outcome)

    tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
    for task in _outdated(servers, tell):
        tasks.put(task)
    width = max(1, min(parallel, tasks.qsize()))
    for _ in range(width):
        tasks.put(None)
    if width == 1 or not sys.executable:
        _work(tasks, _upgrade_here, tell)
    else:
        threads = [threading.Thread(target=_work_apart, args=(tasks, tell), daemon=True) for _ in range(width)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return UpgradeReport(tuple(sorted(outcomes, key=lambda outcome: (outcome.server, outcome.tenant))))


def _outdated(servers: Servers, tell: Progress) -> Iterator[_Task]:
    """Find the tenants to upgrade, and tell of those that are current or refuse to be looked at."""
    for key, server in servers.by_key.items():
        after = ""
        while names := server.names(after, _PAGE):
            after = names[-1]
            for name in filter(is_tenant, names):
                dialect = server.dialect(name)
                try:
                    prepare(dialect, migrate=False)
                    tell(UpgradeOutcome(name, key, UpgradeStatus.CURRENT, None))
                except SchemaOutdated as outdated:
                    if outdated.found is not None:
                        yield _Task(name, key, server, outdated.found)
                except NotFound:
                    pass  # somebody dropped it after it was listed
                except PersistError as error:
                    tell(UpgradeOutcome(name, key, UpgradeStatus.FAILED, None, str(error)))
                finally:
                    dialect.connections.dispose()


def _upgrade_here(task: _Task) -> str | None:
    url, schema = task.server.place(task.name)
    try:
        migrate.upgrade(url, schema=schema)
    except PersistError as error:
        return str(error)
    return None


def _work(tasks: "queue.SimpleQueue[_Task | None]", upgrade: Callable[[_Task], str | None], tell: Progress) -> None:
    while (task := tasks.get()) is not None:
        error = upgrade(task)
        status = UpgradeStatus.UPGRADED if error is None else UpgradeStatus.FAILED
        tell(UpgradeOutcome(task.name, task.key, status, task.found, error))


def _work_apart(tasks: "queue.SimpleQueue[_Task | None]", tell: Progress) -> None:
    """Have the tenants upgraded by a process, and by another one if that ends before its time."""
    worker: subprocess.Popen[bytes] | None = None

    def upgrade(task: _Task) -> str | None:
        nonlocal worker
        if worker is None or worker.poll() is not None:
            worker = _start()
        assert worker.stdin is not None
        assert worker.stdout is not None
        url, schema = task.server.place(task.name)
        try:
            worker.stdin.write(orjson.dumps({"url": url, "schema": schema}) + b"\n")
            worker.stdin.flush()
            answer = worker.stdout.readline()
        except OSError:
            answer = b""
        if not answer:
            return f"The process that upgraded it ended with {worker.wait()}; nothing was changed, or all of it was."
        error: Any = orjson.loads(answer)["error"]
        return None if error is None else str(error)

    try:
        _work(tasks, upgrade, tell)
    finally:
        if worker is not None:
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.close()
            worker.stdout.close()
            worker.wait()


def _start() -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "persist.tenants.upgrade_worker"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
