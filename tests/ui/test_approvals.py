"""The page of what waits for a person, and the forms that answer it."""

from typing import Any

import pytest

from persist import Store
from persist.testing import FrozenClock
from tests.ui.visitor import Visitor


def gate(state: Store, name: str, kind: Any = "approve", summary: str = "Shall I?", run: str | None = None) -> str:
    with state.begin() as tx:
        run = run or tx.workflows.runs.create(f"flow-{name}", trigger_id=f"t-{name}", current_phase="plan").id
        return tx.workflows.approvals.pause_for_approval(run, gate=name, summary=summary, marker=(name, None), kind=kind).id


def asked(store: Store, **part: Any) -> tuple[str, str]:
    """A session, and its message with a tool call that waits."""
    call = {"type": "tool-bash", "toolCallId": "call/1", "state": "approval-requested", "input": {"command": "ls"}, **part}
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="coder", model={"id": "m"}, metadata={"title": "Tidy up"}, owner="ines").id
        tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "do"}])
        return session, tx.chat.messages.append(session, role="assistant", parts=[call]).id


def answered(state: Store, id: str) -> tuple[str, str | None, str | None, str]:
    with state.read() as tx:
        one = tx.workflows.approvals.get(id)
        return one.status, one.responded_by, one.response, tx.workflows.runs.get(one.workflow_run_id).status


def test_nothing_waits(visitor: Visitor) -> None:
    assert "Nothing waits for a person." in visitor.get("/approvals").main
    assert visitor.json("/approvals") == {"items": [], "cursor": None}


def test_what_waits_longest_comes_first(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    first = gate(state, "first", summary="Deploy?\n<b>now</b>")
    clock.advance(seconds=300)
    second = gate(state, "second", "reply", "Which colour?")
    page = visitor.get("/approvals")
    assert page.main.index("flow-first : first") < page.main.index("flow-second : second")
    assert "asked 5 min ago" in page.main
    assert "&lt;b&gt;now&lt;/b&gt;" in page.text
    assert "<form" not in page.text  # these pages only look
    assert [item["id"] for item in visitor.json("/approvals")["items"]] == [second, first]


def test_gates_have_pages(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    for name in ("one", "two", "three"):
        gate(state, name)
        clock.advance(seconds=1)
    page = visitor.get("/approvals", limit=2)
    assert "Runs that wait: 3" in page.main
    assert "flow-two" in page.main
    assert "flow-three" not in page.main
    (following,) = [part for part in page.text.split('"') if "after=" in part and "limit=2" in part and "json" not in part]
    assert "flow-three" in visitor.get(following.replace("&amp;", "&")).main


@pytest.mark.parametrize(
    ("kind", "answer", "fields", "expected"),
    [
        ("approve", "approve", {"reason": "fine"}, ("approved", "ui", "fine", "running")),
        ("approve", "approve", {"reason": ""}, ("approved", "ui", None, "running")),
        ("approve", "reject", {"reason": "no"}, ("rejected", "ui", "no", "failed")),
        ("reply", "reply", {"reply": "blue"}, ("approved", "ui", "blue", "running")),
        ("reply", "reject", {"reply": "neither"}, ("rejected", "ui", "neither", "failed")),
    ],
)
def test_a_form_answers_a_gate(
    state: Store, changer: Visitor, kind: str, answer: str, fields: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    id = gate(state, "colour", kind)
    assert f"/approvals/{id}/{answer}" in changer.get("/approvals").text
    sent = changer.post(f"/approvals/{id}/{answer}", back="/approvals", **fields)
    assert (sent.status, sent.headers["location"]) == (303, "/approvals")
    assert answered(state, id) == expected
    assert "colour; run" in changer.get("/approvals").main


def test_whoever_answers_second_is_told(state: Store, changer: Visitor) -> None:
    id = gate(state, "deploy")
    changer.get("/approvals")
    with state.begin() as tx:
        tx.workflows.approvals.resolve_and_resume(id, by="maria")
    sent = changer.post(f"/approvals/{id}/reject", reason="no")
    assert sent.status == 409
    assert "it was approved already" in sent.main
    assert answered(state, id)[:2] == ("approved", "maria")


@pytest.mark.parametrize(("kind", "answer", "said"), [("reply", "approve", "wants a reply"), ("approve", "reply", "a decision")])
def test_an_answer_of_the_other_kind_is_refused(state: Store, changer: Visitor, kind: str, answer: str, said: str) -> None:
    id = gate(state, "colour", kind)
    changer.get("/approvals")
    sent = changer.post(f"/approvals/{id}/{answer}", reply="x")
    assert sent.status == 400
    assert said in sent.main
    assert answered(state, id)[0] == "pending"


def test_a_missing_gate_is_named(changer: Visitor) -> None:
    changer.get("/approvals")
    sent = changer.post("/approvals/nobody/approve")
    assert (sent.status, "nobody" in sent.main) == (404, True)


@pytest.mark.parametrize(("answer", "approved"), [("approve", True), ("deny", False)])
def test_a_form_answers_an_open_approval_of_a_chat(state: Store, changer: Visitor, answer: str, approved: bool) -> None:
    session, message = asked(state, approval={"id": "ap/1"})
    page = changer.get("/approvals")
    assert "Tidy up : bash wants to be allowed" in page.main
    assert "agent coder · owner ines" in page.main
    address = f"/approvals/calls/{session}/ap%252F1/{answer}"
    assert address in page.text
    assert changer.post(address, reason="so be it").status == 303
    with state.read() as tx:
        (part,) = tx.chat.messages.get(message)["parts"]
    assert part["state"] == "approval-responded"
    assert part["approval"] == {"id": "ap/1", "approved": approved, "reason": "so be it"}
    again = changer.post(address)
    assert again.status == 409
    assert "is not open" in again.main


def test_a_form_gives_the_result_of_a_tool_that_needs_a_person(state: Store, changer: Visitor) -> None:
    session, message = asked(state, type="tool-ask", state="input-available")
    with state.begin() as tx:
        later = tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "and?"}]).id
    page = changer.get("/approvals")
    assert "Tidy up : ask waits for its result" in page.main
    address = f"/approvals/results/{session}/{message}/call%252F1"
    assert address in page.text
    assert changer.post(address, result='{"colour": "blue"}').status == 303
    with state.read() as tx:
        (part,) = tx.chat.messages.get(message)["parts"]
        assert tx.chat.messages.get(later)["parts"]  # what came after it stays
    assert (part["state"], part["output"]) == ("output-available", {"colour": "blue"})
    assert "Nothing waits" in changer.get("/approvals").main
    assert changer.post(address, result="late").status == 409


def test_a_turn_that_runs_goes_on_with_its_calls_by_itself(state: Store, visitor: Visitor) -> None:
    session, _ = asked(state, type="tool-ask", state="input-available")
    with state.record(session) as recorder:
        recorder.feed({"type": "start", "messageId": "m-1"})
        assert "Nothing waits" in visitor.get("/approvals").main
        recorder.feed({"type": "finish"})
    assert "Tidy up : ask" in visitor.get("/approvals").main
