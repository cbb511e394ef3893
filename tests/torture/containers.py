"""A recorder in another container of the same host name goes on while others try to record, repair, claim, fork and prune.

A container is here what it is to a process: a pid namespace with its own `/proc`, on the same machine and under the same name. In
two of them the same number names two processes, and a number of one may name nobody in the other.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from persist import Store
from persist.chat.reducer import reduce
from persist.errors import Conflict, StoreBusy
from persist.maintenance import doctor, maintain, prune
from persist.store.transaction import Transaction
from tests.torture.scenario import Ground, Missing, Scenario, Tally, intact

_ROOT = Path(__file__).parents[2]
_ALONE = ("--pid", "--fork", "--mount-proc", "--kill-child")
_RIGHTS: tuple[tuple[str, ...], ...] = ((), ("--user", "--map-root-user"))
"""What a container may need to be allowed: nothing, or to be root within it."""
_HOST, _FIRST, _LATER = "outside", "the same number", "a number nobody has here"
_ROUNDS_OF_ONE = 100
_UNSEEN = timedelta(seconds=61)


def answer(id: str, words: Iterable[int]) -> Iterator[dict[str, Any]]:
    """A call that waits for its result, which a repair would end, while text goes on."""
    yield {"type": "start", "messageId": id}
    yield {"type": "tool-input-available", "toolCallId": id, "toolName": "bash", "input": {}}
    yield {"type": "text-start", "id": "t"}
    for number in words:
        yield {"type": "text-delta", "id": "t", "delta": f"{number} "}
    yield {"type": "tool-output-available", "toolCallId": id, "output": 1}
    yield {"type": "finish"}


_BESIDE_WORDS = 5


# -- within a container


def live(url: str) -> None:
    """Obeys lines of [command, session, …] with lines of what came of it, until there are no more."""
    with Store.open(url) as store:
        _say("ready")
        for line in sys.stdin:
            command, session, *more = json.loads(line)
            if command == "record":
                _record(store, session, Path(more[0]))
            else:
                _say(intrude(store, session, upkeep=more == ["upkeep"]))


def _record(store: Store, session: str, stop: Path) -> None:
    """Goes on until that file is there; says how many chunks were acknowledged, and "over" or what went wrong."""
    words = takewhile(lambda _: not stop.exists(), count())
    try:
        with store.record(session) as recorder:
            for told, chunk in enumerate(answer(f"{session} m", words), start=1):
                recorder.feed(chunk)
                _say(told)
                time.sleep(0.002)
    except Exception as error:
        _say(f"{type(error).__name__}: {error}")
    _say("over")


def intrude(store: Store, session: str, *, upkeep: bool) -> list[str]:
    """Everything that a dead turn would allow, and a live one does not -> what was allowed."""
    allowed = []

    def recorded() -> bool:
        try:
            with store.record(session):
                return True
        except Conflict:
            return False

    def forked(tx: Transaction) -> bool:
        try:
            return bool(tx.chat.sessions.fork(session, tx.chat.messages.list(session)[0]["id"]))
        except Conflict:
            return False

    def pruned() -> bool:
        prune(store, "chat", older_than=timedelta(0))
        with store.read() as tx:
            return session not in {found.id for found in tx.chat.sessions.list(limit=200).items}

    def maintained() -> int:
        return sum(step.tables.get("chat_turns", 0) for step in maintain(store).steps)

    def found_dead() -> bool:
        return any(found.code == "turn_dead" and session in found.subject for found in doctor(store))

    verbs: dict[str, Callable[[Transaction], Any]] = {
        "repair": lambda tx: tx.chat.messages.repair_interrupted(session),
        "repair of all": lambda tx: tx.chat.messages.repair_interrupted(idle=timedelta(0)),
        "claim": lambda tx: tx.chat.messages.claim_queued(session),
        "fork": forked,
    }
    attempts: dict[str, Callable[[], Any]] = {name: lambda verb=verb: store.transact(verb) for name, verb in verbs.items()}  # type: ignore[misc]  # a bound default
    attempts["record"] = recorded
    if upkeep:
        attempts |= {"prune": pruned, "maintain": maintained, "doctor": found_dead}
    for name, attempt in attempts.items():
        try:
            if attempt():
                allowed.append(name)
        except StoreBusy:
            pass  # the file is somebody else's for now
    return allowed


def _say(word: object) -> None:
    print(json.dumps(word), flush=True)


# -- around it


class Container:
    """One process in a pid namespace of its own, or outside of any, and what it says."""

    def __init__(self, line: list[str]) -> None:
        self._process = subprocess.Popen(line, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a container ended with {self._process.wait(30)}.")
        return json.loads(line)

    def kill(self) -> None:
        """With all that is in it, at once; returns when nothing of it is left that could find its pipes closed, and tidy up."""
        self._process.kill()
        self._process.wait(30)
        if self._process.stdout is not None:
            self._process.stdout.read()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _entrance() -> list[str]:
    """How a container is made here; Missing where it may not be."""
    program = shutil.which("unshare")
    for rights in _RIGHTS if program else ():
        line = [str(program), *rights, *_ALONE]
        if subprocess.run([*line, "true"], capture_output=True, timeout=30).returncode == 0:
            return line
    raise Missing("unshare --pid")


@contextmanager
def container(url: str, where: str) -> Iterator[Container]:
    """One that is ready, and whose process has the number that is asked for."""
    python = [sys.executable, "-c", f"from tests.torture.containers import live; live({url!r})"]
    shell = ["sh", "-c", 'for _ in $(seq 60); do /bin/true; done; "$@"; exit', "sh"]
    line = {_HOST: python, _FIRST: [*_entrance(), *python], _LATER: [*_entrance(), *shell, *python]}[where]
    inside = Container(line)
    try:
        if inside.hear() != "ready":
            raise RuntimeError("a container did not begin.")
        yield inside
    finally:
        inside.kill()


def recorders_elsewhere(ground: Ground, tally: Tally) -> None:
    """Nobody is let in while it lives, and it loses nothing; when it was killed the others wait for a minute, and no longer."""
    url, goes_on = ground.new_url(), True
    with Store.open(url) as store, ExitStack() as stack:
        intruders = [stack.enter_context(container(url, where)) for where in (_FIRST, _HOST)]
        while goes_on:
            with container(url, ground.random.choice((_FIRST, _LATER))) as recorder:
                for _ in range(_ROUNDS_OF_ONE):
                    _round(ground, store, recorder, ground.random.choice(intruders), tally)
                    goes_on = time.monotonic() < ground.ends
                    if not goes_on:
                        break
                last = _session(store)
                recorder.tell("record", last, str(ground.folder / "never"))
                _begun(recorder)
            _left(url, last, tally)
    intact(url, tally)


def _session(store: Store) -> str:
    """A new one, with a message that waits."""
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="build", model={}).id
        tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "?"}])
        tx.chat.messages.enqueue(session, parts=[])
    return session


def _begun(recorder: Container) -> None:
    """Returns when its call waits for a result."""
    while recorder.hear() != 3:
        pass


def _round(ground: Ground, store: Store, recorder: Container, intruder: Container, tally: Tally) -> None:
    session, told, problem = _session(store), 3, ""
    stop = ground.folder / f"{session}.stop"
    recorder.tell("record", session, str(stop))
    _begun(recorder)
    intruder.tell("intrude", session, *["upkeep"] * (ground.random.random() < 0.1))
    allowed = intruder.hear()
    stop.touch()
    while (word := recorder.hear()) != "over":
        told, problem = (word, problem) if isinstance(word, int) else (told, word)
    tally.rounds += 1
    tally.acknowledged += told
    if allowed or problem:
        tally.problems.append(f"{session}: let in: {', '.join(allowed)}; the recorder after {told} chunks: {problem or 'well'}")
    else:
        with store.read() as tx:
            found = tx.chat.messages.get(f"{session} m")
        tally.lost += found != reduce(list(answer(found["id"], range(told - _BESIDE_WORDS))))


def _left(url: str, session: str, tally: Tally) -> None:
    """What a container leaves that was killed as it recorded."""
    with Store.open(url) as store:
        if allowed := intrude(store, session, upkeep=True):
            tally.problems.append(f"{session}: let in at once: {', '.join(allowed)}")
    with Store.open(url, clock=lambda: datetime.now(UTC) + _UNSEEN) as later:
        missing = {"repair", "claim", "fork", "record"} - set(intrude(later, session, upkeep=False))
    if missing:
        tally.problems.append(f"{session}: not let in after a minute: {', '.join(sorted(missing))}")
    tally.repaired += not missing


SCENARIOS = [Scenario("recorders in other containers", ("sqlite", "postgres"), recorders_elsewhere)]
