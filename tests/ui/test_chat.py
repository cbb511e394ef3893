"""The pages of chats: the list, a transcript, single messages, files, downloads, and what may be changed."""

import base64
import json
from typing import Any

import pytest
from click.testing import CliRunner

from persist import Store
from persist.cli import main
from persist.testing import FrozenClock
from tests.contract.conftest import Raw
from tests.ui.visitor import Visitor

MODEL = {"provider_id": "lighthouse", "model_id": "small"}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
EVIL = "<script>alert(1)</script>\"'\u202e"


def data_url(body: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(body).decode()}"


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


def chat(state: Store, *said: str, **about: Any) -> str:
    """A chat in which a person and an agent speak by turns."""
    with state.begin() as tx:
        id = tx.chat.sessions.create(**{"agent": "build", "model": MODEL, **about}).id
        for number, words in enumerate(said):
            tx.chat.messages.append(id, role="assistant" if number % 2 else "user", parts=text(words))
    return id


def answered(state: Store, *parts: dict[str, Any], metadata: Any = None) -> tuple[str, str]:
    """A chat with one answer of these parts, and that message."""
    id = chat(state)
    with state.begin() as tx:
        return id, tx.chat.messages.append(id, role="assistant", parts=list(parts), metadata=metadata).id


# -- the list


