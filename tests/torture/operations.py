"""Operations on whole databases, killed: what they make is there whole or not at all, and what they work on is as it was."""

from collections.abc import Callable
from datetime import timedelta
from functools import cache
from io import BytesIO
from multiprocessing.connection import Connection
from pathlib import Path

from persist import Store
from persist.errors import Conflict
from persist.maintenance import backup, checkpoint, copy, export, import_, maintain, prune, vacuum
from tests.torture import conversation_writes as conversing
from tests.torture import telemetry_writes as observing
from tests.torture import transitions
from tests.torture.kill_rounds import BEGINS, Ticks
from tests.torture.killed_processes import doomed, marked, wait_until_gone
from tests.torture.scenario import Ground, Scenario, Tally, healthy, whole
from tests.torture.state import State, differing, state

_EVENTS = 6.0
_SESSIONS = 350
"""Chats to prune: more than go in one transaction."""


@cache
def exported() -> bytes:
    """A store with something of every domain, as `export` writes it."""
    with Store.open("sqlite:///:memory:", clock=Ticks(0)) as store:
        for script in (transitions.SCRIPTS[0], *conversing.SCRIPTS, *observing.SCRIPTS):
            with store.begin() as tx:
                for step in script.make()[: len(script.make()) // 2]:
                    step(tx)
        with store.begin() as tx:
            for number in range(_SESSIONS):
                session = tx.chat.sessions.create(id=f"old{number}", agent="build", model={}).id
                for part in ("one", "two"):
                    tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": part}], id=f"{session} {part}")
        stream = BytesIO()
        export(store, stream)
        return stream.getvalue()


# -- what is killed: a source, and a target where there is one


def backs_up(source: str, target: str) -> None:
    """Over what a backup of yesterday may have left."""
    with Store.open(source) as store:
        backup(store, Path(target.removeprefix("sqlite:///")), overwrite=True)


def exports(source: str, target: str) -> None:
    with Store.open(source) as store:
        export(store, Path(target), overwrite=True)


def imports(source: str, target: str) -> None:
    with Store.open(target) as store:
        import_(store, BytesIO(exported()))


def copies(source: str, target: str) -> None:
    with Store.open(source) as store, Store.open(target) as other:
        copy(store, other)


def prunes(source: str) -> None:
    with Store.open(source) as store:
        prune(store, "chat", older_than=BEGINS + timedelta(hours=1), keep=5)


def maintains(source: str) -> None:
    with Store.open(source) as store:
        maintain(store)


def vacuums(source: str) -> None:
    with Store.open(source) as store:
        vacuum(store)
        if store.path is not None:
            checkpoint(store, mode="TRUNCATE")


def perform(acknowledge: Connection, operation: Callable[..., None], *arguments: str) -> None:
    """Acknowledged when it is over."""
    operation(*arguments)
    acknowledge.send(True)


# -- rounds


def killed_moves(ground: Ground, tally: Tally) -> None:
    """The target of a copy, backup, export or import has what it had, or everything; again, and it has everything."""
    source, other = _filled(ground), ground.new_url()
    with Store.open(source) as store:
        before = state(store)
    for number in ground.rounds():
        file = (ground.folder / f"target {number}").as_posix()
        moves: list[tuple[Callable[[str, str], None], str]] = [(exports, file), (copies, ground.new_url())]
        moves += [(imports, moves[-1][1]), (copies, f"sqlite:///{file}.db")]
        if source.startswith("sqlite"):
            moves += [(backs_up, f"sqlite:///{file}.db")] * 2
            if ground.random.random() < 0.5:
                backs_up(other, f"sqlite:///{file}.db")  # of yesterday: it was empty then
        move, target = ground.random.choice(moves)
        if move is copies and Path(f"{file}.db").exists():
            continue
        done = doomed(perform, ground.random, move, marked(source), marked(target), events=_EVENTS).acknowledged
        wait_until_gone(source)
        wait_until_gone(target)
        tally.rounds += 1
        tally.acknowledged += len(done)
        found = _moved(target)
        if found not in ((before,) if done else (before, None, _empty())):
            tally.lost += bool(done)
            tally.problems.append(f"{move.__name__} {source} {target}:\n{differing(found or (), before)}")
        if found != before:
            move(source, target)
            tally.repaired += 1
        elif move in (copies, imports):
            try:
                move(source, target)
            except Conflict:
                tally.errors["Conflict"] += 1
        if (found := _moved(target)) != before:
            tally.problems.append(f"{move.__name__} again {source} {target}:\n{differing(found or (), before)}")
        with Store.open(source) as store:
            if state(store) != before:
                tally.problems.append(f"{move.__name__} changed {source}")


def killed_upkeep(ground: Ground, tally: Tally) -> None:
    """Pruning deletes whole chats or leaves them, and the rest changes nothing that anybody reads."""
    for _ in ground.rounds():
        url = _filled(ground)
        with Store.open(url) as store:
            before = state(store)
        for _ in range(3):
            chore = ground.random.choice([prunes, prunes, maintains, vacuums])
            done = doomed(perform, ground.random, chore, marked(url), events=_EVENTS).acknowledged
            wait_until_gone(url)
            tally.rounds += 1
            tally.acknowledged += len(done)
            whole(url, tally)
            with Store.open(url) as store:
                found = state(store)
                healthy(store, url, tally)
            if chore is not prunes and found != before:
                tally.problems.append(f"{chore.__name__} {url}:\n{differing(found, before)}")
            elif chore is prunes:
                _judge_pruning(url, before, found, done=bool(done), tally=tally)
            before = found


def _filled(ground: Ground) -> str:
    url = ground.new_url()
    with Store.open(url) as store:
        import_(store, BytesIO(exported()))
    return url


@cache
def _empty() -> State:
    with Store.open("sqlite:///:memory:") as store:
        return state(store)


def _moved(target: str) -> State | None:
    """What the target holds; None where there is none."""
    if "://" in target:
        path = Path(target.removeprefix("sqlite:///"))
        if target.startswith("sqlite") and not path.exists():
            return None
        with Store.open(target) as store:
            return state(store)
    if not Path(target).exists():
        return None
    with Store.open("sqlite:///:memory:") as store:
        import_(store, Path(target))
        return state(store)


def _judge_pruning(url: str, before: State, found: State, *, done: bool, tally: Tally) -> None:
    """Nothing new is there; a chat is gone with its messages or is there with all of them; five are left in the end."""
    with Store.open(url) as store, store.read() as tx:
        sessions = {item.id for item in tx.chat.sessions.list(include_archived=True, limit=1000).items}
        counts = {id: len(tx.chat.messages.list(id)) for id in sessions if id.startswith("old")}
    if more := [line for line in found if line not in set(before)]:
        tally.problems.append(f"prune {url} changed {more[:3]}")
    if [count for count in counts.values() if count != 2]:
        tally.problems.append(f"prune {url} left half of a chat: {counts}")
    if done and len(sessions) != 5:
        tally.problems.append(f"prune {url} was over, and {len(sessions)} chats are left")
        tally.lost += 1


SCENARIOS = [
    Scenario("copies, backups, exports killed", ("sqlite", "postgres"), killed_moves),
    Scenario("prune, maintain, vacuum killed", ("sqlite", "postgres"), killed_upkeep),
]
