"""Numbers that several threads change at once, and recorders that come and go."""

from concurrent.futures import ThreadPoolExecutor

from persist.db.observation import Counters, RecorderTally


def test_nothing_is_lost_between_threads() -> None:
    counters = Counters()

    def count(number: int) -> None:
        for _ in range(500):
            counters.committed(1.0, 2.0)
            counters.transaction_ended("rolled_back", 0.0, 0.0)
            counters.retried("lock")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    assert (counters.commits, counters.waited, counters.committing) == (2000, 2000.0, 4000.0)
    assert (counters.outcomes["rolled_back"], counters.retries["lock"]) == (2000, 2000)


def test_ended_recorders_are_kept_as_sums_alone() -> None:
    counters = Counters()
    for number in range(100):
        tally = RecorderTally()
        tally.chunks, tally.bytes = 2, 10
        counters.recorder_began(tally)
        counters.recorder_ended(tally)
        if number % 2:
            counters.recorder_ended(tally)  # closed, then collected
    refused, withdrawn, running = RecorderTally(), RecorderTally(), RecorderTally()
    counters.recorder_ended(refused)  # it never began
    counters.recorder_began(withdrawn)
    counters.recorder_withdrawn(withdrawn)
    counters.recorder_began(running)
    running.chunks = 1
    recorders, ended, total = counters.recorders()
    assert (recorders, ended, total.chunks, total.bytes) == (1, 100, 201, 1000)
    assert len(vars(counters)["_recorders"]) == 1
    assert not vars(counters)["_over"]
