"""A recording process is killed at any moment: what it acknowledged is there, and the next one goes on."""

import os
import signal
import sqlite3
import subprocess
import sys
from typing import Any

import pytest

from persist import Store
from persist.chat.reducer import reduce
from tests.concurrency.worker import stream
from tests.contract.chat.scenes import create, record, shown, text
from tests.subprocesses import ROOT, Spawn, Worker

CUTS = [1, 2, 3, 5, 43, 44, 46, 54, 55, 90, 120, len(stream())]


def killed_after(process: Worker, acknowledged: int) -> int:
    """Kill it once it has said so many -> how many chunks it had acknowledged by then."""
    said = 0
    while said < acknowledged:
        said = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split()
    process.wait(30)
    return int(rest[-1]) if rest else said


@pytest.mark.parametrize("cut", CUTS)
def test_every_acknowledged_chunk_is_there(store: Store, spawn: Spawn, database_url: str, cut: int) -> None:
    """(c) 2"""
    session = create(store)
    acknowledged = killed_after(spawn("record", session), cut)
    found = shown(store, session)
    # the one it was just writing may be there too
    possible = [reduce(stream()[:count]) for count in (acknowledged, acknowledged + 1)]
    assert (found or [reduce(stream()[:1])])[0] in possible
    assert len(found) <= 1
    if database_url.startswith("sqlite"):
        connection = sqlite3.connect(database_url.removeprefix("sqlite:///"))
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.close()
    resumed = [{"type": "start", "messageId": "m"}, *text("goes on", id="next"), {"type": "finish"}]
    record(store, session, resumed)  # its process is gone: no takeover is needed
    (message,) = shown(store, session)
    assert message["parts"][:-1] == (found[0]["parts"] if found else [])
    assert message["parts"][-1] == {"type": "text", "text": "goes on", "state": "done"}


def test_a_dead_process_holds_no_turn(store: Store, spawn: Spawn) -> None:
    session = create(store)
    killed_after(spawn("record", session), 60)
    with store.begin() as tx:
        waiting = tx.chat.messages.enqueue(session, parts=[])
        claimed: Any = tx.chat.messages.claim_queued(session)
        assert claimed is not None
        assert claimed.id == waiting.id
        tx.chat.sessions.fork(session, "m")


def test_a_killed_process_whose_parent_never_asks_for_it_holds_no_turn(store: Store, database_url: str) -> None:
    session = create(store)
    line = [sys.executable, "-m", "tests.concurrency.worker", "record", database_url, session]
    with subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # its number is still taken
        record(store, session, [{"type": "start", "messageId": "next"}, *text("goes on"), {"type": "finish"}])
        assert [message["id"] for message in shown(store, session)][-1] == "next"


def test_a_killed_call_is_repaired_with_what_had_come_of_its_input(store: Store, spawn: Spawn) -> None:
    """(c) 27"""
    session = create(store)
    acknowledged = killed_after(spawn("record", session), 50)
    before = shown(store, session)[0]["parts"]
    unfinished = [part for part in before if str(part.get("state", "")).startswith("input")]
    with store.begin() as tx:
        assert tx.chat.messages.repair_interrupted(session) == len(unfinished)
    after = shown(store, session)[0]["parts"]
    assert acknowledged >= 50
    assert [part for part in after if str(part.get("state", "")).startswith("input")] == []
    for part in unfinished:
        repaired = next(found for found in after if found.get("toolCallId") == part["toolCallId"])
        assert (repaired["state"], repaired["errorText"]) == ("output-error", "aborted by host restart")
