"""What a process runs that is killed while it writes usage: `python -m tests.concurrency.usage_worker URL NAME SESSION`."""

import sys
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from persist import Store
from persist.errors import StoreBusy
from persist.maintenance import prune
from persist.settings import Settings

CUT = datetime(2026, 3, 10, tzinfo=UTC)
"""The instant before which usage is pruned."""


def main(url: str, name: str, session: str) -> None:
    """Write calls, samples and steps until the process is killed, trim the window of the second store and prune by age."""
    random, number = Random(name), 0
    with Store.open(url) as store, Store.open(url, settings=Settings(usage_calls_keep=5, usage_calls_trim_every=2)) as trimming:
        while True:
            number += 1
            at = CUT + timedelta(minutes=random.randrange(-100, 100))
            call: dict[str, Any] = {"model": random.choice("ab"), "token_input": 3, "cost_usd_micros": 2}
            try:
                store.telemetry.usage.sample(at=at, owner="pruned", instance_id="kept", key=f"{name}-{number}", **call)
                store.usage.calls.record(at=at, owner="pruned", run_id="kept", **call)
                trimming.telemetry.usage.sample(at=datetime.now(UTC), owner="trimmed", instance_id="trimmed", **call)
                if number % 2 == 0:
                    with trimming.record(session, takeover=True) as recorder:
                        recorder.feed({"type": "start"})
                        recorder.step_usage(0, input_tokens=3, output_tokens=1, reasoning_tokens=1, cost_usd=0.000002)
                        recorder.feed_many([{"type": "text-start", "id": "t"}, {"type": "finish"}])
                if number % 3 == 0:
                    prune(store, "usage_calls", older_than=CUT)
                    prune(store, "usage_rollups", older_than=CUT)
            except StoreBusy:
                continue
            print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
