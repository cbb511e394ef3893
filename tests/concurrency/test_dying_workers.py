"""Workers of `persist.workflows` that are killed at every moment: each phase is done once, and no run is lost."""

import random
import signal
from collections import Counter
from pathlib import Path

from persist import Store
from tests.contract.workflows.scenes import queue, stored
from tests.subprocesses import Worker

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
