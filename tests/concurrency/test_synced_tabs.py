"""Tabs that post at once are taken in one after the other: each post takes effect whole, or is refused.

The processes of these tests run this file: `python -m tests.concurrency.test_synced_tabs URL POSTS`.
"""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from persist import Store
from persist.errors import Conflict, InvalidValue
from tests.at_once import together
from tests.contract.chat.posts import approved, asked, posted, talk, user
from tests.contract.chat.scenes import Message, create, record, say, shown, text, turn, words
from tests.subprocesses import Worker

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


def by_threads(store: Store, url: str, rounds: Sequence[Sequence[Post]]) -> list[list[Any]]:
    """The outcomes of each round, whose posts come at once from threads of one store."""
    return [together([lambda post=post: outcome(store, post) for post in posts]) for posts in rounds]  # type: ignore[misc]  # a default that binds the loop variable


def by_processes(store: Store, url: str, rounds: Sequence[Sequence[Post]]) -> list[list[Any]]:
    """The outcomes of each round, whose posts come from a process each, as fast as it can."""
    tabs = []
    try:
        for number in range(len(rounds[0])):
            posts = json.dumps([posts[number] for posts in rounds])
            tabs.append(Worker("tests.concurrency.test_synced_tabs", url, posts, stdin=True))
        for tab in tabs:
            assert tab.stdout.readline() == "ready\n"
        for tab in tabs:
            assert tab.stdin is not None
            tab.stdin.write("go\n")
            tab.stdin.flush()
        told = [json.loads(tab.communicate(timeout=120)[0]) for tab in tabs]
        return [list(outcomes) for outcomes in zip(*told, strict=True)]
    finally:
        for tab in tabs:
            tab.close()


@pytest.fixture(params=[by_threads, by_processes], ids=["threads", "processes"])
def race(
    request: pytest.FixtureRequest, store: Store, database_url: str
) -> Callable[[Sequence[Sequence[Post]]], list[list[Any]]]:
    return lambda rounds: request.param(store, database_url, rounds)


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


def main(url: str, posts: str) -> None:
    with Store.open(url) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps([outcome(store, (post[0], post[1], post[2])) for post in json.loads(posts)]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
