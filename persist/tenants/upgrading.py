"""Upgrades the tenants of all servers, several at a time, each in a transaction of its own."""

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from persist.db.dialects.tenant_servers import TenantServer
from persist.errors import InvalidValue, NotFound, PersistError, SchemaOutdated
from persist.lazy_imports import lazy_module
from persist.schema.opening import prepare
from persist.tenants.placing import Servers, UpgradeOutcome, UpgradeReport, UpgradeStatus, is_tenant

if TYPE_CHECKING:
    from persist.schema import migrate
else:
    migrate = lazy_module("persist.schema.migrate")

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
