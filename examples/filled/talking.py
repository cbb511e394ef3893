"""Two answers that are told word by word, again and again, and a worker that renews its lease on a run."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
from threading import Event, Thread

from examples.filled.chats import ANALYSIS, LIVE, MODEL
from examples.filled.chunks import Chunk, called, told
from examples.filled.queue import LEASED, WORKER
from persist import LeaseLost, NotFound, Store
from persist.workflows.schemas import Lease

PAUSES = (0.12, 0.18)
"""Seconds between two words, in each of the chats."""
KEPT = 12
"""How many questions a chat keeps: older ones go, so that a page can stay open for days."""
_LEASE = timedelta(minutes=2)
_QUESTIONS = (
    ("Is the new total exact?", "And the tests?", "What about the old invoices?", "Would you merge it?"),
    ("What did you read since?", "Which queue is the simplest?", "What does it cost?", "And what would you do?"),
)
_NOTES = """I read four more pages. **What they agree on:**

- a queue in the database is the simplest one to run, back up and look at
- it is fast enough for some thousand jobs a minute
- a *second* system is worth it when other teams send jobs, too

```sql
SELECT count(*) FROM workflow_runs WHERE status = 'queued';
```

What I have not found out yet is how they fare when the disk is full. I go on with that."""


def talk(store: Store, stop: Event) -> None:
    """Talk until `stop` is set, and leave no turn and no lease behind that is not one of a living process."""
    parts = [(_chat, 0), (_chat, 1), (_hold, 0)]
    failures: list[BaseException] = []

    def run(part: Callable[[Store, Event, int], None], number: int) -> None:
        try:
            part(store, stop, number)
        except BaseException as error:
            failures.append(error)
            stop.set()

    threads = [Thread(target=run, args=part, daemon=True) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _chat(store: Store, stop: Event, number: int) -> None:
    chat, pause = LIVE[number], PAUSES[number]
    store.chat.messages.repair_interrupted(chat)
    for turn in count():
        if stop.is_set():
            return
        questions = _QUESTIONS[number]
        asked = [{"type": "text", "text": questions[turn % len(questions)]}]
        store.chat.messages.append(chat, role="user", parts=asked)
        forget(store, chat)
        with store.record(chat, model=MODEL) as recorder:
            for chunk in _answer(number, turn):
                recorder.feed(chunk)
                if chunk["type"].endswith("-delta"):
                    stop.wait(pause)
                if stop.is_set() or recorder.stop_requested:
                    recorder.feed({"type": "abort"})
                    break
            else:
                recorder.step_usage(0, input_tokens=2_100, output_tokens=190, reasoning_tokens=30, cost_usd=0.004)
                recorder.feed_many([{"type": "finish-step"}, {"type": "finish", "finishReason": "stop"}])
        stop.wait(2 + number)


def _answer(number: int, turn: int) -> Iterator[Chunk]:
    yield {"type": "start"}
    yield {"type": "start-step"}
    if number == 0:
        yield from told("reasoning", "r", "They want it short. I look at the file once more, and then I say what I think of it.")
        yield from called(f"call-live-{turn}", "read", {"path": "checkout/totals.py"}, {"lines": 34, "round": turn})
        yield from told("text", "t", ANALYSIS)
    else:
        yield from told("text", "t", _NOTES)


def forget(store: Store, chat: str) -> None:
    """Delete what was said before the latest questions."""
    for message in store.chat.messages.list_rows(chat, include_hidden=True)[: -2 * KEPT]:
        store.chat.messages.delete(message.id)


def _hold(store: Store, stop: Event, _: int) -> None:
    """A worker that renews its lease on one run, and takes it anew if it has expired."""
    runs = store.workflows.runs
    try:
        runs.get(LEASED)
    except NotFound:
        return
    lease: Lease | None = next((held for held in runs.held_by(WORKER) if held.run_id == LEASED), None)
    while not stop.is_set():
        try:
            lease = lease and runs.renew(lease, lease_for=_LEASE)
        except LeaseLost:
            lease = None
        lease = lease or runs.claim(WORKER, lease=_LEASE, workflow_name="support-inbox")
        stop.wait(_LEASE.total_seconds() / 6)
    if lease is not None:
        runs.release(lease)
