"""Plain verbs of every domain, timed in a process of their own: `python -m benchmarks.plain_verbs URL [--round-trips]`.

The package that is measured is the one that the process imports, so this file uses public names alone, and those that an older
commit may have, too: a verb that this commit lacks is left out. `benchmarks/before.py` runs it on two commits in turn.
"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg

from persist import Store, upgrade
from tests.roundtrips.proxy import CountingProxy

Call = Callable[[], object]

CALLS, SLOW_CALLS, TURNS = 60, 6, 3
"""Calls of a turn, of one that makes a whole file, and turns of a verb: the least of these counts."""

_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_LEASE = timedelta(minutes=5)
_TEXT = [{"type": "text", "text": "A sentence of some length, as a person types it."}]
_ANSWER = [
    {"type": "start"},
    {"type": "text-start", "id": "t"},
    {"type": "text-delta", "id": "t", "delta": "Yes."},
    {"type": "text-end", "id": "t"},
    {"type": "finish"},
]
_ROWS = 30
"""What a list, a fork and a get have before them."""


class Verbs:
    """Makes calls of verbs, each in a transaction of its own."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def write(self, verb: Callable[[Any], Any]) -> Any:
        """Run it in a transaction that writes, at once."""
        with self.store.begin() as tx:
            return verb(tx)

    def writing(self, verb: Callable[[Any], Any]) -> Call:
        """A call of it in a transaction that writes."""
        return lambda: self.write(verb)

    def reading(self, verb: Callable[[Any], Any]) -> Call:
        """A call of it in a snapshot."""

        def call() -> None:
            with self.store.read() as tx:
                verb(tx)

        return call


def _chat(verbs: Verbs) -> Iterator[tuple[str, Call]]:
    numbers = count()
    create = verbs.writing(lambda tx: tx.chat.sessions.create(agent="listed", model={}))
    session, appended, answered = (verbs.write(lambda tx: tx.chat.sessions.create(agent="bench", model={})).id for _ in range(3))
    for _ in range(_ROWS):
        last = verbs.write(lambda tx: tx.chat.messages.append(session, role="user", parts=_TEXT)).id
        create()

    def answer() -> None:
        with verbs.store.record(answered) as recorder:
            for chunk in _ANSWER:
                recorder.feed(chunk)

    yield "chat.sessions.create", verbs.writing(lambda tx: tx.chat.sessions.create(agent="made", model={}, metadata={"a": 1}))
    yield "chat.sessions.get", verbs.reading(lambda tx: tx.chat.sessions.get(session))
    yield "chat.sessions.list", verbs.reading(lambda tx: tx.chat.sessions.list(agent="listed"))
    yield "chat.sessions.fork", verbs.writing(lambda tx: tx.chat.sessions.fork(session, last))
    yield (
        "chat.sessions.update_metadata",
        verbs.writing(lambda tx: tx.chat.sessions.update_metadata(session, {"n": next(numbers)})),
    )
    yield "chat.messages.append", verbs.writing(lambda tx: tx.chat.messages.append(appended, role="user", parts=_TEXT))
    yield "chat.messages.list", verbs.reading(lambda tx: tx.chat.messages.list(session))
    yield "chat.prompts.put", verbs.writing(lambda tx: tx.chat.prompts.put(f"Be brief. {next(numbers)}"))
    yield "a whole short answer", answer


def _recording(verbs: Verbs) -> Iterator[tuple[str, Call]]:
    session = verbs.write(lambda tx: tx.chat.sessions.create(agent="bench", model={}))
    recorder = verbs.store.record(session.id)
    recorder.__enter__()  # it is left with the process: each chunk of a stream that does not end
    for chunk in _ANSWER[:2]:
        recorder.feed(chunk)
    yield "a recorded chunk", lambda: recorder.feed(_ANSWER[2])


