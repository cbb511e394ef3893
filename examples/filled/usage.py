"""What models cost over two weeks, by whom, and what was allowed."""

from collections.abc import Iterable

from examples.filled.times import Ids, Scene, Times
from persist import Store

_CALLS = [
    ("lighthouse-large-2", "lighthouse", "reviewer", "maria", "shop-api", "review", 9_000, 31_000),
    ("lighthouse-small-2", "lighthouse", "support", "otto", "support", "answer-mail", 1_500, 1_400),
    ("lighthouse-large-2", "lighthouse", "researcher", "ines", "notes", "research", 22_000, 64_000),
    ("pebble-code-1", "pebble", "build", "jonas", "shop-web", "index-code", 6_000, 8_500),
    ("pebble-embed-1", "pebble", "build", "jonas", "shop-api", "index-code", 40_000, 400),
]
"""Model, provider, agent, owner, workspace, workflow, tokens of the input, and cost in millionths of a dollar."""


def scenes(store: Store, times: Times, ids: Ids) -> Iterable[Scene]:
    """A scene for budgets, one for the days before, one for today."""
    yield _budgets(store, times, ids)
    yield _calls(store, times)


def _budgets(store: Store, times: Times, ids: Ids) -> Scene:
    yield times.ago(days=14)
    with store.begin() as tx:
        budgets = tx.usage.budgets
        budgets.set("owner:maria", "month", max_cost_usd_micros=2_000_000, timezone="Europe/Berlin")
        budgets.set("workflow:review", "total", max_tokens=1_200_000)
        budgets.set("owner:otto", "total", max_cost_usd_micros=55_000)
        budgets.set("agent:researcher", "total", max_cost_usd_micros=600_000)
        budgets.set("workspace:shop-web", "day", max_cost_usd_micros=100_000, timezone="America/New_York")
        ids |= {"warned_budget": "owner:otto", "exceeded_budget": "agent:researcher"}


def _calls(store: Store, times: Times) -> Scene:
    for day in range(13, -1, -1):
        yield times.ago(days=day, minutes=30) if day else times.today(0.8)
        with store.begin() as tx:
            for number, (model, provider, agent, owner, workspace, workflow, tokens, cost) in enumerate(_CALLS):
                busy = 1 + (day * 3 + number) % 4
                failed = "529: overloaded" if (day, number) in ((2, 0), (6, 2), (9, 4)) else None
                tx.usage.calls.record(
                    model=model,
                    provider=provider,
                    operation="embeddings" if "embed" in model else "chat",
                    agent=agent,
                    owner=owner,
                    workspace=workspace,
                    workflow=workflow,
                    run_id="run-review-412" if day == 2 and agent == "reviewer" else f"run-day-{day}",
                    token_input=tokens * busy,
                    token_output=None if "embed" in model else tokens // 12,
                    token_cache_read=tokens // 2 if day % 2 else None,
                    token_cache_write=tokens // 9 if day % 3 == 0 else None,
                    token_reasoning=tokens // 40 if "large" in model else None,
                    cost_usd_micros=None if failed else cost * busy,
                    duration_ms=700 * busy + 110 * number,
                    error=failed,
                    trace_id=f"{day:02x}7f{number:02x}",
                    key=f"day-{day}-{number}",
                )
                times.later(6)
