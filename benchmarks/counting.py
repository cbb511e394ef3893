"""What a count costs among 1,000,000 runs with two executions each, exact, and with `exact=False` beside it.

A count that need not be exact reads at most 10,000 rows; what it says beyond that, the table names.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import persist
from benchmarks import run_rows
from benchmarks.growth import FEW, MANY, MANY_QUICKLY
from benchmarks.measure import Operation, Row, interleaved, middle, us
from benchmarks.place import Place
from persist import Store

_ROUNDS = 30


def rows(place: Place) -> Iterator[Row]:
    """On both databases; fewer runs for a quick look."""
    many = MANY_QUICKLY if place.quick else MANY
    with ExitStack() as stack:
        yield from _compare([_filled(stack, place.file(f"counting-{size}"), None, size) for size in (FEW, many)], many, "")
    if place.postgres is not None:
        with ExitStack() as stack:
            stores = [_filled(stack, place.postgres, f"counting_{size}", size) for size in (FEW, many)]
            yield from _compare(stores, many, "Postgres: ")


def _filled(stack: ExitStack, url: str, schema: str | None, size: int) -> Store:
    persist.upgrade(url, schema=schema)
    run_rows.fill(url, schema, size)
    store = stack.enter_context(Store.open(url, schema=schema))
    for number in range(20):
        store.workflows.runs.create("triage", trigger_id=f"queued/{number}", current_phase="plan", status="queued")
    return store


def _compare(stores: list[Store], size: int, where: str) -> Iterator[Row]:
    exact, bounded = _operations(stores[1], exact=True), _operations(stores[1], exact=False)
    small = _operations(stores[0], exact=False)
    for name in exact:
        taken = interleaved({"exact": exact[name], "not": bounded[name], "few": small[name]}, rounds=_ROUNDS)
        whole, mine, few = (middle(taken[one]) for one in ("exact", "not", "few"))
        detail = f"{us(mine)} vs {us(whole)}; {us(few)} among {FEW:,} runs; says {_said(bounded[name]())} of {exact[name]()}"
        yield Row(f"{where}{name}(exact=False), {size:,} runs, vs exact", mine / whole, float("inf"), detail)


def _said(found: object) -> str:
    return f"{getattr(found, 'basis', '')} {found}".strip()


def _operations(store: Store, *, exact: bool) -> Mapping[str, Operation]:
    runs, executions = store.workflows.runs, store.workflows.executions
    return {
        "runs.count": lambda: runs.count(exact=exact),
        "runs.count of a status": lambda: runs.count(status="succeeded", exact=exact),
        "runs.count of what is queued": lambda: runs.count(status="queued", exact=exact),
        "executions.stats": lambda: executions.stats(exact=exact).total,
    }
