"""What the tests of limits say all the time."""

from itertools import count
from typing import Any

from persist.workflows.schemas import Lease
from tests.contract.workflows.scenes import HOUR, do
from tests.contract.workflows.scenes import queue as put


def limit(store: Any, key: str, *args: Any, **given: Any) -> Any:
    return store.workflows.limits.set(key, *args, **given)


NUMBERS = count()


def queue(store: Any, name: str = "build", **fields: Any) -> str:
    """A run behind those that were queued before it."""
    return put(store, **{"workflow_name": name, "id": f"run_{next(NUMBERS):06}", **fields})


def claimed(store: Any, limit: int = 100, **options: Any) -> list[Lease]:
    """So many leases, or all that there are: one claim may give fewer than it could."""
    leases: list[Lease] = []
    while len(leases) < limit and (more := do(store, "claim", "w1", **{"lease": HOUR, "limit": limit - len(leases), **options})):
        leases += more
    return leases


def ids(leases: list[Lease]) -> list[str]:
    return [lease.run_id for lease in leases]
