"""The pages of what agent frameworks keep."""

import json
from datetime import UTC, datetime
from html import unescape
from typing import Any

import pytest
from markupsafe import escape

from persist import Store
from persist.framework_state.agent_tasks.schemas import Piece
from persist.framework_state.app_sessions.schemas import NewEvent, StateChange
from persist.framework_state.checkpoints.schemas import Blob, Write
from persist.framework_state.histories.schemas import Message, NewEntry
from persist.ui.pages.frameworks import KINDS
from tests.ui.visitor import Visitor

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOSTILE = "<img src=x>"
HEAD = Blob("json", b"{}")


def packed(value: Any) -> Blob:
    return Blob("json", json.dumps(value).encode())


def thread(state: Store, id: str = "graph", steps: int = 3, said: str = "hello") -> str:
    """A thread whose steps each change the messages; the first also sets the topic."""
    with state.begin() as tx:
        for step in range(steps):
            tx.checkpoints.states.put(
                id,
                f"{step:04}",
                head=HEAD,
                parent_id=f"{step - 1:04}" if step else None,
                metadata={"step": step, "source": "loop"},
                versions={"messages": str(step), "topic": "1"},
                values={"messages": (str(step), packed(f"{said} {step}")), **({} if step else {"topic": ("1", packed("ships"))})},
            )
        tx.checkpoints.states.put_writes(id, f"{steps - 1:04}", [Write(0, "topic", packed("boats"))], task_id="task-1")
    return id


def history(state: Store, *messages: Any, id: str = "talk", **about: Any) -> str:
    entries = [NewEntry(f"e{place}", f"e{place - 1}" if place else None, Message(one)) for place, one in enumerate(messages)]
    head = entries[-1].id if entries else None
    with state.begin() as tx:
        tx.histories.records.put(id, revision="1", expected_revision=None, head_id=head, entries=entries, updated_at=NOW, **about)
    return id


def part(kind: str, **more: Any) -> dict[str, Any]:
    return {"part_kind": kind, **more}


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_list_says_what_would_fill_it(visitor: Visitor, kind: str) -> None:
    for page in ("/frameworks", f"/frameworks/{kind}"):
        assert escape(KINDS[kind].filled_by) in visitor.get(page).main
    assert visitor.json(f"/frameworks/{kind}") == {"items": [], "cursor": None}
    assert visitor.json("/frameworks")[kind] == []


@pytest.mark.parametrize("noun", sorted({str(kind.noun.name) for kind in KINDS.values()}))
def test_what_is_not_there_is_named(visitor: Visitor, noun: str) -> None:
    answer = visitor.get(f"/frameworks/{noun}/no%20such")
    assert answer.status == 404
    assert "no such" in answer.main
    assert visitor.get(f"/frameworks/{noun}/no%20such", format="json").status == 404


def test_a_list_has_pages(state: Store, visitor: Visitor) -> None:
    for number in range(5):
        thread(state, f"graph-{number}", 1)
    first = visitor.json("/frameworks/checkpoints", limit=3)
    rest = visitor.json("/frameworks/checkpoints", limit=3, after=first["cursor"])
    assert {one["id"] for one in first["items"] + rest["items"]} == {f"graph-{number}" for number in range(5)}
    assert "next page" in visitor.get("/frameworks/checkpoints", limit=3).main
    assert "graph-4" in visitor.get("/frameworks").main


def test_a_thread_says_what_each_step_changed(state: Store, visitor: Visitor) -> None:
    id = thread(state)
    main = visitor.get(f"/frameworks/checkpoints/{id}").main
    newest, middle, first = main.index("step 2"), main.index("step 1"), main.index("step 0")
    assert newest < middle < first
    assert "messages hello 2" in main[newest:middle]
    assert "topic" not in main[newest:first]
    assert "topic ships" in main[first:]
    shown = visitor.json(f"/frameworks/checkpoints/{id}")
    assert (shown["thread"]["id"], [one["id"] for one in shown["checkpoints"]]) == (id, ["0002", "0001", "0000"])


