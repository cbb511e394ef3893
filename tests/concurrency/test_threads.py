"""Threads that want the same thing on one store: exactly one gets it, nothing is lost, and nobody waits longer than told."""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import accumulate, pairwise
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from persist import Store
from persist.db.concurrency.writer_lock import Cancelled, Waiting
from persist.db.dialects.sqlite import connections
from persist.db.dialects.sqlite import dialect as sqlite_dialect
from persist.errors import Conflict, InvalidValue, StoreBusy
from persist.settings import Settings
from tests.at_once import together
from tests.contract.chat.posts import approved, asked, posted, talk, user
from tests.contract.chat.scenes import Message, approval, call, create, record, say, shown, text, turn, words
from tests.contract.conftest import Raw
from tests.statement_log import seen_statements


def test_every_queued_message_is_fired_or_canceled_once(store: Store) -> None:
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


# A file that another process is writing is waited for once, as long as the settings say.


@pytest.fixture
def busy_url(sqlite_url: str) -> Iterator[str]:
    """A file whose write lock somebody holds."""
    Store.open(sqlite_url).close()
    writer = Raw(sqlite_url)
    writer.rows("BEGIN IMMEDIATE")
    yield sqlite_url
    writer.close()


def test_a_short_wait_is_tried_five_times(busy_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    statements, slept = seen_statements(monkeypatch), list[float]()
    with Store.open(busy_url, settings=Settings(busy_timeout_ms=0), sleep=slept.append) as store:
        statements.clear()
        with pytest.raises(StoreBusy), store.begin():
            pytest.fail("somebody else holds the lock")
    assert statements.count("BEGIN IMMEDIATE") == 5
    assert slept[:3] == [0.1, 0.2, 0.4]


@pytest.mark.parametrize("milliseconds", [0, 200])
def test_a_lock_that_was_waited_for_is_not_waited_for_again(
    busy_url: str, monkeypatch: pytest.MonkeyPatch, milliseconds: int
) -> None:
    monkeypatch.setattr(sqlite_dialect, "_FIVE_ATTEMPTS", 0)  # as if the setting were above two seconds
    statements, slept = seen_statements(monkeypatch), list[float]()
    with Store.open(busy_url, settings=Settings(busy_timeout_ms=milliseconds), sleep=slept.append) as store:
        statements.clear()
        with pytest.raises(StoreBusy) as busy, store.begin():
            pytest.fail("somebody else holds the lock")
    assert statements.count("BEGIN IMMEDIATE") == 1 or milliseconds
    assert slept == []
    assert busy.value.waited >= milliseconds / 1000


class Held:
    """A driver connection whose database is locked until it was asked so many times, and a clock that only waiting moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, until: float = inf) -> None:
        self.asked, self._until, self.now, self.slept = 0, until, 1000.0, list[float]()
        monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep))

    def execute(self, statement: str) -> None:
        assert statement == "BEGIN IMMEDIATE"
        self.asked += 1
        if self.asked <= self._until:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorname = "SQLITE_BUSY"
            raise error

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.mark.parametrize("timeout", [0, 0.005, 0.2, 5, 30])
def test_the_lock_is_asked_for_more_often_towards_the_end_and_never_beyond_it(
    timeout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    with pytest.raises(sqlite3.OperationalError):
        connections.begin(held, timeout)
    assert sum(held.slept) == pytest.approx(timeout)
    assert all(0 < seconds <= 0.01 for seconds in held.slept)
    assert held.asked == len(held.slept) + 1
    if timeout >= 5:
        left = list(reversed(list(accumulate(reversed(held.slept)))))
        assert sum(one < 0.5 for one in left) > 250  # asked so often in the last half second: SQLite itself asks five times
        assert all(connections.pause(less, lambda: 1) <= connections.pause(more, lambda: 1) for more, less in pairwise(left))


def test_two_waiters_do_not_wait_alike() -> None:
    assert [connections.pause(5, chance) for chance in (lambda: 0, lambda: 0.5, lambda: 1)] == [0.005, 0.0075, 0.01]


def test_who_gets_the_lock_in_time_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, until=100)
    connections.begin(held, 5)
    assert held.asked == 101


@pytest.mark.parametrize(("waited", "left"), [(4.5, 0.5), (60.0, 0.1)], ids=["in time", "too late"])
def test_what_was_waited_for_in_this_process_counts(monkeypatch: pytest.MonkeyPatch, waited: float, left: float) -> None:
    held = Held(monkeypatch)
    with pytest.raises(sqlite3.OperationalError):
        connections.begin(held, 5, Waiting(held.now - waited))
    assert sum(held.slept) == pytest.approx(left)


def test_a_wait_ends_when_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    with pytest.raises(Cancelled):
        connections.begin(held, 5, Waiting(held.now, lambda: held.asked == 3))
    assert held.asked == 3


def test_a_connection_of_a_host_keeps_its_own_timeout(busy_url: str) -> None:
    with closing(sqlite3.connect(busy_url.removeprefix("sqlite:///"), timeout=0.03)) as theirs:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            connections.begin_patiently(theirs)
        assert theirs.execute("PRAGMA busy_timeout").fetchone() == (30,)


def test_a_free_lock_costs_no_statement_more(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    statements = seen_statements(monkeypatch)
    with Store.open(sqlite_url) as store:
        create(store)
        statements.clear()
        with store.begin():
            pass
    assert statements[:2] == ["BEGIN IMMEDIATE", "COMMIT"]


# Tabs that post at once are taken in one after the other: each post takes effect whole, or is refused.


TABS = 6
Post = tuple[str, list[Message], dict[str, Any]]
"""A session, the messages that are posted to it, and further arguments."""


def outcome(store: Store, post: Post) -> Any:
    """What a post did, or the name of its refusal."""
    session, messages, options = post
    try:
        return dict(store.chat.messages.sync(session, messages, **options))
    except (Conflict, InvalidValue) as error:
        return type(error).__name__


@pytest.fixture
def race(open_store: Callable[..., Store]) -> Callable[[Sequence[Sequence[Post]]], list[list[Any]]]:
    """The outcomes of each round, whose posts come at once, each by a handle on the database that shares no lock."""
    handles = [open_store() for _ in range(TABS)]
    return lambda rounds: [
        together([partial(outcome, handle, post) for handle, post in zip(handles, posts, strict=False)]) for posts in rounds
    ]


def test_new_questions_of_many_tabs_are_all_taken(store: Store, race: Any) -> None:
    session = create(store)
    before = posted(*talk(store, session))
    rounds: list[list[Post]] = [
        [(session, [*before, user(f"q{at}{tab}", f"{at}{tab}")], {}) for tab in range(TABS)] for at in range(3)
    ]
    found = race(rounds)
    assert [each["added"] for outcomes in found for each in outcomes] == [
        [f"q{at}{tab}"] for at in range(3) for tab in range(TABS)
    ]
    assert sorted(words(shown(store, session)[4:])) == sorted(f"{at}{tab}" for at in range(3) for tab in range(TABS))
    assert shown(store, session)[:4] == before


def test_one_question_of_many_tabs_is_taken_once(store: Store, race: Any) -> None:
    session = create(store)
    rounds: list[list[Post]] = [
        [(session, [user(f"q{at}", "the same")], {"trigger": "submit-message"})] * TABS for at in range(4)
    ]
    for at, outcomes in enumerate(race(rounds)):
        assert sorted(found["changed"] for found in outcomes) == [False] * (TABS - 1) + [True], at
    assert len(shown(store, session)) == 4


def test_an_approval_is_answered_by_one_tab(store: Store, race: Any) -> None:
    rounds: list[list[Post]] = []
    for _ in range(4):
        session = create(store)
        say(store, session, "?", id=f"u of {session}")
        question, answer = shown(store, session)[0], f"a of {session}"
        chunks = [{"type": "tool-input-available", "toolCallId": "c1", "toolName": "rm", "input": {}}]
        record(
            store, session, turn(*chunks, {"type": "tool-approval-request", "approvalId": "ap", "toolCallId": "c1"}, id=answer)
        )
        waiting = shown(store, session)[1]
        rounds.append([(session, posted(question, approved(waiting, approved=bool(tab % 2))), {}) for tab in range(TABS)])
    for posts, outcomes in zip(rounds, race(rounds), strict=True):
        said = shown(store, posts[0][0])[1]["parts"][1]["approval"]["approved"]
        for tab, found in enumerate(outcomes):
            assert found == "InvalidValue" if bool(tab % 2) != said else found["approvals"] in ([], ["ap"])
        assert [found["approvals"] for found in outcomes if found != "InvalidValue"].count(["ap"]) == 1


def test_edits_of_many_tabs_are_whole(store: Store, race: Any) -> None:
    session = create(store)
    say(store, session, "asked", id="u")
    record(store, session, turn(*text("answered"), id="a"))
    parts = [[{"type": "text", "text": f"{tab}"}] * (1 + tab % 3) for tab in range(TABS)]
    edits = [{"id": "u", "role": "user", "parts": part, "metadata": {"tab": tab}} for tab, part in enumerate(parts)]
    (outcomes,) = race([[(session, [edit], {"trigger": "submit-message"}) for edit in edits]])
    assert [found["edited"] for found in outcomes] == [["u"]] * TABS
    assert [found["hidden"] for found in outcomes].count(["a"]) == 1
    (left,) = shown(store, session)
    assert left in edits


def test_edits_and_questions_at_once_lose_nothing_half(store: Store, race: Any) -> None:
    session = create(store)
    question, answer = posted(*asked(store, session))
    posts: list[Post] = [
        (session, [user("u1", "edited")], {"trigger": "submit-message", "message_id": "u1"}),
        (session, [question, approved(answer)], {"trigger": "submit-message", "message_id": "a1"}),
        (session, [question, answer, user("u2", "next")], {"trigger": "submit-message"}),
        (session, [question], {"trigger": "regenerate-message", "message_id": "a1"}),
    ]
    (outcomes,) = race([posts])
    refused = [found for found in outcomes if isinstance(found, str)]
    assert set(refused) <= {"Conflict", "InvalidValue"}
    left, everything = shown(store, session), shown(store, session, include_hidden=True)
    answered = next(message for message in everything if message["id"] == "a1")["parts"][1]["state"]
    assert (answered == "approval-responded") == (not isinstance(outcomes[1], str) and outcomes[1]["approvals"] == ["ap"])
    assert any(message["id"] == "u2" for message in everything) == (not isinstance(outcomes[2], str))
    assert "a1" not in [message["id"] for message in left]  # one of them took it back
