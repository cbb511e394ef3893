"""A recorder's process is killed while an answer streams in."""

import time
from multiprocessing.connection import Connection
from typing import Any

from persist.chat.accumulator import reduce
from persist.settings import Settings
from persist.store import Store
from tests.torture.integrity import intact
from tests.torture.scenario import Ground, Scenario, Tally
from tests.torture.victims import sudden


def answer(seed: int) -> list[dict[str, Any]]:
    """One long part among short ones, with a call of a tool; folds come often (see `record`)."""
    chunks: list[dict[str, Any]] = [{"type": "start", "messageId": f"m{seed}"}]
    for step in range(3):
        call = f"call {seed} {step}"
        chunks += [{"type": "start-step"}, {"type": "text-start", "id": "t"}]
        chunks += [{"type": "text-delta", "id": "t", "delta": f"{step}.{piece} of {seed}, "} for piece in range(60)]
        chunks += [{"type": "text-end", "id": "t"}, {"type": "tool-input-start", "toolCallId": call, "toolName": "bash"}]
        chunks += [{"type": "tool-input-delta", "toolCallId": call, "inputTextDelta": piece} for piece in ('{"a":', "1", "}")]
        chunks.append({"type": "tool-input-available", "toolCallId": call, "toolName": "bash", "input": {"a": 1}})
        chunks += [{"type": "tool-output-available", "toolCallId": call, "output": "x" * 500}, {"type": "finish-step"}]
    return [*chunks, {"type": "finish"}]


def record(acknowledge: Connection, url: str, session: str, seed: int) -> None:
    with Store.open(url, settings=Settings(fold_bytes=300)) as store, store.record(session) as recorder:
        for number, chunk in enumerate(answer(seed), start=1):
            recorder.feed(chunk)
            acknowledge.send(number)
    time.sleep(60)


def killed_recorders(ground: Ground, tally: Tally) -> None:
    """What `feed` returned for is there, at most one chunk more is, and the next recorder goes on without being told to."""
    url = ground.new_url()
    with Store.open(url) as store:
        for number in ground.rounds():
            with store.begin() as tx:
                session = tx.chat.sessions.create(agent="build", model={"provider_id": "p", "model_id": "m"}).id
            acknowledged = sudden(record, ground.random, url, session, number, first=200, seconds=0.02)
            with store.read() as tx:
                found = tx.chat.messages.list(session)
            tally.rounds += 1
            tally.acknowledged += len(acknowledged)
            chunks = answer(number)
            allowed = [[reduce(chunks[:count])] for count in (len(acknowledged), len(acknowledged) + 1) if count]
            if found not in (allowed if acknowledged else [*allowed, []]):
                tally.lost += 1
            with store.record(session) as recorder:
                recorder.feed_many([chunks[0], {"type": "finish"}])
            tally.repaired += bool(found)
        intact(url, tally)


SCENARIOS = [Scenario("recorders killed", ("sqlite", "postgres"), killed_recorders)]
