"""Workers of `persist.workflows` as processes that SIGTERM stops."""

import signal
import time
from contextlib import suppress

import pytest

from persist import Store
from tests.contract.workflows.scenes import claim, queue, stored
from tests.subprocesses import Worker

faces = pytest.mark.parametrize("face", ["sync", "async"])


@faces
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_worker_when_its_handlers_have_ended(
    store: Store, database_url: str, face: str, number: signal.Signals
) -> None:
    id = queue(store)
    with Worker("tests.concurrency.stopping_worker", database_url, face, "attentive") as process:
        assert process.stdout.readline() == "began\n"
        process.send_signal(number)
        assert process.stdout.readline() == "stopped\n"
        assert process.wait(60) == 0
    assert (stored(store, id).status, claim(store)) == ("succeeded", None)


@faces
def test_a_second_signal_ends_the_process(store: Store, database_url: str, face: str) -> None:
    id = queue(store)
    with Worker("tests.concurrency.stopping_worker", database_url, face, "patient") as process:
        assert process.stdout.readline() == "began\n"
        while process.poll() is None:  # the first one is seen only when the process looks at it
            with suppress(ProcessLookupError):  # it ended in this moment
                process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        assert process.wait(60) == -signal.SIGTERM
    run = stored(store, id)
    assert (run.status, run.lease_owner) == ("running", "w")