def _workflows(verbs: Verbs) -> Iterator[tuple[str, Call]]:
    about: Any = {"trigger_id": "issue/1", "current_phase": "plan"}
    run = verbs.write(lambda tx: tx.workflows.runs.create("triage", **about)).id
    for _ in range(_ROWS):
        verbs.write(lambda tx: tx.workflows.runs.create("listed", **about))

    def claim_and_end() -> None:
        verbs.write(lambda tx: tx.workflows.runs.create("claimed", status="queued", **about))
        lease = verbs.write(lambda tx: tx.workflows.runs.claim("bench", lease=_LEASE, workflow_name="claimed"))
        verbs.write(lambda tx: tx.workflows.runs.finish(lease.run.id, "succeeded", lease=lease))

    def phase() -> None:
        begun: Any = {"skill": "triage:plan", "trigger_type": "bench", "trigger_id": "issue/1", "workflow_run_id": run}
        made = verbs.write(lambda tx: tx.workflows.executions.start(**begun)).id
        verbs.write(lambda tx: tx.workflows.executions.finish(made, success=True, input_tokens=1, output_tokens=1, cost_usd=0.01))

    yield "workflows.runs.create", verbs.writing(lambda tx: tx.workflows.runs.create("made", **about))
    yield "workflows.runs.get", verbs.reading(lambda tx: tx.workflows.runs.get(run))
    yield "workflows.runs.list", verbs.reading(lambda tx: tx.workflows.runs.list(limit=20))
    yield "workflows.runs: create, claim and end", claim_and_end
    yield "workflows.executions: start and finish", phase
    yield "workflows.signals.send", verbs.writing(lambda tx: tx.workflows.signals.send(run, "paid", {"a": 1}))


def _telemetry(verbs: Verbs) -> Iterator[tuple[str, Call]]:
    numbers = count()

    def sample(tx: Any) -> None:
        tx.telemetry.usage.sample(at=_AT + timedelta(seconds=next(numbers)), token_input=5, instance_id="box")

    def record(tx: Any) -> None:
        tx.telemetry.status.record(("idle", "working")[next(numbers) % 2], instance_id="box")

    yield "telemetry.usage.sample", verbs.writing(sample)
    yield "telemetry.status.record", verbs.writing(record)
    yield "usage.calls.record", verbs.writing(lambda tx: tx.usage.calls.record(model="m", instance_id="box", token_input=1))


def _talks(verbs: Verbs) -> Iterator[tuple[str, Call]]:
    numbers = count()

    def record(tx: Any) -> None:
        said = {"id": f"said-{next(numbers)}", "created_at": 2.5, "role": "user", "content": "x"}
        tx.conversations.messages.record("main", said)

    def session(tx: Any) -> Any:
        return tx.messaging.sessions.get_or_create(platform="slack", channel_id="C", user_id="U")

    verbs.write(lambda tx: tx.conversations.sessions.create(id="talk", name="n"))
    verbs.write(lambda tx: tx.conversations.branches.create("talk", id="main", name="main"))
    for _ in range(_ROWS):
        verbs.write(record)
    talk = verbs.write(session).id
    yield "conversations.sessions.create", verbs.writing(lambda tx: tx.conversations.sessions.create(name="n"))
    yield "conversations.sessions.list", verbs.reading(lambda tx: tx.conversations.sessions.list())
    yield "conversations.messages.record", verbs.writing(record)
    yield "messaging.sessions.get_or_create", verbs.writing(session)
    yield "messaging.messages.add", verbs.writing(lambda tx: tx.messaging.messages.add(talk, role="user", content="hi"))
    yield "messaging.messages.history", verbs.reading(lambda tx: tx.messaging.messages.history(talk))


def _programs(verbs: Verbs) -> Iterator[tuple[str, Call]]:
    numbers = count()
    verbs.write(lambda tx: tx.programs.runs.create(id="program"))
    verbs.write(lambda tx: tx.programs.bindings.bind("program", "goal", "1"))

    def statement(tx: Any) -> None:
        made = tx.programs.executions.begin("program", statement_index=next(numbers), statement_text="session")
        tx.programs.executions.complete("program", made.id)

    yield "programs.bindings.bind", verbs.writing(lambda tx: tx.programs.bindings.bind("program", f"x{next(numbers)}", "1"))
    yield "programs.bindings.get", verbs.reading(lambda tx: tx.programs.bindings.get("program", "goal"))
    yield "programs.executions: begin and complete", verbs.writing(statement)


