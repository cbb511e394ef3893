"""Processes that write usage, trim its window and prune it are killed at any moment: sums, window and budgets still agree."""

import signal
from collections import Counter
from contextlib import ExitStack
from typing import Any

from persist import Store
from persist.maintenance import doctor, prune
from tests.concurrency.usage_worker import CUT
from tests.contract.chat.scenes import MODEL
from tests.subprocesses import Worker

WORKERS = 3


def test_sums_agree_with_calls_after_kills(store: Store, database_url: str) -> None:
    with store.begin() as tx:
        sessions = [tx.chat.sessions.create(agent="build", model=MODEL, owner="trimmed").id for _ in range(WORKERS)]
        tx.usage.budgets.set("owner:trimmed", "total", max_tokens=1_000_000)
    with ExitStack() as stack:
        workers = [
            stack.enter_context(Worker("tests.concurrency.usage_worker", database_url, f"w{number}", session))
            for number, session in enumerate(sessions)
        ]
        for turn, worker in enumerate(workers):
            while int(worker.stdout.readline()) < 4 + turn:
                pass
            worker.send_signal(signal.SIGKILL)
            worker.wait(30)
    prune(store, "usage", older_than=CUT)
    with store.read() as tx:
        calls = [
            *tx.usage.calls.list(instance_id="kept", limit=1000).items,
            *tx.usage.calls.list(run_id="kept", limit=1000).items,
        ]
        days = tx.usage.by_day(owner="pruned").items
        hours = {one.starts_at: (one.calls, one.token_input) for one in tx.usage.by_hour(owner="pruned").items}
        scopes = {str(one.group): one for one in tx.usage.by_group("scope", owner="trimmed").items}
        (standing,) = tx.usage.budgets.standings()
        newest = {scope: _newest(tx, scope) for scope in scopes}
        stored = [tx.chat.sessions.get(id).total_tokens for id in sessions]
        samples = tx.telemetry.usage.totals(instance_id="trimmed").token_input
    counted = Counter(call.occurred_at.replace(minute=0, second=0, microsecond=0) for call in calls)
    assert hours == {hour: (number, 3 * number) for hour, number in counted.items()}
    assert [(one.starts_at, one.calls) for one in days] == [(CUT, len(calls))]
    assert {scope: one.calls for scope, one in scopes.items()} == newest, "calls are numbered without a gap"
    used = {scope: one.token_input + one.token_output for scope, one in scopes.items()}
    assert standing.tokens == sum(used.values())
    assert used["instance:trimmed"] == samples
    assert sum(stored) == standing.tokens - used["instance:trimmed"] > 0
    assert [found for found in doctor(store) if found.code != "turn_dead"] == []


def _newest(tx: Any, scope: str) -> int:
    kind, id = scope.split(":")
    found = tx.usage.calls.list(**{f"{kind}_id": id}, limit=1000).items
    assert len(found) < 5 + 2
    return int(found[0].seq)
