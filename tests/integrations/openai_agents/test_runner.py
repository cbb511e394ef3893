"""The framework's own Runner over a session: what it stores, what the model sees again, and runs that are killed."""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, function_tool
from agents.memory import OpenAIResponsesCompactionSession, SessionSettings, SQLiteSession

from persist import AsyncStore, Store
from persist.integrations.openai_agents import PersistSession
from tests.aio.loops import in_loops
from tests.integrations.kits import Do
from tests.integrations.openai_agents.conftest import Session
from tests.integrations.openai_agents.scripts import Scripted, call, message

ROOT = Path(__file__).parents[3]
QUIET = RunConfig(tracing_disabled=True)


@function_tool
def weather(city: str) -> str:
    """What it is like there."""
    return f"sunny in {city}\x00\ud800"


def travel() -> tuple[Agent[Any], Scripted]:
    """Asks for the weather once per question, then answers."""
    numbers = itertools.count()

    def answer(items: list[Any]) -> list[Any]:
        if items[-1].get("type") == "function_call_output":
            return [message("Sunny.", f"msg_{next(numbers)}")]
        reasoning = {"type": "reasoning", "id": f"rs_{next(numbers)}", "summary": [{"type": "summary_text", "text": "Hm."}]}
        return [reasoning, call("weather", '{"city":"Faro"}', f"call_{next(numbers)}")]

    model = Scripted(answer)
    return Agent(name="travel", model=model, tools=[weather]), model


async def talk(session: Any, *, streamed: bool) -> tuple[list[Any], list[list[Any]]]:
    """Two questions -> the items of the session, and what the model saw each time."""
    agent, model = travel()
    for question in ("And in Faro?", "And tomorrow?"):
        if streamed:
            running = Runner.run_streamed(agent, question, session=session, run_config=QUIET)
            async for _ in running.stream_events():
                pass
        else:
            await Runner.run(agent, question, session=session, run_config=QUIET)
    return await session.get_items(), model.seen


@pytest.mark.parametrize("streamed", [False, True], ids=["run", "run_streamed"])
async def test_a_run_stores_and_sees_what_it_does_with_the_framework_s_own_session(session: Session, streamed: bool) -> None:
    theirs = SQLiteSession("theirs")
    try:
        ours = await talk(session(), streamed=streamed)
        assert json.dumps(ours) == json.dumps(await talk(theirs, streamed=streamed))
    finally:
        theirs.close()
    items, seen = ours
    assert [item.get("type", item.get("role")) for item in items] == [
        "user",
        "reasoning",
        "function_call",
        "function_call_output",
        "message",
    ] * 2
    assert items[3]["output"] == "sunny in Faro\x00\ud800"
    assert [len(items) for items in seen] == [1, 4, 6, 9]


def test_a_run_sees_no_more_than_the_settings_allow(session: Session, do: Do) -> None:
    async def limited() -> list[list[Any]]:
        agent, model = travel()
        ours = session(session_settings=SessionSettings(limit=50))
        await ours.add_items([{"role": "user", "content": str(n)} for n in range(9)])
        config = RunConfig(tracing_disabled=True, session_settings=SessionSettings(limit=2))
        await Runner.run(agent, "And in Faro?", session=ours, run_config=config)
        return model.seen

    assert [item["content"] for item in do(limited())[0]] == ["7", "8", "And in Faro?"]


async def test_a_run_that_fails_keeps_what_came_before(session: Session) -> None:
    def fail(items: list[Any]) -> list[Any]:
        if items[-1].get("type") == "function_call_output":
            raise RuntimeError("the network is gone")
        return [call("weather", '{"city":"Faro"}', "call_0")]

    agent: Agent[Any] = Agent(name="travel", model=Scripted(fail), tools=[weather])
    with pytest.raises(RuntimeError, match="network"):
        await Runner.run(agent, "And in Faro?", session=session(), run_config=QUIET)
    kept = await session().get_items()
    assert [item.get("type", item.get("role")) for item in kept] == ["user", "function_call", "function_call_output"]


