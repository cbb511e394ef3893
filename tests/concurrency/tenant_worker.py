"""A process that manages tenants, and stops at a point of its work until it is killed.

`python -m tests.concurrency.tenant_worker URL POINT VERB [ARGUMENT …]`. It says "there" at the point, and what came of the verb.
"""

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from persist import PersistError, Tenants
from persist.db.dialects.postgres import tenant_server
from persist.db.dialects.sqlite import dialect as tenant_folder
from persist.maintenance import copying
from persist.schema import migrate, opening
from persist.tenants import directory, open_stores
from persist.tenants.placing import UpgradeOutcome, UpgradeStatus
from tests.concurrency.forked import in_child

LONG = 600.0


def stop(*_: Any, **__: Any) -> Any:
    print("there", flush=True)
    time.sleep(LONG)


def stop_at_upgrade(outcome: UpgradeOutcome) -> None:
    if outcome.status is UpgradeStatus.UPGRADED:
        stop()


def arrange(point: str) -> None:
    """Stop at the point."""
    create, upgrade, transaction = opening._create, migrate.upgrade_with, tenant_server.PostgresTenants._transaction

    @contextmanager
    def stopping(server: Any) -> Iterator[Any]:
        with transaction(server) as connection:
            yield connection
            stop()

    places: dict[str, list[tuple[Any, str, Any]]] = {
        "before the commit of create": [
            (migrate, "upgrade_with", lambda *given, **options: upgrade(*given, **{**options, "after": stop})),
            (opening, "_create", lambda connection, dialect, note=None: create(connection, dialect, stop)),
        ],
        "before the commit of drop": [
            (tenant_server.PostgresTenants, "_transaction", stopping),
            (tenant_folder, "remove_file", stop),
        ],
        "between creating and copying": [(directory, "copy_store", stop)],
        "before the commit of copy": [(copying._Copy, "_check", stop)],
        "in the map": [(directory.Directory, "_create", staticmethod(stop))],
        "created and not in the map": [(open_stores.TenantMap, "change", stop)],
    }
    for owner, name, instead in places.get(point, []):
        setattr(owner, name, instead)


def fork(tenants: Tenants) -> None:
    """Fork while a store is open: the child can neither use nor close it, and the parent goes on."""

    def child() -> list[str]:
        found = []
        try:
            tenants.open("acme")
        except PersistError as error:
            found.append(type(error).__name__)
        tenants.close()
        gc.collect()
        return found

    with tenants.open("acme") as store:
        store.chat.sessions.create(agent="before", model={})
        assert in_child(child) == ["StoreForked"]
        store.chat.sessions.create(agent="after", model={})
    with tenants.open("beta") as store:
        store.chat.sessions.create(agent="after", model={})


def main(url: str, map_url: str, point: str, verb: str, *arguments: str) -> None:
    """Make Tenants of the server, wait for a line, and call the verb."""
    arrange(point)
    with Tenants({"only": url}, map_url=map_url or None) as tenants:
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            if verb == "fork":
                fork(tenants)
            elif verb == "drop":
                tenants.drop(arguments[0], confirm=arguments[0])
            elif verb == "upgrade_all":
                tenants.upgrade_all(parallel=1, progress=stop_at_upgrade)
            else:
                getattr(tenants, verb)(*arguments)
            print("done", flush=True)
        except PersistError as error:
            print(type(error).__name__, flush=True)


main(*sys.argv[1:])
