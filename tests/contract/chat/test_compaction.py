"""Compaction: a summary takes the place of what came before it in the model's view, and in nobody else's."""

import json
from pathlib import Path
from typing import Any

import pytest

from persist.errors import NotFound
from tests.cases import each
from tests.contract.chat.scenes import create, rollup, say, shown, words

STREAMS = Path(__file__).parents[2] / "streams"


@pytest.fixture
def talk(store: Any, clock: Any, session: str) -> list[str]:
    """Four turns, each with 10·n input tokens -> ids of u1 a1 u2 a2 u3 a3 u4 a4."""
    ids = []
    for number in range(1, 5):
        clock.advance(seconds=1)
        ids += [say(store, session, f"u{number}"), say(store, session, f"a{number}", role="assistant")]
        store.chat.messages.record_step_usage(ids[-1], 0, input_tokens=10**number, output_tokens=0)
    return ids


def compact(store: Any, session: str, tail: str | None, **options: Any) -> Any:
    fields = {"summary": "what happened", "auto": True, "summary_tokens": 7, **options}
    return store.chat.messages.compact(session, tail_start_id=tail, **fields)


def view(store: Any, session: str, **options: Any) -> list[Any]:
    messages: list[Any] = store.chat.messages.model_view(session, **options)
    return messages


def summary(store: Any, session: str) -> Any:
    return words(view(store, session))[0]


def test_the_marker_is_an_assistant_message_that_sorts_last(store: Any, session: str, talk: list[str]) -> None:
    marker = compact(store, session, talk[4])
    assert marker.role == "assistant"
    last = shown(store, session)[-1]
    assert last["id"] == marker.id
    data = {"summary": "what happened", "tail_start_id": talk[4], "auto": True, "summary_tokens": 7}
    assert last["parts"] == [{"type": "data-compaction", "data": data}]
    assert last["metadata"]["usage"]["input"] == 7
    assert len(shown(store, session)) == 9  # it hides nothing


def test_the_model_sees_summary_tail_and_what_follows(store: Any, session: str, talk: list[str]) -> None:
    marker = compact(store, session, talk[4])
    assert words(view(store, session)) == ["what happened", "u3", "a3", "u4", "a4"]
    assert view(store, session)[0]["id"] == marker.id
    assert rollup(store, session)[0] == 1000 + 10_000 + 7
    say(store, session, "u5")
    assert words(view(store, session)) == ["what happened", "u3", "a3", "u4", "a4", "u5"]


VIEWS = {one["name"]: one for one in json.loads((STREAMS / "ai-sdk-views.json").read_text(encoding="utf-8"))["views"]}


def conversation(store: Any, session: str, view: list[Any]) -> None:
    """The one that has this view, with something before it."""
    given = [message for message in view if message["id"] != "marker"]
    kept, later = given[:2], given[2:]
    say(store, session, "long ago")
    with store.begin() as tx:
        for message in kept:
            tx.chat.messages.append(session, **message)
        tail = kept[0]["id"] if kept else None
        tx.chat.messages.compact(session, summary="What happened.", tail_start_id=tail, auto=True, summary_tokens=7)
        for message in later:
            tx.chat.messages.append(session, **message)


@each("name", ["text", "text alone", "data"])
def test_what_the_sdk_is_given(store: Any, name: str) -> None:
    """The views are those that the SDK itself converted, with its defaults: in each major, text reaches the model first."""
    session = create(store)
    expected = VIEWS[name]
    conversation(store, session, expected["view"])
    found = view(store, session, summary_as=name.split()[0])
    assert [{**found[0], "id": "marker"}, *found[1:]] == expected["view"]
    first = {"role": "user", "content": [{"type": "text", "text": "What happened."}]}
    assert expected["model"].keys() == {"6", "7"}
    for messages in expected["model"].values():
        assert (messages[0] == first) is (name != "data")
        assert len(messages) == len(expected["model"]["6"])
    if name != "data":
        assert view(store, session) == found  # without a word
    assert shown(store, session)[-1 - len(expected["view"][3:])]["parts"][0]["type"] == "data-compaction"  # the list's own form
    store.chat.sessions.delete(session)


def test_a_marker_that_says_more_stays_the_assistants(store: Any, session: str) -> None:
    """As a host writes one itself, with a part of its own."""
    mine = {"type": "text", "text": "I forget "}
    marker = {"type": "data-compaction", "data": {"summary": "the rest", "tail_start_id": None}}
    broken = {"type": "data-compaction", "data": {"summary": None}}
    store.chat.messages.append(session, role="assistant", parts=[mine, marker, broken])
    (message,) = view(store, session)
    assert (message["role"], message["parts"]) == ("assistant", [mine, {"type": "text", "text": "the rest"}, broken])
    assert view(store, session, summary_as="data") == shown(store, session)


def test_without_a_tail_the_marker_is_the_boundary(store: Any, session: str, talk: list[str]) -> None:
    compact(store, session, None)
    assert words(view(store, session)) == ["what happened"]
    assert rollup(store, session)[0] == 7
    say(store, session, "u5")
    assert words(view(store, session)) == ["what happened", "u5"]


def test_the_latest_marker_wins(store: Any, session: str, talk: list[str]) -> None:
    compact(store, session, talk[2], summary="one")
    say(store, session, "u5")
    second = compact(store, session, talk[6], summary="two", summary_tokens=3)
    assert summary(store, session) == "two"
    seen = [message["id"] for message in view(store, session)]
    assert seen[:3] == [second.id, talk[6], talk[7]]
    store.chat.sessions.rewind(session, talk[6])
    assert words(view(store, session)) == ["u1", "a1", "u2", "a2", "u3", "a3", "u4"]


@pytest.mark.parametrize("kept", ["the summary before", "what that summary kept"])
def test_a_summary_in_the_tail_reaches_the_model_too(store: Any, session: str, talk: list[str], kept: str) -> None:
    """The tail may start with an earlier summary, or before it: the model is told of it as of the newest."""
    first = compact(store, session, talk[6], summary="one")
    say(store, session, "u5")
    second = compact(store, session, first.id if kept == "the summary before" else talk[7], summary="two")
    between = [] if kept == "the summary before" else ["a4"]
    assert words(view(store, session)) == ["two", *between, "one", "u5"]
    told = {"role": "user", "parts": [{"type": "text", "text": "one"}]}
    assert [message for message in view(store, session) if message["id"] == first.id] == [
        {**told, "id": first.id, "metadata": first.metadata}
    ]
    whole = {message["id"]: message for message in shown(store, session)}
    stored = view(store, session, summary_as="data")
    assert stored == [whole[message["id"]] for message in stored]
    assert stored[0]["id"] == second.id


def test_the_tail_starts_at_a_visible_message_of_the_session(store: Any, session: str, talk: list[str]) -> None:
    stranger = say(store, create(store), "elsewhere")
    store.chat.sessions.rewind(session, talk[4])
    for tail in (stranger, "msg_nowhere", talk[6]):
        with pytest.raises(NotFound):
            compact(store, session, tail)
    with pytest.raises(NotFound):
        compact(store, "ses_nowhere", None)
