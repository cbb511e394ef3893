"""Recorders' processes are killed while answers stream in: one by one, buffered, many in one process, beside others that fold."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from typing import Any

from sqlalchemy import func, select, union_all

from persist import AsyncStore, Store
from persist.chat.models import deltas, parts, turns
from persist.chat.reducer import reduce
from persist.db.statements.prepared import Statement, param
from persist.errors import Conflict
from persist.maintenance import maintain
from persist.settings import Settings
from tests.torture.kill_rounds import rebuilds
from tests.torture.killed_processes import Victim, doomed, marked, sudden, wait_until_gone
from tests.torture.scenario import Ground, Scenario, Tally, intact

Chunks = Sequence[Mapping[str, Any]]
_OFTEN = Settings(fold_bytes=300)
"""Folds come many times in an answer."""
_STREAMS = 8
_LEFT = Statement(
    union_all(
        select(func.count()).select_from(turns).where(turns.c.session_id == param("of_session")),
        select(func.count())
        .select_from(deltas)
        .join(parts, parts.c.id == deltas.c.part_id)
        .where(parts.c.session_id == param("of_session")),
    )
)


def answer(seed: int) -> list[dict[str, Any]]:
    """One long part among short ones, with a call of a tool; folds come often."""
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


# -- what may be there when so many chunks were acknowledged: one of these numbers of chunks


def _each(chunks: Chunks, acknowledged: int) -> set[int]:
    return {acknowledged, acknowledged + 1}


def _tens(chunks: Chunks, acknowledged: int) -> set[int]:
    return {acknowledged, min(acknowledged + 10, len(chunks))}


def _at(*kinds: str) -> Callable[[Chunks, int], set[int]]:
    """Only what came up to a chunk of these kinds."""

    def allowed(chunks: Chunks, acknowledged: int) -> set[int]:
        ends = [0, *(number for number, chunk in enumerate(chunks, start=1) if chunk["type"] in kinds)]
        return {max(end for end in ends if end <= told) for told in (acknowledged, acknowledged + 1)}

    return allowed


def _buffered(chunks: Chunks, acknowledged: int) -> set[int]:
    """Everything but text; and of the text that came since, all but less than the buffer, of which none may be longer."""
    waiting, first = 0, acknowledged
    while first > 0 and chunks[first - 1]["type"].endswith("-delta"):
        waiting += sum(len(chunks[first - 1].get(name, "")) for name in ("delta", "inputTextDelta"))
        if waiting >= _BUFFER:
            break
        first -= 1
    return set(range(first, acknowledged + 2))


_BUFFER = 200


@dataclass(frozen=True)
class Way:
    """A way to record, and what must be there after a kill."""

    allowed: Callable[[Chunks, int], set[int]]
    options: dict[str, Any] = field(default_factory=dict)
    at_a_time: int = 1


WAYS = {
    "chunk": Way(_each),
    "tens": Way(_tens, at_a_time=10),
    "buffer": Way(_buffered, {"buffer_bytes": _BUFFER}),
    "step": Way(_at("finish-step", "finish"), {"save_on": "step"}),
    "turn": Way(_at("finish"), {"save_on": "turn"}),
}


# -- what is killed


def record(
    acknowledge: Connection, url: str, session: str, seed: int, way: str, takeover: bool = False, begins: float = 0.0
) -> None:
    """Acknowledges how many chunks were taken; -1 when somebody took the session over. `begins` is a monotonic instant."""
    chunks, chosen = answer(seed), WAYS[way]
    with Store.open(url, settings=_OFTEN) as store:
        time.sleep(max(begins - time.monotonic(), 0))
        try:
            with store.record(session, takeover=takeover, **chosen.options) as recorder:
                for start in range(0, len(chunks), chosen.at_a_time):
                    recorder.feed_many(chunks[start : start + chosen.at_a_time])
                    acknowledge.send(min(start + chosen.at_a_time, len(chunks)))
        except Conflict:
            acknowledge.send(-1)


def record_many(acknowledge: Connection, url: str, sessions: Sequence[str], seed: int) -> None:
    """Streams of one event loop, whose chunks share commits."""

    async def one(store: AsyncStore, number: int, session: str) -> None:
        async with store.record(session) as recorder:
            for count, chunk in enumerate(answer(seed * 100 + number), start=1):
                await recorder.feed(chunk)
                acknowledge.send((number, count))

    async def all_of_them() -> None:
        async with AsyncStore.open(url, settings=_OFTEN) as store:
            await asyncio.gather(*(one(store, number, session) for number, session in enumerate(sessions)))

    asyncio.run(all_of_them())


def fold(acknowledge: Connection, url: str) -> None:
    """A job whose clock is ahead: it folds what recorders have only just written, again and again."""
    with Store.open(url, clock=lambda: datetime.now(UTC) + timedelta(seconds=10)) as store:
        acknowledge.send(0)
        while True:
            maintain(store)


# -- rounds


def killed_recorders(ground: Ground, tally: Tally) -> None:
    """What was promised to be durable is there, and nothing else; the next recorder goes on without being told to."""
    plain, logged = ground.new_url(), ground.new_url()
    with Store.open(plain) as one, Store.open(logged, events=True) as other:
        for number in ground.rounds():
            store, url = ground.random.choice([*[(one, plain)] * 3, (other, logged)])
            sessions = _sessions(store, 1)
            way = ground.random.choice(list(WAYS))
            folder = Victim(fold, url) if ground.random.random() < 0.3 else None
            if folder is not None:
                folder.listen(30, until=1)
            if ground.random.random() < 0.5:
                first = 200 // WAYS[way].at_a_time
                told = sudden(record, ground.random, marked(url), sessions[0], number, way, first=first, seconds=0.02)
            else:
                told = doomed(
                    record, ground.random, marked(url), sessions[0], number, way, first=200 // WAYS[way].at_a_time
                ).acknowledged
            wait_until_gone(url)
            _count(store, sessions[0], number, way, told[-1] if told else 0, len(told), tally)
            if folder is not None:
                folder.kill()
    _finish(plain, logged, tally)


def killed_groups(ground: Ground, tally: Tally) -> None:
    """The same for many streams of one AsyncStore: a commit is for all of them or for none."""
    plain, logged = ground.new_url(), ground.new_url()
    with Store.open(plain) as one, Store.open(logged, events=True) as other:
        for number in ground.rounds():
            store, url = ground.random.choice([*[(one, plain)] * 3, (other, logged)])
            sessions = _sessions(store, _STREAMS)
            told = sudden(record_many, ground.random, marked(url), sessions, number, first=600, seconds=0.02)
            wait_until_gone(url)
            for stream, session in enumerate(sessions):
                counts = [count for who, count in told if who == stream]
                _count(store, session, number * 100 + stream, "chunk", max(counts, default=0), len(counts), tally)
    _finish(plain, logged, tally)


def taken_over(ground: Ground, tally: Tally) -> None:
    """A second recorder takes the turn while the first one writes: what either was told is there, and nothing more."""
    url = ground.new_url()
    with Store.open(url) as store:
        for number in ground.rounds():
            (session,) = _sessions(store, 1)
            begins = time.monotonic() + 0.1
            first = Victim(record, marked(url), session, 2 * number, "chunk", False, begins)
            second = Victim(
                record, marked(url), session, 2 * number + 1, "chunk", True, begins + 0.005 + ground.random.random() * 0.03
            )
            second.listen(30, until=ground.random.randint(1, 120))
            later, told = second.kill(), first.end()
            wait_until_gone(url)
            if told[-1:] == [-1]:
                tally.errors["Conflict"] += 1
            elif len(told) < len(answer(0)):
                tally.problems.append(
                    f"{url} {session}: the recorder whose session was taken over ended after {len(told)} chunks"
                )
            told = [count for count in told if count > 0]
            with store.read() as tx:
                found = tx.chat.messages.list(session)
            tally.rounds += 1
            tally.acknowledged += len(told) + len(later)
            before = _shown(2 * number, len(told))
            after = [_shown(2 * number + 1, count) for count in (len(later), len(later) + 1)]
            if found not in [pair for message in after for pair in (before + message, message + before)]:  # either may be first
                tally.lost += 1
                tally.problems.append(f"{url} {session}: {len(told)} and {len(later)} acknowledged, {_short(found)}")
            for seed in (2 * number, 2 * number + 1):  # the first one could not fold what it left
                _go_on(store, session, seed, tally, last=seed % 2 == 1)
    intact(url, tally)


def _sessions(store: Store, count: int) -> list[str]:
    with store.begin() as tx:
        return [tx.chat.sessions.create(agent="build", model={"model_id": "m"}).id for _ in range(count)]


def _count(store: Store, session: str, seed: int, way: str, taken: int, told: int, tally: Tally) -> None:
    with store.read() as tx:
        found = tx.chat.messages.list(session)
    tally.rounds += 1
    tally.acknowledged += told
    allowed = WAYS[way].allowed(answer(seed), taken)
    if found not in [_shown(seed, count) for count in allowed]:
        tally.lost += 1
        tally.problems.append(f"{way}, {session}: after {taken} chunks of answer({seed}) there is {_short(found)}")
    _go_on(store, session, seed, tally)


def _shown(seed: int, count: int) -> list[dict[str, Any]]:
    """The messages after so many chunks: the first part brings the message."""
    return [reduce(answer(seed)[:count])] if count > 1 else []


def _go_on(store: Store, session: str, seed: int, tally: Tally, *, last: bool = True) -> None:
    """The next recorder needs no takeover, changes no part that is there, and leaves no turn, and no tail in its message."""
    with store.read() as tx:
        before = tx.chat.messages.list(session)
    left, text = _left(store, session), f"{seed} goes on"
    with store.record(session) as recorder:
        recorder.feed_many([answer(seed)[0], {"type": "text-start", "id": "on"}])
        recorder.feed_many(
            [{"type": "text-delta", "id": "on", "delta": text}, {"type": "text-end", "id": "on"}, {"type": "finish"}]
        )
    with store.read() as tx:
        after = tx.chat.messages.list(session)
    said = [part for message in before for part in message["parts"]]
    now = [part for message in after for part in message["parts"]]
    if [part for part in now if part.get("text") != text] != said or len(now) != len(said) + 1:
        tally.problems.append(f"{session}: going on changed {_short(before)} to {_short(after)}")
    if last and _left(store, session):
        tally.problems.append(f"{session}: a turn or a tail is left after the next recorder")
    tally.repaired += bool(left)


def _left(store: Store, session: str) -> int:
    """Turns and pieces that wait for somebody to settle them."""
    with store.read() as tx:
        return sum(count for (count,) in tx._work.rows(_LEFT, of_session=session))


def _finish(plain: str, logged: str, tally: Tally) -> None:
    intact(plain, tally)
    intact(logged, tally)
    rebuilds(logged, tally)


def _short(messages: Sequence[Mapping[str, Any]]) -> str:
    return repr([(message["id"], [(part["type"], len(str(part))) for part in message["parts"]]) for message in messages])[:600]


SCENARIOS = [
    Scenario("recorders killed", ("sqlite", "postgres"), killed_recorders),
    Scenario("many streams killed at once", ("sqlite", "postgres"), killed_groups),
    Scenario("recorders taken over", ("sqlite", "postgres"), taken_over),
]
