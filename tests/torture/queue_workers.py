"""Workers that are killed while limits, retries, waits for signals, effects and schedules are under way.

Whatever is killed: an effect is done once, a schedule queues each of its instants once, no more runs of a key run at once than
its limit lets, and in the end every run has succeeded.
"""

import itertools
import logging
import operator
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from sqlalchemy import func, select

from persist import Store
from persist.db.statements.prepared import Statement
from persist.errors import EffectUnknown
from persist.workflows import Worker
from persist.workflows.models import runs
from persist.workflows.schemas import WorkflowRun
from tests.torture.killed_processes import Victim, marked, wait_until_gone
from tests.torture.scenario import Ground, Scenario, Tally

_KEY, _AT_ONCE, _RUNS, _MINUTES = "tenant", 2, 6, 5
_NAMES = ("w0", "w1", "w2")
_PATIENCE = 60
_PLACES = Statement(select(func.count()).where(runs.c.concurrency_key == _KEY, runs.c.status == "running"))


class _NotYet(Exception):  # noqa: N818  # a handler's failure, to be tried again
    """What the first attempt of each job ends with."""


def work(acknowledge: Connection, url: str, name: str, world: Path) -> None:
    """A process with a worker, until nothing can be claimed; it acknowledges each effect that is stored."""

    def job(run: WorkflowRun) -> None:
        if run.attempt == 1:
            raise _NotYet
        if store.workflows.signals.wait(worker.lease(run), "go") is None:
            return
        try:
            with worker.step(run, "post") as step:
                if step.due:
                    _post(world, run)
        except EffectUnknown:  # somebody died around it: look at the world
            if run.id not in world.read_text(encoding="utf-8").split():
                with worker.step(run, "post", retry=True):
                    _post(world, run)
            else:
                store.workflows.effects.complete(run.id, "post")
        acknowledge.send(run.id)

    logging.getLogger("persist").addHandler(logging.NullHandler())  # of the failures of handlers it says a lot
    with Store.open(url) as store:
        handlers: dict[str, Callable[[WorkflowRun], None]] = {"job": job, "tick": lambda run: None}
        worker = Worker(
            store, handlers, name=name, concurrency=2, lease=timedelta(hours=1), retry=lambda run, error: timedelta(0)
        )
        worker.run(until_idle=True)


def _post(world: Path, run: WorkflowRun) -> None:
    with world.open("a", encoding="utf-8") as file:
        file.write(f"{run.id}\n")


def killed_workers(ground: Ground, tally: Tally) -> None:
    for number in ground.rounds():
        url, world = ground.new_url(), ground.folder / f"world-{number}"
        world.touch()
        begins = datetime.now(UTC).replace(second=0, microsecond=0)
        earlier = partial(operator.sub, begins, timedelta(minutes=_MINUTES))
        with Store.open(url, clock=earlier) as store:
            ids = _begin(store)
        with Store.open(url) as store:
            told = iter(ids)
            for _ in range(6):
                victims = [Victim(work, marked(url), name, world) for name in _NAMES]
                end = time.monotonic() + ground.random.random()
                while time.monotonic() < end:
                    _look(store, tally)
                    for id in itertools.islice(told, ground.random.randint(0, 1)):
                        store.workflows.signals.send(id, "go")
                tally.acknowledged += sum(len(victim.kill()) for victim in victims)
                wait_until_gone(url)
            for id in told:
                store.workflows.signals.send(id, "go")
            _finish(store, url, world)
            _judge(store, ids, world, begins, tally)
        tally.rounds += 1


def _begin(store: Store) -> list[str]:
    """The ids of jobs under one key, beside a schedule that is due for some minutes."""
    with store.begin() as tx:
        tx.workflows.limits.set(_KEY, concurrency=_AT_ONCE)
        about = {"trigger_id": "t", "current_phase": "begin", "status": "queued"}
        created = [
            tx.workflows.runs.create("job", **about, concurrency_key=_KEY, max_attempts=1000, max_restarts=1000)  # type: ignore[arg-type]  # of str
            for _ in range(_RUNS)
        ]
        tx.workflows.schedules.set("tick", workflow_name="tick", cron="* * * * *", catch_up="all")
    return [run.id for run in created]


def _look(store: Store, tally: Tally) -> None:
    with store.read() as tx:
        row = tx._work.row(_PLACES)
    if row is not None and row[0] > _AT_ONCE:
        tally.problems.append(f"{row[0]} runs of a key ran at once")


def _finish(store: Store, url: str, world: Path) -> None:
    """Let workers of the same names, which nobody kills, do what is left."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and store.workflows.runs.count(status=["queued", "running", "paused"]):
        for victim in [Victim(work, url, name, world) for name in _NAMES]:
            victim.end(_PATIENCE)


def _judge(store: Store, ids: list[str], world: Path, begins: datetime, tally: Tally) -> None:
    posted = Counter(world.read_text(encoding="utf-8").split())
    tally.lost += sum(posted[id] == 0 for id in ids)
    tally.problems += [f"the effect of {id} was done {count} times" for id, count in posted.items() if count > 1]
    ends = Counter(run.status for run in store.workflows.runs.list(limit=1000).items)
    tally.problems += [f"{count} runs are {status}" for status, count in ends.items() if status != "succeeded"]
    ticks = [store.workflows.runs.get(run.id) for run in store.workflows.runs.list(workflow_name="tick", limit=1000).items]
    fired = sorted(datetime.fromisoformat(str((run.context or {})["scheduled_for"])) for run in ticks)
    due = [begins - timedelta(minutes=_MINUTES - number - 1) for number in range(max(len(fired), _MINUTES))]
    if fired != due:
        tally.problems.append(f"the schedule fired at {fired} instead of {due}")


SCENARIOS = [Scenario("workers of a queue killed", ("sqlite", "postgres"), killed_workers)]