def test_it_can_be_compacted_by_the_framework(session: Session, do: Do) -> None:
    class Client:
        """Answers a request to compact with one item."""

        class responses:  # noqa: N801  # named like the client's attribute
            @staticmethod
            async def compact(**_: Any) -> Any:
                class Answer:
                    output = [message("All so far.")]  # noqa: RUF012  # a stand-in

                return Answer

    async def compacted() -> Any:
        inner = session()
        await inner.add_items([{"role": "user", "content": "a"}, message("b")])
        client: Any = Client()
        outer = OpenAIResponsesCompactionSession("user-1", inner, client=client, compaction_mode="input")
        await outer.run_compaction({"force": True})
        return await inner.get_items()

    assert [item["content"] for item in do(compacted())] == [message("All so far.")["content"]]


@pytest.mark.parametrize("url", ["sqlite:///:memory:", None], ids=["memory", "database"])
def test_run_sync_works_with_a_store(database_url: str, url: str | None) -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)  # the framework would make one, and leave it open
    try:
        with Store.open(url or database_url) as store:
            agent, _ = travel()
            result = Runner.run_sync(agent, "And in Faro?", session=PersistSession("user-1", store), run_config=QUIET)
            assert result.final_output == "Sunny."
            assert len(loop.run_until_complete(PersistSession("user-1", store).get_items())) == 5
    finally:
        asyncio.set_event_loop(None)
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@pytest.fixture
def example(database_url: str, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    script = [sys.executable, "-W", "error", str(ROOT / "examples" / "openai_agents_app.py"), "--url", database_url]

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*script, *args], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)

    return run


@pytest.mark.parametrize("face", ["async"], indirect=True)
@pytest.mark.parametrize("crash", [0, 1, 2])
def test_the_example_goes_on_where_it_was_killed(
    example: Callable[..., subprocess.CompletedProcess[str]], session: Session, do: Do, tmp_path: Path, crash: int
) -> None:
    cities = ["Lisbon", "Porto", "Faro"]
    killed = example("--crash-in", cities[crash])
    assert (killed.returncode, killed.stderr) == (-signal.SIGKILL, "")
    kept = do(session("trip").get_items())
    assert [item["output"] for item in kept if item.get("type") == "function_call_output"] == [
        f"{city} is booked." for city in cities[:crash]
    ]
    again = example()
    assert (again.returncode, again.stderr) == (0, "")
    asked = [line for line in again.stdout.splitlines() if line.startswith("model: ")]
    assert asked == [f"model: book {city}" for city in cities[crash:]]
    assert again.stdout.endswith("agent: Booked: Lisbon, Porto, Faro.\n")
    assert (tmp_path / "agents-booked.txt").read_text(encoding="utf-8").split() == cities
    items = do(session("trip").get_items())
    assert items[: len(kept)] == kept
    assert [item["call_id"] for item in items if item.get("type") == "function_call_output"] == [
        f"call_{city}" for city in cities
    ]


# Many workers on one session, cancelled calls, and rows that another program spoilt.


WORKERS = 20


def pair(worker: int, turn: int) -> list[Any]:
    return [{"worker": worker, "turn": turn, "half": half} for half in (0, 1)]


def assert_whole(items: list[Any], turns: int) -> None:
    """Every pair is there once, together, and in the order in which its worker wrote."""
    assert len(items) == WORKERS * turns * 2
    halves = list(zip(items[::2], items[1::2], strict=True))
    assert all(list(both) == pair(both[0]["worker"], both[0]["turn"]) for both in halves)
    for worker in range(WORKERS):
        assert [item["turn"] for item, _ in halves if item["worker"] == worker] == list(range(turns))


def test_one_store_on_many_loops_serves_one_session(session: Session, do: Do) -> None:
    async def work(worker: int) -> None:
        for turn in range(2):
            await session().add_items(pair(worker, turn))
            assert len(await session().get_items()) >= 2

    in_loops(WORKERS, work)
    assert_whole(do(session().get_items()), 2)


def test_many_stores_on_many_loops_use_one_session_from_its_first_moment(database_url: str, face: str, look: Store) -> None:
    async def work(worker: int) -> None:
        opened = Store.open(database_url) if face == "sync" else await AsyncStore.open(database_url)
        try:
            for turn in range(2):
                await PersistSession("user-1", opened).add_items(pair(worker, turn))
        finally:
            if isinstance(opened, Store):
                opened.close()
            else:
                await opened.close()

    with ThreadPoolExecutor(WORKERS) as threads:
        list(threads.map(lambda worker: asyncio.run(work(worker)), range(WORKERS)))
    assert_whole(asyncio.run(PersistSession("user-1", look).get_items()), 2)