@pytest.mark.parametrize(
    ("before", "now", "shown"),
    [
        (packed(["a"]), packed(["a", "b"]), 'messages added ["b"]'),
        ([packed("a"), packed("b")], [packed("a"), packed("b"), packed("c")], 'messages added ["c"]'),
        (packed(["a", "b"]), [packed("a"), packed("b"), packed("c")], 'messages added ["c"]'),
        (packed(["a"]), packed(["b", "c"]), 'messages ["b","c"]'),
        (packed({"a": 1, "b": 1}), packed({"a": 1, "b": 2, "c": 3}), 'messages set {"b":2,"c":3}'),
        (packed({"a": 1}), packed({"b": 2}), 'messages {"b":2}'),
        (packed("a"), None, "messages no value of its own"),
        (None, packed("b"), "messages b"),
    ],
)
def test_a_step_names_what_a_value_got(state: Store, visitor: Visitor, before: Any, now: Any, shown: str) -> None:
    with state.begin() as tx:
        for step, value in enumerate((before, now)):
            about: dict[str, Any] = {"parent_id": "0" if step else None, "versions": {"messages": f"v{step}"}}
            tx.checkpoints.states.put("graph", f"{step}", head=HEAD, values={"messages": (f"v{step}", value)}, **about)
    newest = unescape(visitor.get("/frameworks/checkpoints/graph").main)
    assert shown in newest


def test_a_thread_has_pages_of_steps(state: Store, visitor: Visitor) -> None:
    id = thread(state, steps=5)
    first = visitor.get(f"/frameworks/checkpoints/{id}", limit=2)
    assert "before=0003" in first.text
    assert "topic" not in first.main.partition("step 3")[2]
    main = visitor.get(f"/frameworks/checkpoints/{id}", limit=2, before="0003").main
    assert "hello 2" in main
    assert "hello 3" not in main


def test_a_step_shows_its_whole_state(state: Store, visitor: Visitor) -> None:
    id = thread(state)
    main = visitor.get(f"/frameworks/checkpoints/{id}/0002").main
    changed, wrote, left = main.index("What it changed"), main.index("What tasks wrote"), main.index("What it found")
    assert "hello 2" in main[changed:wrote]
    assert "boats" in main[wrote:left]
    assert "ships" in main[left:]
    assert visitor.json(f"/frameworks/checkpoints/{id}/0002")["parent_id"] == "0001"
    assert visitor.get(f"/frameworks/checkpoints/{id}/none").status == 404


def test_namespaces_are_kept_apart(state: Store, visitor: Visitor) -> None:
    id = thread(state)
    with state.begin() as tx:
        tx.checkpoints.states.put(
            id, "0009", namespace="sub:1", head=HEAD, versions={"inner": "1"}, values={"inner": ("1", HEAD)}
        )
    assert "sub:1" in visitor.get(f"/frameworks/checkpoints/{id}").main
    assert "step 2" not in visitor.get(f"/frameworks/checkpoints/{id}", namespace="sub:1").main
    assert visitor.get(f"/frameworks/checkpoints/{id}/0009").status == 404
    assert visitor.get(f"/frameworks/checkpoints/{id}/0009", namespace="sub:1").status == 200


def test_a_history_is_shown_as_a_conversation(state: Store, visitor: Visitor) -> None:
    asked = {"kind": "request", "parts": [part("system-prompt", content="Be brief."), part("user-prompt", content="*Where?*")]}
    call = part("tool-call", tool_name="search", tool_call_id="c1", args='{"query": "exit"}')
    told = {
        "kind": "response",
        "model_name": "m-1",
        "parts": [part("thinking", content="Hm."), part("text", content="There"), call],
    }
    answer = {"kind": "request", "parts": [part("tool-return", tool_name="search", content="left of the stairs")]}
    id = history(state, asked, told, answer, scope="maria", usage={"input_tokens": 7, "output_tokens": 5})
    history(state, id="fork", forked_from=id, forked_at="e1")
    shown = visitor.get(f"/frameworks/histories/{id}")
    assert "<em>Where?</em>" in shown.text
    for said in ("Be brief.", "m-1", "Hm.", "There", "search", "exit", "left of the stairs", "maria", "tokens 12"):
        assert said in shown.main
    assert 'href="/frameworks/histories/talk"' in visitor.get("/frameworks/histories/fork").text
    assert [one["id"] for one in visitor.json(f"/frameworks/histories/{id}")["entries"]] == ["e0", "e1", "e2"]
    assert [one["id"] for one in visitor.json("/frameworks/histories", scope="maria")["items"]] == [id]


