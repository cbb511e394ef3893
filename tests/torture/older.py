"""Run by another release's code: it makes or opens a database, writes every domain it has again and again, and says what is kept.

`older.py URL SCHEMA REVISION`; a line on standard input ends it. It prints `made`, the number of each round that is durable,
`busy` for what it was refused with a type, and at the end what it no longer found. It imports nothing but that release.
"""

import os
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import persist

NOW = datetime(2026, 1, 2, tzinfo=UTC)
WORDS = "Na\u00efve\x00 text \ud83d"


def chat(tx: Any, name: str) -> None:
    tx.chat.sessions.create(agent="build", model={"model_id": "m"}, id=name)
    tx.chat.messages.append(name, role="user", parts=[{"type": "text", "text": WORDS}], id=name)


def chat_seen(tx: Any, name: str) -> bool:
    return bool(tx.chat.messages.get(name)["parts"] == [{"type": "text", "text": WORDS}])


def workflows(tx: Any, name: str) -> None:
    tx.workflows.runs.create("w", trigger_id=name, current_phase="p", id=name)
    tx.workflows.executions.start(trigger_type="t", trigger_id=name, skill="s", workflow_run_id=name, id=name)
    tx.workflows.executions.finish(name, success=True, input_tokens=5, cost_usd=0.5)
    tx.workflows.runs.merge_scratch(name, {"words": WORDS})


def workflows_seen(tx: Any, name: str) -> bool:
    return bool(tx.workflows.runs.get(name).scratch == {"words": WORDS} and tx.workflows.executions.get(name).input_tokens == 5)


def messaging(tx: Any, name: str) -> None:
    session = tx.messaging.sessions.get_or_create(platform="p", channel_id=name, user_id="u")
    tx.messaging.messages.add(session.id, role="user", content=WORDS)


def messaging_seen(tx: Any, name: str) -> bool:
    session = tx.messaging.sessions.find_active(platform="p", channel_id=name, thread_id=None, include_stale=True)
    return bool([message.content for message in tx.messaging.messages.history(session.id)] == [WORDS])


def conversations(tx: Any, name: str) -> None:
    tx.conversations.sessions.create(id=name, status="running")
    tx.conversations.branches.create(name, id=name)
    message = {"id": name, "created_at": 1.5, "role": "user", "content": WORDS, "embedding": [1.0]}
    tx.conversations.messages.record(name, message)
    tx.conversations.branches.fork(name)
    tx.conversations.exchange.send(sender=name, recipient="x", content=WORDS)


def conversations_seen(tx: Any, name: str) -> bool:
    return bool([message.content for message in tx.conversations.branches.history(name)] == [WORDS])


def telemetry(tx: Any, name: str) -> None:
    tx.telemetry.status.record("busy", metadata={"words": WORDS}, instance_id=name)
    tx.telemetry.usage.sample(at=NOW, token_input=5, instance_id=name)
    tx.telemetry.tools.record("bash", exit_code=1, instance_id=name)
    tx.telemetry.tasks.poll([{"id": name, "source_id": "s", "kind": "issue", "title": WORDS}], workspace_id="w")


def telemetry_seen(tx: Any, name: str) -> bool:
    return bool(tx.telemetry.status.current(instance_id=name).metadata == {"words": WORDS})


def programs(tx: Any, name: str) -> None:
    tx.programs.runs.create(id=name)
    statement = tx.programs.executions.begin(name, statement_index=1, statement_text=WORDS)
    tx.programs.bindings.bind(name, "x", WORDS, kind="let", execution_id=statement.id)
    tx.programs.executions.complete(name, statement.id)


def programs_seen(tx: Any, name: str) -> bool:
    return bool([one.value for one in tx.programs.bindings.list(name)] == [WORDS])


def checkpoints(tx: Any, name: str) -> None:
    tx.checkpoints.memories.put((name,), "k", {"words": WORDS})


def checkpoints_seen(tx: Any, name: str) -> bool:
    return bool(tx.checkpoints.memories.get((name,), "k").value == {"words": WORDS})


DOMAINS: dict[str, tuple[str, Callable[[Any, str], None], Callable[[Any, str], bool]]] = {
    "chat": ("0001", chat, chat_seen),
    "workflows": ("0002", workflows, workflows_seen),
    "messaging": ("0002", messaging, messaging_seen),
    "conversations": ("0003", conversations, conversations_seen),
    "telemetry": ("0004", telemetry, telemetry_seen),
    "programs": ("0004", programs, programs_seen),
    "checkpoints": ("0006", checkpoints, checkpoints_seen),
}
"""And the revision that brought each."""


def known(revision: str) -> list[tuple[str, Callable[[Any, str], None], Callable[[Any, str], bool]]]:
    """The domains of a release."""
    return [(domain, write, seen) for domain, (since, write, seen) in DOMAINS.items() if since <= revision]


def missing(store: Any, revision: str, rounds: list[int]) -> list[str]:
    """What a store no longer shows of these rounds."""
    lost = []
    with store.read() as tx:
        for number in rounds:
            for domain, _, seen in known(revision):
                try:
                    whole = seen(tx, f"old {number}")
                except persist.PersistError:
                    whole = False
                if not whole:
                    lost.append(f"{domain} of round {number}")
    return lost


def record(store: Any, name: str) -> None:
    """A turn that streams in."""
    with store.record(name) as recorder:
        recorder.feed({"type": "start", "messageId": f"answer of {name}"})
        recorder.feed({"type": "text-start", "id": "t"})
        recorder.feed({"type": "text-delta", "id": "t", "delta": WORDS})
        recorder.feed({"type": "text-end", "id": "t"})
        recorder.feed({"type": "finish"})


def main(url: str, schema: str, revision: str) -> None:
    assert str(persist.__file__).startswith(os.environ["PYTHONPATH"]), "this is not that release's code"
    if url.startswith("postgresql"):
        persist.upgrade(url, schema=schema)
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    rounds: list[int] = []
    number = 0
    with persist.Store.open(url, schema=schema) as store:
        print("made", flush=True)
        while not ended.is_set():
            number += 1
            try:
                with store.begin() as tx:
                    for _, write, _ in known(revision):
                        write(tx, f"old {number}")
                record(store, f"old {number}")
            except (persist.StoreBusy, persist.Conflict) as error:
                print(f"busy {type(error).__name__}", flush=True)
                continue
            rounds.append(number)
            print(number, flush=True)
            if number % 10 == 0:
                for lost in missing(store, revision, rounds[-3:]):
                    print(f"lost {lost}", flush=True)
        for lost in missing(store, revision, rounds):
            print(f"lost {lost}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