@pytest.mark.long
def test_processes_share_a_session(database_url: str, look: Store) -> None:
    line = [sys.executable, "-m", "tests.integrations.openai_agents.worker", "append", database_url]
    started = [subprocess.Popen([*line, str(first)], cwd=ROOT) for first in range(0, WORKERS, 5)]
    assert [process.wait(120) for process in started] == [0] * 4
    assert_whole(asyncio.run(PersistSession("user-1", look).get_items()), 2)


async def test_a_cancelled_call_happens_wholly_or_not_at_all(session: Session) -> None:
    ended = 0
    for number in range(40):
        call = asyncio.ensure_future(session().add_items([{"n": number, "half": half} for half in (0, 1)]))
        for _ in range(number % 8):
            await asyncio.sleep(0)
        await asyncio.sleep(0.0002 * (number % 5))
        call.cancel()
        call.cancel()
        try:
            await call
        except asyncio.CancelledError:
            ended += 1
        before = await session().get_items()
        await asyncio.sleep(0)
        assert await session().get_items() == before  # nothing happens behind the caller's back
    ended, items = ended, before
    assert ended > 0
    assert [item["half"] for item in items] == [0, 1] * (len(items) // 2)
    assert [item["n"] for item in items[::2]] == [item["n"] for item in items[1::2]]


def test_a_cancelled_pop_loses_no_more_than_its_item(session: Session, do: Do) -> None:
    async def cancelled() -> Any:
        await session().add_items([{"n": n} for n in range(5)])
        call = asyncio.ensure_future(session().pop_item())
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        return await session().get_items()

    left = [item["n"] for item in do(cancelled())]
    assert left in ([0, 1, 2, 3], [0, 1, 2, 3, 4])


SPOILT = {
    "cut off": '{"role":',
    "no JSON": "x",
    "no object": "[1]",
    "empty": "",
    "a number": 5,
    "null": None,
    "an object": {"a": 1},
    "an empty list": [],
    "a list of two": ["{}", "{}"],
    "a list of no text": [5],
    "joined": '{"a":1},{"b":2}',
}


@pytest.mark.parametrize("spoilt", SPOILT.values(), ids=list(SPOILT))
def test_what_cannot_be_read_is_left_out_and_not_counted(session: Session, do: Do, look: Store, spoilt: Any) -> None:
    ours = session()
    items: list[Any] = [{"n": n} for n in range(6)]
    do(ours.add_items(items))
    with look.begin() as tx:
        listed = tx.chat.messages.list("user-1")
        for place in (1, 3, 4, 5):
            kept = dict.fromkeys(listed[place]["metadata"])
            tx.chat.messages.update_metadata(listed[place]["id"], kept)
            tx.chat.messages.update_metadata(listed[place]["id"], dict.fromkeys(kept, spoilt))
    assert do(ours.get_items()) == do(ours.get_items(3)) == [items[0], items[2]]
    assert do(ours.get_items(1)) == [items[2]]
    assert [do(ours.pop_item()) for _ in range(3)] == [items[2], items[0], None]
    do(ours.add_items([{"n": 7}]))
    assert do(ours.get_items()) == [{"n": 7}]


def test_messages_that_are_no_items_are_nobody_s_business(session: Session, do: Do, look: Store) -> None:
    ours = session()
    do(ours.add_items([{"n": 0}]))
    with look.begin() as tx:
        tx.chat.messages.append("user-1", role="user", parts=[{"type": "text", "text": "hi"}], metadata={"x": 1})
        tx.chat.messages.enqueue("user-1", parts=[{"type": "text", "text": "later"}])
    assert do(ours.get_items(5)) == [{"n": 0}]
    assert do(ours.pop_item()) == {"n": 0}
    with look.read() as tx:
        assert len(tx.chat.messages.list("user-1")) == len(tx.chat.messages.queued("user-1")) == 1
