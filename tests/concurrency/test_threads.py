"""Threads that want the same thing on one store: exactly one gets it, and nothing is lost."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from persist import Store
from persist.errors import Conflict
from tests.contract.chat.scenes import approval, call, create, record, say, shown, text, turn, words


def together(functions: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run them all at once -> what each returned; an error of any is raised."""
    barrier = threading.Barrier(len(functions))
    results: list[Any] = [None] * len(functions)
    errors: list[BaseException] = []

    def run(index: int, function: Callable[[], Any]) -> None:
        try:
            barrier.wait(30)
            results[index] = function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]
    return results


def test_every_queued_message_is_fired_or_canceled_once(store: Store) -> None:
    """(c) 16"""
    session = create(store)
    with store.begin() as tx:
        ids = [tx.chat.messages.enqueue(session, parts=[], id=f"q{number:02}").id for number in range(24)]

    def claim() -> list[str]:
        won = []
        for _ in ids:
            with store.begin() as tx:
                message = tx.chat.messages.claim_queued(session)
            if message is not None:
                won.append(message.id)
        return won

    def cancel() -> list[str]:
        won = []
        for id in reversed(ids):
            with store.begin() as tx:
                if tx.chat.messages.cancel_queued(id):
                    won.append(id)
        return won

    won = together([claim, cancel] * 4)
    assert sorted(id for some in won for id in some) == ids
    fired = sorted(id for some in won[::2] for id in some)
    assert sorted(message["id"] for message in shown(store, session)) == fired
    with store.read() as tx:
        assert tx.chat.messages.queued(session) == []


def test_one_message_is_enqueued_once_by_many(store: Store) -> None:
    session = create(store)

    def enqueue() -> str:
        with store.begin() as tx:
            return tx.chat.messages.enqueue(session, parts=[], metadata={"trigger": {"delivery_id": "d"}}).id

    assert len(set(together([enqueue] * 8))) == 1
    with store.read() as tx:
        assert len(tx.chat.messages.queued(session)) == 1


def test_one_answer_to_an_approval_counts(store: Store) -> None:
    session = create(store)
    record(store, session, turn(call("bash", "c"), approval("ap", "c")))

    def answer(number: int) -> bool:
        with store.begin() as tx:
            return tx.chat.messages.answer_approval(session, "ap", approved=number % 2 == 0, reason=str(number))

    results = together([lambda number=number: answer(number) for number in range(8)])  # type: ignore[misc]  # a default that binds the loop variable
    assert sum(results) == 1
    stored = shown(store, session)[0]["parts"][1]["approval"]
    winner = results.index(True)
    assert stored == {"id": "ap", "approved": winner % 2 == 0, "reason": str(winner)}


def test_recorders_of_different_sessions_share_a_store(store: Store) -> None:
    sessions = [create(store) for _ in range(6)]
    pieces = [f"{number} " for number in range(150)]
    together([lambda session=session: record(store, session, turn(*text(*pieces))) for session in sessions])  # type: ignore[misc]  # a default that binds the loop variable
    assert [words(shown(store, session)) for session in sessions] == [["".join(pieces)]] * 6


def test_one_recorder_fed_by_many_threads_keeps_every_chunk(store: Store) -> None:
    session = create(store)
    with store.record(session) as recorder:
        recorder.feed({"type": "text-start", "id": "t"})

        def feed() -> None:
            for _ in range(50):
                recorder.feed({"type": "text-delta", "id": "t", "delta": "x"})

        together([feed] * 8)
    assert words(shown(store, session)) == ["x" * 400]


def test_of_many_recorders_in_a_session_one_runs(store: Store) -> None:
    session = create(store)
    done = threading.Barrier(8)

    def attempt() -> bool:
        try:
            with store.record(session) as recorder:
                recorder.feed_many(text("only one"))
                done.wait(30)
                return True
        except Conflict:
            done.wait(30)
            return False

    assert sum(together([attempt] * 8)) == 1
    assert words(shown(store, session)) == ["only one"]


def test_usage_of_many_steps_adds_up(store: Store) -> None:
    session = create(store)
    messages = [say(store, session, "hi", role="assistant") for _ in range(2)]

    def use(number: int) -> None:
        for step in range(10):
            with store.begin() as tx:  # every step is reported by two threads
                tx.chat.messages.record_step_usage(
                    messages[number % 2], step + 10 * (number // 4), input_tokens=1, output_tokens=0
                )

    together([lambda number=number: use(number) for number in range(8)])  # type: ignore[misc]  # a default that binds the loop variable
    with store.read() as tx:
        assert tx.chat.sessions.get(session).prompt_tokens == 40
    assert [message["metadata"]["usage"]["input"] for message in shown(store, session)] == [20, 20]


def test_metadata_patches_of_many_threads_all_survive(store: Store) -> None:
    session = create(store)
    message = say(store, session, "hi")

    def patch(number: int) -> None:
        for key in range(10):
            with store.begin() as tx:
                tx.chat.sessions.update_metadata(session, {f"{number}.{key}": 1})
                tx.chat.messages.update_metadata(message, {f"{number}.{key}": 1})

    together([lambda number=number: patch(number) for number in range(6)])  # type: ignore[misc]  # a default that binds the loop variable
    with store.read() as tx:
        assert len(tx.chat.sessions.get(session).metadata) == 60
    assert len(shown(store, session)[0]["metadata"]) == 60