def test_a_run_of_an_agent_shows_its_steps_and_open_calls(state: Store, visitor: Visitor) -> None:
    with state.begin() as tx:
        tx.histories.runs.register("run-1", started_at=NOW, agent_name="reader", conversation_id="talk")
        tx.histories.run_events.append("run-1", "tool_call_failed", step_index=1, at=NOW, tool_name="grep", error="no such file")
        tx.histories.tool_effects.put("run-1", "c1", status="started", tool_name="send_mail", started_at=NOW)
        tx.histories.snapshots.save(
            "run-1",
            [Message({"role": "user", "content": "Read it"})],
            state="interrupted",
            step_index=1,
            taken_at=NOW,
            sequence=1,
        )
    main = visitor.get("/frameworks/histories/run-1").main
    for said in ("reader", "grep", "no such file", "send_mail", "Read it", "interrupted"):
        assert said in main
    assert visitor.json("/frameworks/histories/run-1")["run"]["id"] == "run-1"
    assert [one["id"] for one in visitor.json("/frameworks/agent_runs")["items"]] == ["run-1"]


def test_a_transcript_is_shown_with_its_parts(state: Store, visitor: Visitor) -> None:
    def user(text: str) -> dict[str, Any]:
        return {"type": "user", "timestamp": "2026-03-01T12:00:00Z", "message": {"role": "user", "content": text}}

    with state.begin() as tx:
        tx.transcripts.entries.append("-work", "ses-1", [user("Rename it."), {"type": "summary", "summary": "x"}])
        tx.transcripts.entries.append("-work", "ses-1", [user("Count them.")], subpath="subagents/agent-1")
        tx.transcripts.entries.append("-else", "ses-1", [user("Another.")])
    ids = {one["project"]: one["id"] for one in visitor.json("/frameworks/transcripts")["items"]}
    shown = visitor.get(f"/frameworks/transcripts/{ids['-work']}")
    assert "Rename it." in shown.main
    assert "Count them." not in shown.main
    assert "Count them." in visitor.get(f"/frameworks/transcripts/{ids['-work']}", subpath="subagents/agent-1").main
    assert visitor.json(f"/frameworks/transcripts/{ids['-work']}")["subpaths"] == ["subagents/agent-1"]
    assert "Another." in visitor.get("/frameworks/transcripts/ses-1", project="-else").main
    assert visitor.get("/frameworks/transcripts/ses-1").status == 409


def test_a_session_of_an_application_shows_its_state(state: Store, visitor: Visitor) -> None:
    parts = [{"text": "Where is **it**?"}, {"function_call": {"name": "locate", "args": {"of": "exit"}}}]
    data = {"content": {"parts": parts}, "actions": {"state_delta": {"step": 2}}}
    with state.begin() as tx:
        sessions = tx.app_sessions.sessions
        change = StateChange(app={"theme": '"dark"'}, session={"step": "1"})
        id = sessions.create("kiosk", "visitor", "visit/1", state=change).session.id
        sessions.append("kiosk", "visitor", "visit/1", NewEvent("e1", 7.0, json.dumps(data), author="guide"))
    for address in (id, "kiosk%252Fvisitor%252Fvisit%252F1"):
        shown = visitor.get(f"/frameworks/app_sessions/{address}")
        assert "<strong>it</strong>" in shown.text
        for said in ("dark", "locate", "exit", "guide", "visit/1"):
            assert said in shown.main
    assert visitor.json(f"/frameworks/app_sessions/{id}")["state"]["session"] == {"step": "1"}


