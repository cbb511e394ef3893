"""Writers of session logs, killed: at most the last line is cut, and readers and writers go on."""

import json
from multiprocessing.connection import Connection
from typing import Any

from persist.sessionlog import SessionLogWriter, read_session_log, tail_session_log
from tests.torture.killed_processes import doomed, sudden
from tests.torture.scenario import Ground, Scenario, Tally

_SLUG = "project"


def event(text: str) -> dict[str, Any]:
    """A message of the assistant."""
    content = [{"type": "text", "text": text}]
    return {
        "type": "message_end",
        "sessionId": "log",
        "timestamp": 1781521200000,
        "message": {"role": "assistant", "content": content},
    }


def write(acknowledge: Connection, home: str, name: str) -> None:
    """Lines of a few bytes and of a megabyte."""
    with SessionLogWriter(home, _SLUG, strict=True) as log:
        log.feed({"type": "session", "id": "log"})
        for number in range(60):
            text = f"{name}.{number} "
            log.feed(event(text + "x" * (2**20 if number % 6 == 0 else 100)))
            acknowledge.send(text)


def killed_logs(ground: Ground, tally: Tally) -> None:
    """Two writers after each other on one file: every line that was acknowledged is read, and what is cut swallows no other."""
    for number in ground.rounds():
        home = ground.folder / f"home {number}"
        told: list[str] = []
        for name in ("first", "second"):
            if ground.random.random() < 0.5:
                told += sudden(write, ground.random, str(home), name, first=40, seconds=0.01)
            else:
                told += doomed(write, ground.random, str(home), name, first=40).acknowledged
        with SessionLogWriter(home, _SLUG, strict=True) as log:
            log.feed({"type": "session", "id": "log"})
            log.feed(event("last "))
            path = log.path
        assert path is not None
        tally.rounds += 1
        tally.acknowledged += len(told)
        read = [_text(entry.msg["content"]) for entry in read_session_log(path)]
        missing = [text for text in [*told, "last "] if text not in read]
        tally.lost += len(missing)
        tally.problems += [f"{path}: {text!r} is not read" for text in missing]
        if len(read) != len(set(read)) or len(read) > len(told) + 3:
            tally.problems.append(f"{path}: {len(read)} lines are read, and {len(told)} were acknowledged")
        followed = [entry.msg["message"] for batch in tail_session_log(path, stop=lambda: True) for entry in batch]
        if [_text(message["content"][0]["text"]) for message in followed] != read:
            tally.problems.append(f"{path}: following it gives other lines")
        cut = sum(not _whole(line) for line in path.read_bytes().splitlines())
        if cut > 2:
            tally.problems.append(f"{path}: {cut} lines are cut")
        tally.repaired += bool(cut)
        path.unlink()


def _text(content: object) -> str:
    return str(content).rstrip("x")


def _whole(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


SCENARIOS = [Scenario("session logs killed", ("sqlite",), killed_logs)]
