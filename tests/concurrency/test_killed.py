"""Recorders, workers and writers of usage that are killed at any moment, and servers that stall at a commit."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.chat.reducer import reduce
from persist.maintenance import doctor, prune
from tests.concurrency.usage_worker import CUT
from tests.concurrency.worker import stream
from tests.contract.chat.scenes import MODEL, create, record, shown, text
from tests.contract.workflows.scenes import queue, stored
from tests.subprocesses import ROOT, Spawn, Worker
from tests.torture.outage_hosts import Fate, Message, Proxy

CUTS = [1, 2, 3, 5, 43, 44, 46, 54, 55, 90, 120, len(stream())]


def killed_after(process: Worker, acknowledged: int) -> int:
    """Kill it once it has said so many -> how many chunks it had acknowledged by then."""
    said = 0
    while said < acknowledged:
        said = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split()
    process.wait(30)
    return int(rest[-1]) if rest else said


@pytest.mark.parametrize("cut", CUTS)
def test_every_acknowledged_chunk_is_there(store: Store, spawn: Spawn, database_url: str, cut: int) -> None:
    session = create(store)
    acknowledged = killed_after(spawn("record", session), cut)
    found = shown(store, session)
    # the one it was just writing may be there too
    possible = [reduce(stream()[:count]) for count in (acknowledged, acknowledged + 1)]
    assert (found or [reduce(stream()[:1])])[0] in possible
    assert len(found) <= 1
    if database_url.startswith("sqlite"):
        connection = sqlite3.connect(database_url.removeprefix("sqlite:///"))
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.close()
    resumed = [{"type": "start", "messageId": "m"}, *text("goes on", id="next"), {"type": "finish"}]
    record(store, session, resumed)  # its process is gone: no takeover is needed
    (message,) = shown(store, session)
    assert message["parts"][:-1] == (found[0]["parts"] if found else [])
    assert message["parts"][-1] == {"type": "text", "text": "goes on", "state": "done"}


def test_a_dead_process_holds_no_turn(store: Store, spawn: Spawn) -> None:
    session = create(store)
    killed_after(spawn("record", session), 60)
    with store.begin() as tx:
        waiting = tx.chat.messages.enqueue(session, parts=[])
        claimed: Any = tx.chat.messages.claim_queued(session)
        assert claimed is not None
        assert claimed.id == waiting.id
        tx.chat.sessions.fork(session, "m")


def test_a_killed_process_whose_parent_never_asks_for_it_holds_no_turn(store: Store, database_url: str) -> None:
    session = create(store)
    line = [sys.executable, "-m", "tests.concurrency.worker", "record", database_url, session]
    with subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # its number is still taken
        record(store, session, [{"type": "start", "messageId": "next"}, *text("goes on"), {"type": "finish"}])
        assert [message["id"] for message in shown(store, session)][-1] == "next"


def test_a_killed_call_is_repaired_with_what_had_come_of_its_input(store: Store, spawn: Spawn) -> None:
    session = create(store)
    acknowledged = killed_after(spawn("record", session), 50)
    before = shown(store, session)[0]["parts"]
    unfinished = [part for part in before if str(part.get("state", "")).startswith("input")]
    with store.begin() as tx:
        assert tx.chat.messages.repair_interrupted(session) == len(unfinished)
    after = shown(store, session)[0]["parts"]
    assert acknowledged >= 50
    assert [part for part in after if str(part.get("state", "")).startswith("input")] == []
    for part in unfinished:
        repaired = next(found for found in after if found.get("toolCallId") == part["toolCallId"])
        assert (repaired["state"], repaired["errorText"]) == ("output-error", "aborted by host restart")


# Processes that write usage, trim its window and prune it are killed at any moment: sums, window and budgets still agree.


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


# Workers of `persist.workflows` that are killed at every moment: each phase is done once, and no run is lost.


RUNS, NAMES = 12, ("w0", "w1", "w2")
PATIENCE = 120


def test_killed_at_any_moment_workers_do_each_phase_once(store: Store, database_url: str, tmp_path: Path) -> None:
    world = tmp_path / "world"
    world.touch()
    ids = [queue(store, max_restarts=1000) for _ in range(RUNS)]

    def at_once(*moments: int) -> Counter[int]:
        """Return codes of workers, of which each dies after so many moments. One of a name takes up what the former held."""
        working = [
            Worker("tests.concurrency.dying_worker", database_url, name, world, number)
            for name, number in zip(NAMES, moments, strict=True)
        ]
        try:
            return Counter(process.wait(PATIENCE) for process in working)
        finally:
            for process in working:
                process.close()

    seeded = random.Random(7)
    killed = sum(at_once(*(seeded.randint(1, 12) for _ in NAMES))[-signal.SIGKILL] for _ in range(8))
    assert killed >= len(NAMES)
    assert at_once(0, 0, 0) == {0: 3}  # what a worker held that had ended is claimed by its name's next process

    for id in ids:
        run = stored(store, id)
        assert (run.status, run.lease_owner) == ("succeeded", None)
        assert [item["phase"] for item in run.phase_history] == ["plan", "apply"]
        with store.read() as tx:
            done = [found.skill for found in tx.workflows.executions.for_run(id) if found.success]
            assert sorted(done) == ["build:apply", "build:plan"]
            assert tx.workflows.effects.get(id, "comment").state == "done"
    assert sorted(world.read_text(encoding="utf-8").split()) == sorted(ids)


# The answer to a snapshot's COMMIT that never arrives, or arrives in part, keeps no store from being closed.


@pytest.mark.parametrize("stalled", [b"C", b"Z"], ids=["all of it", "its end"])
def test_a_store_closes_whose_last_answer_is_held_back(new_postgres_database: Callable[..., str], stalled: bytes) -> None:
    with Proxy(new_postgres_database(), random.Random(1)) as proxy:
        store = Store.open(proxy.url)
        session = create(store)
        with store.read() as tx:
            tx.chat.sessions.get(session)
            seen: list[bytes] = []

            def judge(message: Message) -> Fate:
                if not message.from_server:
                    return Fate.PASS
                seen.append(message.kind)
                return Fate.STALL if message.kind == stalled else Fate.PASS  # what comes after it is held back with it

            proxy.judge = judge
        store.close()
        assert seen[-1:] == [stalled]