def test_a_task_shows_what_of_its_pieces_can_be_read(state: Store, visitor: Visitor) -> None:
    pieces = [
        Piece("history", 0, 0, b'{"text": "Translate"}'),
        Piece("artifact", 0, -1, b"\x00\xff"),
        Piece("artifact", 0, 0, b"# Neu"),
    ]
    with state.begin() as tx:
        tx.agent_tasks.tasks.save("ines", "t-1", state="working", head=b'{"kind": "task"}', pieces=pieces)
    (task,) = visitor.json("/frameworks/agent_tasks")["items"]
    main = visitor.get(f"/frameworks/agent_tasks/{task['id']}").main
    for said in ("Translate", "2 bytes", "# Neu", "working", "ines"):
        assert said in main
    assert len(visitor.json(f"/frameworks/agent_tasks/{task['id']}")["pieces"]) == 3


def test_a_stream_shows_what_was_sent(state: Store, visitor: Visitor) -> None:
    with state.begin() as tx:
        tx.replay_streams.messages.append("client", "s1", None)
        tx.replay_streams.messages.append("client", "s1", '{"method": "notifications/progress"}')
        tx.replay_streams.messages.append("client", "s2", "no JSON")
    main = visitor.get("/frameworks/replay_streams/client").main
    assert main.index("no JSON") < main.index("notifications/progress") < main.index("a marker")
    assert len(visitor.json("/frameworks/replay_streams/client")["messages"]) == 3


@pytest.mark.parametrize(
    "message",
    [
        {
            "kind": "request",
            "parts": [part("text", content={"a": [HOSTILE]}), part("tool-call", tool_name={}, args="{"), 3, None],
        },
        {"kind": [HOSTILE], "parts": {}},
        {"role": HOSTILE, "content": [HOSTILE, {"type": "text", "text": HOSTILE}]},
        {"kind": "response", "parts": [part("thinking", content=HOSTILE), part(HOSTILE)], "timestamp": HOSTILE, "model_name": 3},
        [HOSTILE],
    ],
)
def test_any_message_is_shown(state: Store, visitor: Visitor, message: Any) -> None:
    id = history(state, message)
    with state.begin() as tx:
        key = (HOSTILE, HOSTILE, HOSTILE)
        tx.app_sessions.sessions.create(*key, state=StateChange(user={HOSTILE: json.dumps(message)}))
        for number, data in enumerate((message, {"content": message}, {"content": {"parts": [message]}, "actions": message})):
            tx.app_sessions.sessions.append(*key, NewEvent(f"{number}", 1e18, json.dumps(data), author=HOSTILE))
        tx.replay_streams.messages.append(HOSTILE, HOSTILE, json.dumps(message))
        tx.transcripts.entries.append(HOSTILE, "ses", [{"type": "user", "message": message}, {"type": HOSTILE}])
        tx.agent_tasks.tasks.save(HOSTILE, HOSTILE, state=HOSTILE, head=json.dumps(message).encode(), pieces=[])
    thread(state, HOSTILE, 1, HOSTILE)
    pages = [f"/frameworks/histories/{id}", "/frameworks/transcripts/ses"]
    for kind in ("app_sessions", "agent_tasks", "replay_streams", "checkpoints"):
        pages.append(f"/frameworks/{kind}")
        ids = [one["id"] for one in visitor.json(f"/frameworks/{kind}")["items"]]
        pages += [f"/frameworks/{kind}/{id.replace('<', '%3C').replace('>', '%3E').replace(' ', '%20')}" for id in ids]
    for page in [*pages, "/frameworks/checkpoints/%3Cimg%20src=x%3E/0000"]:
        shown = visitor.get(page)
        assert shown.status == 200, (page, shown.main)
        assert "<img" not in shown.text
