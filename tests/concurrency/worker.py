"""What the processes of these tests run: `python -m tests.concurrency.worker COMMAND URL …`. Each says on stdout what it did."""

import json
import os
import sys
import time
import warnings
from datetime import timedelta
from typing import Any

from persist import Store
from persist.errors import PersistError, StoreBusy
from tests.concurrency.forked import (
    fork_async,
    fork_async_recording,
    fork_at_rest,
    fork_beside,
    fork_in_use,
    fork_inside,
    fork_inside_sqlite,
)

MODEL = {"provider_id": "p", "model_id": "m"}


def stream() -> list[dict[str, Any]]:
    """A long answer: text that grows, a tool's input that grows, results, three steps."""
    chunks: list[dict[str, Any]] = [{"type": "start", "messageId": "m"}]
    for step in range(3):
        call = f"call_{step}"
        chunks.append({"type": "start-step"})
        chunks.append({"type": "text-start", "id": "t"})
        chunks += [{"type": "text-delta", "id": "t", "delta": f"{step}.{piece}, "} for piece in range(40)]
        chunks.append({"type": "text-end", "id": "t"})
        chunks.append({"type": "tool-input-start", "toolCallId": call, "toolName": "bash"})
        pieces = ['{"command": "ls', *(f" -{letter}" for letter in "abcdefgh"), '"}']
        chunks += [{"type": "tool-input-delta", "toolCallId": call, "inputTextDelta": piece} for piece in pieces]
        chunks.append({"type": "tool-input-available", "toolCallId": call, "toolName": "bash", "input": {"step": step}})
        chunks.append({"type": "tool-output-available", "toolCallId": call, "output": "x" * 5000})
        chunks.append({"type": "finish-step"})
    chunks.append({"type": "finish"})
    return chunks


def record(store: Store, session: str) -> None:
    """Say after each chunk that it was acknowledged; then wait to be killed."""
    with store.record(session) as recorder:
        for number, chunk in enumerate(stream(), start=1):
            recorder.feed(chunk)
            print(number, flush=True)
        time.sleep(60)


def append(store: Store, session: str, name: str, count: str) -> None:
    for number in range(int(count)):
        with store.begin() as tx:
            tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": f"{name} {number}"}])
    print("done", flush=True)


def write(store: Store, name: str, count: str) -> None:
    """Small transactions with pauses between them -> how many found the file busy."""
    busy = 0
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent=name, model=MODEL).id
    for number in range(int(count)):
        try:
            with store.begin() as tx:
                tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": str(number)}])
            with store.record(session) as recorder:
                recorder.feed_many([{"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "x"}])
        except StoreBusy:
            busy += 1
        time.sleep(0.002)
    print(json.dumps({"session": session, "busy": busy}), flush=True)


def claim(store: Store, name: str, count: str) -> None:
    """Queue, claim and complete runs in a loop without pauses -> how many transactions found the file busy."""
    busy = 0
    for number in range(int(count)):
        try:
            with store.begin() as tx:
                tx.workflows.runs.create("w", status="queued", current_phase="p", trigger_id=f"{name}/{number}")
            with store.begin() as tx:
                lease = tx.workflows.runs.claim(name, lease=timedelta(minutes=1))
            if lease is not None:
                with store.begin() as tx:
                    tx.workflows.runs.complete(lease)
        except StoreBusy:
            busy += 1
    print(json.dumps({"busy": busy}), flush=True)


def fork(store: Store, session: str) -> None:
    """Fork with everything open -> what each use raised in the child, and what the parent could still do."""
    warnings.simplefilter("ignore", DeprecationWarning)  # forking with a thread running is what is tested
    recorder = store.record(session)
    with recorder:
        recorder.feed_many([{"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "before, "}])
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(writing, json.dumps(_uses(store, recorder, session)).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            raised = json.loads(pipe.read())
        os.waitpid(pid, 0)
        recorder.feed({"type": "text-delta", "id": "t", "delta": "after"})
    with store.begin() as tx:
        tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "parent"}])
    with store.read() as tx:
        texts = [message["parts"][0]["text"] for message in tx.chat.messages.list(session)]
    print(json.dumps({"raised": raised, "texts": texts}), flush=True)


def _uses(store: Store, recorder: Any, session: str) -> dict[str, str]:
    def begin() -> None:
        with store.begin():
            pass

    def read() -> None:
        with store.read():
            pass

    def new_recorder() -> None:
        with store.record(session):
            pass

    uses = {
        "begin": begin,
        "read": read,
        "record": new_recorder,
        "feed": lambda: recorder.feed({"type": "text-end", "id": "t"}),
        "flush": recorder.flush,
        "close": store.close,
    }
    raised = {}
    for name, use in uses.items():
        try:
            use()
        except PersistError as error:
            raised[name] = type(error).__name__
        except BaseException as error:
            raised[name] = f"{type(error).__name__}: {error}"
        else:
            raised[name] = ""
    return raised


COMMANDS = {
    "record": record,
    "append": append,
    "write": write,
    "claim": claim,
    "fork": fork,
    "fork_beside": fork_beside,
    "fork_inside": fork_inside,
    "fork_in_use": fork_in_use,
    "fork_at_rest": fork_at_rest,
    "fork_inside_sqlite": fork_inside_sqlite,
    "fork_async": fork_async,
    "fork_async_recording": fork_async_recording,
}

if __name__ == "__main__":
    _, command, url, *arguments = sys.argv
    with Store.open(url) as opened:
        COMMANDS[command](opened, *arguments)  # type: ignore[operator]  # each command takes its own arguments