def test_the_list_is_filtered_and_json_is_that_of_ls(
    state: Store, visitor: Visitor, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = chat(state, metadata={"title": "Totals are off"}, owner="maria")
    chat(state, agent="plan", metadata={"title": "A plan"}, workspace_root="/home/x")
    assert "Totals are off" in visitor.get("/chat").main
    for name, value in (("agent", "build"), ("owner", "maria"), ("search", "totals")):
        found = visitor.get(f"/chat?{name}={value}").main
        assert "Totals are off" in found
        assert "A plan" not in found
    assert "A plan" in visitor.get("/chat", workspace_root="/home/x").main
    monkeypatch.setenv("PERSIST_DATABASE_URL", database_url)
    printed = json.loads(CliRunner().invoke(main, ["ls", "--json", "--owner", "maria"]).output)
    assert visitor.json("/chat", owner="maria") == printed
    assert [one["id"] for one in printed["items"]] == [first]


def test_archived_chats_are_shown_when_they_are_asked_for(state: Store, visitor: Visitor) -> None:
    id = chat(state, metadata={"title": "An old plan"})
    with state.begin() as tx:
        tx.chat.sessions.archive(id)
    assert "An old plan" not in visitor.get("/chat").main
    for which in ("too", "alone"):
        assert "An old plan archived" in visitor.get("/chat", archived=which).main
    assert visitor.get("/chat", archived="perhaps").status == 400


def test_pages_of_the_list_go_on_by_cursor(state: Store, visitor: Visitor) -> None:
    for number in range(3):
        chat(state, metadata={"title": f"chat {number}"})
    page = visitor.json("/chat", limit=2)
    assert "next page" in visitor.get("/chat", limit=2).main
    rest = visitor.get("/chat", limit=2, after=page["cursor"])
    assert "first page" in rest.main
    assert "next page" not in rest.main


def test_an_empty_list_says_what_would_fill_it(visitor: Visitor) -> None:
    assert "No chats. A chat begins with tx.chat.sessions.create" in visitor.get("/chat").main
    assert "No chat is like that." in visitor.get("/chat", agent="nobody").main


# -- a transcript


def test_a_transcript_is_read_as_it_was_said_and_json_is_that_of_show(
    state: Store, visitor: Visitor, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = chat(state, "Why is it **slow**?", "Because of `this`:\n\n```python\ndef f(): ...\n```", metadata={"title": "Slow"})
    page = visitor.get(f"/chat/{id}")
    assert "<strong>slow</strong>" in page.text
    assert '<span class="hl-k">def</span>' in page.text
    assert "lighthouse/small" in page.main
    monkeypatch.setenv("PERSIST_DATABASE_URL", database_url)
    assert visitor.json(f"/chat/{id}") == json.loads(CliRunner().invoke(main, ["show", id, "--json"]).output)


def test_a_missing_chat_is_named(visitor: Visitor) -> None:
    for path in ("/chat/none", "/chat/none/live", "/chat/none/transcript.json", "/chat/none/messages/m", "/chat/none/files/ab"):
        answer = visitor.get(path)
        assert answer.status in (400, 404), path
    assert "There is no session &#39;none&#39;." in visitor.get("/chat/none").main


def test_every_part_has_its_words(state: Store, visitor: Visitor) -> None:
    call = {"type": "tool-bash", "toolCallId": "c1", "input": {"command": "make"}}
    id, _ = answered(
        state,
        {"type": "step-start"},
        {"type": "reasoning", "text": "I think first.", "state": "done"},
        {**call, "state": "output-available", "output": {"ok": [1, 2]}},
        {**call, "toolCallId": "c2", "state": "output-error", "errorText": "it broke"},
        {"type": "source-url", "sourceId": "s", "url": "https://example.com/a", "title": "A page"},
        {"type": "source-url", "sourceId": "t", "url": "javascript:alert(1)", "title": "Another"},
        {"type": "file", "mediaType": "text/plain", "filename": "notes.txt", "url": data_url(b"hello", "text/plain")},
        {"type": "data-plan", "id": "p", "data": {"steps": ["read"]}},
        {"type": "steering-message", "id": "x", "parts": [{"type": "text", "text": "Leave it until Monday."}]},
        *text("So it is."),
    )
    page = visitor.get(f"/chat/{id}")
    for words in (
        "step 1",
        "I think first.",
        "bash output-available",
        "command make",
        "it broke",
        "A page",
        "notes.txt",
        "data-plan",
    ):
        assert words in page.main, words
    for words in ("steps", "Said while the answer was written", "Leave it until Monday.", "So it is."):
        assert words in page.main, words
    assert 'href="https://example.com/a"' in page.text
    assert "javascript:" not in page.text


@pytest.mark.parametrize("state_of_call", ["input-available", "approval-requested", "approval-responded", "output-denied"])
def test_a_call_says_how_far_it_is(state: Store, changer: Visitor, state_of_call: str) -> None:
    approval: dict[str, Any] = {"id": "a1"} | (
        {} if state_of_call == "approval-requested" else {"approved": False, "reason": "No."}
    )
    part = {"type": "tool-bash", "toolCallId": "c", "state": state_of_call, "input": {}}
    id, _ = answered(state, part | ({} if state_of_call == "input-available" else {"approval": approval}))
    page = changer.get(f"/chat/{id}").main
    assert f"bash {state_of_call}" in page
    assert ("asks for leave" in page) == (state_of_call == "approval-requested")
    assert ("Refused: No." in page) == (state_of_call in ("approval-responded", "output-denied"))


def test_tokens_and_cost_are_said_of_a_step_of_a_message_and_in_all(state: Store, visitor: Visitor) -> None:
    id = chat(state)
    with state.record(id, model=MODEL) as recorder:
        recorder.feed_many([{"type": "start", "messageId": "answer"}, {"type": "start-step"}, {"type": "text-start", "id": "t"}])
        recorder.feed_many([{"type": "text-delta", "id": "t", "delta": "Yes."}, {"type": "text-end", "id": "t"}])
        recorder.step_usage(0, input_tokens=1_200, output_tokens=34, cost_usd=0.25)
        recorder.feed_many([{"type": "finish-step"}, {"type": "start-step"}])
        recorder.step_usage(1, input_tokens=800, output_tokens=16, cost_usd=0.5)
        recorder.feed({"type": "finish"})
    page = visitor.get(f"/chat/{id}").main
    assert "step 1 1,200 in, 34 out · $0.2500" in page
    assert "step 2 800 in, 16 out · $0.5000" in page
    assert "2,000 in, 50 out · $0.7500" in page
    assert "cost in all $0.7500" in page


def test_hidden_and_waiting_messages_are_shown_on_request(state: Store, changer: Visitor) -> None:
    id = chat(state, "A question", "The first answer")
    with state.begin() as tx:
        first = tx.chat.messages.list(id)[0]["id"]
        tx.chat.sessions.rewind(id, first)
        tx.chat.messages.enqueue(id, parts=text("And then?"), id="later")
    page = changer.get(f"/chat/{id}").main
    assert "with hidden and 1 waiting ones" in page
    assert "The first answer" not in page
    assert "And then?" not in page
    shown = changer.get(f"/chat/{id}", hidden=1).main
    assert "The first answer" in shown
    assert "waits for its turn" in shown
    assert len(changer.json(f"/chat/{id}", hidden=1)["messages"]) == 2
    assert changer.post(f"/chat/{id}/messages/later/cancel", back=f"/chat/{id}").status == 303
    assert "which waited" in changer.get(f"/chat/{id}").main
    assert changer.post(f"/chat/{id}/messages/later/cancel").status == 409


def test_a_compaction_says_what_it_is(state: Store, visitor: Visitor) -> None:
    id = chat(state, "one", "two")
    with state.begin() as tx:
        tx.chat.messages.compact(id, summary="They *counted*.", tail_start_id=None, auto=True, summary_tokens=4)
    page = visitor.get(f"/chat/{id}")
    assert "What came before, summed up by itself, as it grew long · 4 tokens" in page.main
    assert "<em>counted</em>" in page.text


def test_long_transcripts_go_back_by_cursor_and_every_message_is_on_one_page(state: Store, visitor: Visitor) -> None:
    id = chat(state, *(f"line-{number:03}." for number in range(230)))
    seen, before = list[str](), ""
    while True:
        page = visitor.get(f"/chat/{id}?before={before}" if before else f"/chat/{id}")
        words = [word for word in page.main.split() if word.startswith("line-")]
        seen = words + seen
        older = page.text.partition("before=")[2].partition('"')[0].partition("&")[0]
        if "older messages" not in page.main:
            break
        before = older
    assert seen == [f"line-{number:03}." for number in range(230)]
    assert visitor.get(f"/chat/{id}", before="nothing").status == 404


def test_forks_are_a_tree_and_say_what_they_share(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    root = chat(state, "first question", "first answer", metadata={"title": "Root"})
    with state.begin() as tx:
        clock.advance(seconds=10)
        question = tx.chat.messages.list(root)[0]["id"]
        fork = tx.chat.sessions.fork(root, question, metadata={"title": "Branch"}).id
        clock.advance(seconds=10)
        tx.chat.messages.append(fork, role="assistant", parts=text("another answer"))
        below = tx.chat.sessions.fork(fork, tx.chat.messages.list(fork)[1]["id"], metadata={"title": "Twig"}).id
    page = visitor.get(f"/chat/{fork}").main
    assert f"Forked from {root}" in page
    assert "forked here: from now on this chat goes its own way" in page
    assert page.count("shared with its parent") == 1
    for id in (root, fork, below):
        tree = visitor.get(f"/chat/{id}").text.partition('class="forks"')[2].partition("</section>")[0]
        assert [word in tree for word in ("Root", "Branch", "Twig")] == [True] * 3
    with state.begin() as tx:
        tx.chat.sessions.delete(root)
    assert "Twig" in visitor.get(f"/chat/{fork}").main


# -- single messages, files and downloads


def test_one_message_is_shown_alone_with_its_prompt(state: Store, visitor: Visitor) -> None:
    id = chat(state)
    with state.record(id, system_prompt="You are careful.") as recorder:
        recorder.feed_many([{"type": "start", "messageId": "m/1?"}, {"type": "text-start", "id": "t"}])
        recorder.feed_many(
            [{"type": "text-delta", "id": "t", "delta": "Hello."}, {"type": "text-end", "id": "t"}, {"type": "finish"}]
        )
    page = visitor.get(f"/chat/{id}")
    address = next(one for one in page.text.split('"') if one.startswith(f"/chat/{id}/messages/"))
    alone = visitor.get(address)
    assert "Hello." in alone.main
    assert "You are careful." in alone.main
    assert visitor.json(address)["id"] == "m/1?"


def test_a_message_is_shown_below_its_own_chat_alone(state: Store, visitor: Visitor) -> None:
    one, other = chat(state, "a secret"), chat(state, "nothing")
    with state.begin() as tx:
        message = tx.chat.messages.list(one)[0]["id"]
    assert visitor.get(f"/chat/{one}/messages/{message}").status == 200
    for path in (f"/chat/{other}/messages/{message}", f"/chat/{other}/messages/{message}/files/0"):
        assert visitor.get(path).status == 404


def test_long_text_is_cut_and_whole_behind_a_link(state: Store, visitor: Visitor) -> None:
    id, message = answered(state, *text("word " * 20_000 + "END"))
    page = visitor.get(f"/chat/{id}")
    assert "34,467 characters more" in page.main
    assert "END" not in page.main
    assert f"/chat/{id}/messages/{message}?whole=1" in page.text
    assert "END" in visitor.get(f"/chat/{id}/messages/{message}", whole=1).main


@pytest.mark.parametrize("size", [40, 90_000])
def test_pictures_are_served_by_their_true_type(state: Store, visitor: Visitor, size: int) -> None:
    body = PNG + bytes(size)
    id, _ = answered(state, {"type": "file", "mediaType": "image/png", "filename": "a.png", "url": data_url(body)})
    page = visitor.get(f"/chat/{id}").text
    address = page.partition('<img src="')[2].partition('"')[0]
    assert ("/messages/" in address) == (size == 40)
    found = visitor.get(address)
    assert (found.status, found.headers["content-type"], found.body) == (200, "image/png", body)
    assert "data:" not in page


@pytest.mark.parametrize("size", [10, 90_000])
@pytest.mark.parametrize("said", ["image/png", "image/svg+xml", "text/html"])
def test_what_is_no_picture_is_only_kept(state: Store, visitor: Visitor, said: str, size: int) -> None:
    body = b"<svg onload=alert(1)>" + bytes(size)
    id, _ = answered(state, {"type": "file", "mediaType": said, "filename": 'x"\r\n.svg', "url": data_url(body, said)})
    page = visitor.get(f"/chat/{id}").text
    address = next(one for one in page.split('"') if one.startswith(f"/chat/{id}/") and "/files/" in one)
    found = visitor.get(address)
    assert (found.status, found.headers["content-type"], found.body) == (200, "application/octet-stream", body)
    assert found.headers["content-disposition"].startswith("attachment; filename*=UTF-8''")
    assert found.headers["x-content-type-options"] == "nosniff"


def test_files_of_others_and_those_that_are_none_are_not_found(state: Store, visitor: Visitor) -> None:
    id, message = answered(
        state, *text("no file"), {"type": "file", "mediaType": "image/png", "url": "https://example.com/a.png"}
    )
    other, _ = answered(state, {"type": "file", "mediaType": "image/png", "url": data_url(PNG + bytes(90_000))})
    address = visitor.get(f"/chat/{other}").text.partition('<img src="')[2].partition('"')[0]
    assert visitor.get(address.replace(other, id)).status == 404
    for place in ("0", "1", "9", "-1", "x", "9" * 30):
        assert visitor.get(f"/chat/{id}/messages/{message}/files/{place}").status == 404
    assert "<img" not in visitor.get(f"/chat/{id}").text


def test_a_transcript_is_kept_as_json_and_as_markdown(state: Store, visitor: Visitor) -> None:
    id = chat(state, "A question", "An answer", metadata={"title": "Talk\nof two"})
    with state.begin() as tx:
        call = {"type": "tool-bash", "toolCallId": "c", "state": "output-available", "input": {"a": 1}, "output": "```\nx"}
        tx.chat.messages.append(id, role="assistant", parts=[call, {"type": "reasoning", "text": "Hm.\nYes."}])
    found = visitor.get(f"/chat/{id}/transcript.json")
    assert found.json == visitor.json(f"/chat/{id}")
    assert found.headers["content-disposition"] == f"attachment; filename*=UTF-8''{id}.json"
    words = visitor.get(f"/chat/{id}/transcript.md").text
    assert words.startswith("# Talk of two\n\n## user\n\nA question\n\n## assistant\n\nAn answer\n")
    assert "````\n```\nx\n````" in words
    assert "> Hm.\n> Yes." in words


# -- hostile and odd


def test_hostile_text_is_shown_in_every_place(state: Store, changer: Visitor) -> None:
    parts = [
        {"type": kind, "text": EVIL, "toolCallId": EVIL, "state": EVIL, "input": EVIL, "output": {EVIL: EVIL}, "errorText": EVIL}
        | {
            "url": f"data:image/png;base64,{EVIL}",
            "title": EVIL,
            "mediaType": "image/png",
            "filename": EVIL,
            "data": {EVIL: EVIL},
        }
        for kind in ("text", "reasoning", "file", "source-url", "source-document", "data-x", "odd")
    ]
    id = chat(state, agent=EVIL, owner=EVIL, workspace_root=EVIL, model={"x": EVIL}, metadata={"title": EVIL, EVIL: EVIL})
    with state.begin() as tx:
        tx.chat.messages.append(id, role="assistant", parts=parts, metadata={"agent": EVIL, "model": EVIL, EVIL: EVIL})
    for page in (changer.get("/chat"), changer.get(f"/chat/{id}")):
        assert page.status == 200
        assert "<script>alert" not in page.text
        assert "\u202e" not in page.text


@pytest.mark.parametrize("value", [None, 7, "text", [], ["x"], {"a": None}, True])
def test_parts_that_another_program_stored_are_shown(state: Store, visitor: Visitor, database_url: str, value: Any) -> None:
    names = ("text", "input", "output", "approval", "errorText", "url", "title", "toolName", "state", "data", "parts", "rawInput")
    kinds = ("text", "reasoning", "tool-x", "dynamic-tool", "file", "source-url", "data-compaction", "steering-message", "y")
    id = chat(state)
    with state.begin() as tx:
        said = [{"type": "y"} for _ in kinds]
        message = tx.chat.messages.append(id, role="assistant", parts=said, metadata={"model": value, "agent": value}).id
    raw = Raw(database_url)
    for place, kind in enumerate(kinds):
        part = json.dumps({"type": kind, **dict.fromkeys(names, value)})
        raw.rows('UPDATE chat_parts SET data_json = ? WHERE "index" = ?', part, place)
    raw.close()
    for path in ("", f"/messages/{message}", "/transcript.md", "/transcript.json"):
        assert visitor.get(f"/chat/{id}{path}").status == 200, path
    assert visitor.get(f"/chat/{id}/messages/{message}/files/4").status in (400, 404)


# -- changes


def test_an_answer_is_stopped_once(state: Store, changer: Visitor) -> None:
    id = chat(state, "Go on.")
    assert "Stop" not in changer.get(f"/chat/{id}").main
    with state.record(id, model=MODEL) as recorder:
        recorder.feed_many(
            [{"type": "start"}, {"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "Wo"}]
        )
        page = changer.get(f"/chat/{id}").main
        assert "is being answered" in page
        assert "is being written" in page
        assert "Stop" in page
        assert changer.post(f"/chat/{id}/stop", back=f"/chat/{id}").status == 303
        assert "Asked the answer to stop." in changer.get(f"/chat/{id}").main
        assert "was asked to stop" in changer.get(f"/chat/{id}").main
        recorder.feed({"type": "abort"})
    assert changer.post(f"/chat/{id}/stop").status == 409
    assert "stopped" in changer.get(f"/chat/{id}").main


def test_an_answer_that_broke_off_says_how(state: Store, visitor: Visitor) -> None:
    id = chat(state, "Go on.")
    with state.record(id, model=MODEL) as recorder:
        recorder.feed_many(
            [{"type": "start"}, {"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "Wo"}]
        )
        recorder.feed({"type": "error", "errorText": "overloaded"})
    page = visitor.get(f"/chat/{id}").main
    assert "failed · the latest answer: ended with an error" in page
    assert "Wo The answer broke off here." in page


def test_whoever_only_looks_has_no_form(state: Store, visitor: Visitor) -> None:
    id = chat(state, "Go on.")
    with state.record(id, model=MODEL) as recorder:
        recorder.feed_many([{"type": "start"}, {"type": "text-start", "id": "t"}])
        assert "<form" not in visitor.get(f"/chat/{id}").text
        assert visitor.post(f"/chat/{id}/stop").status == 403
        recorder.feed({"type": "finish"})
