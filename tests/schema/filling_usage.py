"""Usage of everything, for a database with something of everything in it."""

from datetime import timedelta
from typing import Any

from persist import Store
from persist.store.transaction import Transaction
from persist.testing import FrozenClock

_HARD = "quotes ' and \" and \ud83d and \x00"


def fill_usage(store: Store, clock: FrozenClock) -> None:
    """Calls of an instance and a run, their sums in two hours, and budgets that are free, warned of and used up."""
    with store.begin() as tx:
        budgets, calls = tx.usage.budgets, tx.usage.calls
        budgets.set("owner:maria", "month", 5_000_000, 1_000_000, timezone="Europe/Berlin")
        budgets.set("agent:build", "total", max_tokens=1_000)
        budgets.set("workflow:import", "hour", 900)
        told: dict[str, Any] = {
            "provider": "example",
            "operation": "chat",
            "trace_id": "0af7",
            "span_id": "b7ad",
            "task_id": "t1",
        }
        tokens: dict[str, Any] = {"token_input": 900, "token_output": 50, "token_cache_write": 10, "token_reasoning": 20}
        calls.record(model="large", instance_id="box-1", owner="maria", agent="build", workspace="project", **told, **tokens)
        calls.record(model="small", run_id="gone", workflow="import", cost_usd_micros=1_500, duration_ms=12, key="once")
        calls.record(model="small", run_id="gone", at=clock() - timedelta(hours=2), error=_HARD)


def usage_seen(tx: Transaction) -> dict[str, Any]:
    """What a reader sees, as JSON has it, by kind and key."""
    usage = tx.usage
    found = [*usage.calls.list(instance_id="box-1").items, *usage.calls.list(run_id="gone").items]
    return {
        "usage_calls": {f"{call.scope} {call.seq}": call.model_dump(mode="json") for call in found},
        "usage_hours": {
            f"{one.starts_at} {one.group}": one.model_dump(mode="json") for one in usage.by_hour(group="model").items
        },
        "usage_models": {str(one.group): one.model_dump(mode="json") for one in usage.by_model().items},
        "budgets": {f"{one.key} {one.period}": one.model_dump(mode="json") for one in usage.budgets.list()},
    }
