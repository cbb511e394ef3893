"""What the chat of the real AI SDK, the object behind useChat, posts in everyday scenes is taken in, and is what is stored."""

import json
from typing import Any

from tests.cases import each
from tests.contract.chat.posts import sync
from tests.contract.chat.scenes import create, record, shown
from tests.subprocesses import ROOT

SCENES: list[dict[str, Any]] = json.loads((ROOT / "tests/streams/ai-sdk-posts.json").read_text("utf-8"))["scenes"]


@each("scene", SCENES, ids=lambda scene: f"{scene['name']}, {scene['ai_sdk']}")
def test_a_scene_of_the_sdk_is_taken_in(store: Any, scene: dict[str, Any]) -> None:
    session = create(store)
    for step in scene["steps"]:
        if step["chunks"] is None:
            continue  # the post did not arrive
        post = step["post"]
        options = {"trigger": post["trigger"], "message_id": post.get("messageId")}
        found = sync(store, session, post["messages"], **options)
        assert found.changed
        assert found.continues == step["continues"]
        assert not sync(store, session, post["messages"], **options).changed
        record(store, session, step["chunks"], ai_sdk=scene["ai_sdk"])

    stored, seen = shown(store, session), scene["messages"]
    assert [message["role"] for message in stored] == [message["role"] for message in seen]
    assert [kinds(message) for message in stored] == [kinds(message) for message in seen] or "lost" in scene["name"]
    assert dict(sync(store, session, seen, trigger="submit-message"))["changed"] is False
    store.chat.sessions.delete(session)


def kinds(message: dict[str, Any]) -> list[tuple[str, Any]]:
    """The types of a message's parts, and the states of its tool calls."""
    return [(part["type"], part.get("state") if "toolCallId" in part else None) for part in message["parts"]]
