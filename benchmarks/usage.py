"""What it costs to say which model a sample of usage is of, with the sums by hour and day, and under a budget."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import persist
from benchmarks.measure import Operation, Row, interleaved, middle, us
from benchmarks.place import Place

ROUNDS = 400
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)
_FIGURES: dict[str, Any] = {"token_input": 100, "token_output": 20, "cost_usd_micros": 15, "instance_id": "box"}
_CALL: dict[str, Any] = {**_FIGURES, "model": "claude", "provider": "anthropic", "agent": "writer", "owner": "maria"}


def rows(place: Place) -> Iterator[Row]:
    """On both databases."""
    rounds = ROUNDS // 4 if place.quick else ROUNDS
    yield from _compare(place.file("usage"), None, rounds, where="")
    if place.postgres is not None:
        yield from _compare(place.postgres, "usage", rounds, where="Postgres: ")


def _compare(url: str, schema: str | None, rounds: int, *, where: str) -> Iterator[Row]:
    with ExitStack() as stack:
        store = stack.enter_context(persist.Store.open(url, schema=schema, migrate=True))
        times = interleaved({"plain": _sample(store, _FIGURES), "model": _sample(store, _CALL)}, rounds=rounds, warm=20)
        yield _row(f"{where}a sample of usage that names a model, vs one that does not", times, "model", 1.09)
        store.usage.budgets.set("owner:maria", "total", max_cost_usd_micros=10**12)
        times = interleaved({"plain": _sample(store, _FIGURES), "budget": _sample(store, _CALL)}, rounds=rounds, warm=20)
        yield _row("  … under a budget of its owner", times, "budget", float("inf"))


def _row(what: str, times: dict[str, list[float]], name: str, goal: float) -> Row:
    ours, plain = middle(times[name]), middle(times["plain"])
    return Row(what, ours / plain, goal, f"{us(ours)} vs {us(plain)}")


def _sample(store: persist.Store, about: dict[str, Any]) -> Operation:
    seconds = count()

    def one() -> None:
        with store.begin() as tx:
            tx.telemetry.usage.sample(at=_FIRST + timedelta(seconds=next(seconds)), **about)

    call: Callable[[], None] = one
    return call