def _frameworks(verbs: Verbs) -> Iterator[tuple[str, Call]]:
    from persist import AgentTaskPiece, CheckpointBlob  # an older commit lacks them, and keeps its other domains

    numbers, head, piece = count(1), CheckpointBlob("msgpack", b"\x00\xff"), [AgentTaskPiece("history", 0, 0, b"said")]
    task: Any = {"state": "working", "head": b"h", "pieces": piece, "status_key": "1"}
    verbs.write(lambda tx: tx.checkpoints.states.put("thread", "0", head=head))
    verbs.write(lambda tx: tx.app_sessions.sessions.create("app", "maria", "talk"))

    def append(tx: Any) -> None:
        tx.transcripts.entries.append("-work", "ses", [{"type": "user", "uuid": f"n{next(numbers)}"}])

    yield "checkpoints.states.put", verbs.writing(lambda tx: tx.checkpoints.states.put("thread", f"{next(numbers)}", head=head))
    yield "checkpoints.states.find", verbs.reading(lambda tx: tx.checkpoints.states.find("thread"))
    yield "transcripts.entries.append", verbs.writing(append)
    yield (
        "replay_streams.messages.append",
        verbs.writing(lambda tx: tx.replay_streams.messages.append("client", "1", "said", keep=100)),
    )
    yield "app_sessions.sessions.load", verbs.reading(lambda tx: tx.app_sessions.sessions.load("app", "maria", "talk"))
    yield "agent_tasks.tasks.save", verbs.writing(lambda tx: tx.agent_tasks.tasks.save("ann", "t", **task))
    yield "histories.records.list", verbs.reading(lambda tx: tx.histories.records.list())


def _others(verbs: Verbs) -> Iterator[tuple[str, Call]]:
    numbers = count()
    yield "an empty begin()", verbs.writing(lambda tx: None)
    yield "an empty read()", verbs.reading(lambda tx: None)
    yield "blobs.put", verbs.writing(lambda tx: tx.blobs.put(b"%d" % next(numbers), "text/plain"))


DOMAINS = (_chat, _recording, _workflows, _telemetry, _talks, _programs, _frameworks, _others)


def verbs(store: Store) -> Iterator[tuple[str, Call]]:
    """Each plain verb with a call of it; a domain or a verb that this commit has not, or has otherwise, is left out."""
    for domain in DOMAINS:
        with suppress(AttributeError, ImportError, TypeError):
            for name, call in domain(Verbs(store)):
                with suppress(AttributeError, TypeError):
                    call()
                    yield name, call


def _opening(folder: Path) -> Iterator[tuple[str, Call]]:
    numbers, current = count(), f"sqlite:///{folder / 'current.db'}"
    Store.open(current).close()
    yield "opening a current file", lambda: Store.open(current).close()
    yield "making a file", lambda: Store.open(f"sqlite:///{folder / f'new-{next(numbers)}.db'}").close()


def least(call: Call, calls: int) -> float:
    """Processor seconds of one call: the least of several turns, after calls that prepare its statements."""
    for _ in range(3):
        call()
    turns = []
    for _ in range(TURNS):
        gc.collect()
        gc.disable()
        started = time.process_time()
        for _ in range(calls):
            call()
        turns.append((time.process_time() - started) / calls)
        gc.enable()
    return min(turns)


def _round_trips(url: str) -> dict[str, float]:
    """How often each verb waits for an answer of Postgres, once everything is prepared: the fewest of some counts."""
    psycopg.connect = partial(psycopg.connect, prepare_threshold=0)
    proxy = CountingProxy(url)

    def waited(call: Call) -> int:
        with proxy.counted(0.01) as flights:
            call()
        return len(flights)

    try:
        with Store.open(proxy.url) as store:
            return {name: min(waited(call) for _ in range(4)) for name, call in verbs(store)}
    finally:
        proxy.close()


def main() -> int:
    """JSON: the figure of every verb by its name."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("url", nargs="?", help="an empty Postgres database; without one, a SQLite file is made")
    options.add_argument("--round-trips", action="store_true", help="count them, instead of processor time")
    given = options.parse_args()
    with TemporaryDirectory(prefix="persist-bench-", ignore_cleanup_errors=True) as folder:
        if given.url:
            upgrade(given.url)
        if given.round_trips:
            figures = _round_trips(given.url)
        else:
            with Store.open(given.url or f"sqlite:///{Path(folder) / 'plain.db'}") as store:
                figures = {name: least(call, CALLS) for name, call in verbs(store)}
            if not given.url:
                figures |= {name: least(call, SLOW_CALLS) for name, call in _opening(Path(folder))}
    print(json.dumps(figures), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
