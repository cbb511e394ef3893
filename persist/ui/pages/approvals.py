"""What waits for a person: gates of runs, open approvals of chats, and tools whose result a person gives; answered here."""

import json
from collections.abc import Iterable
from typing import Any

from persist.chat.reducer.parts import approval_id, is_part, tool_name
from persist.chat.schemas import ToolState
from persist.chat.storage.going_on import WaitingCall, waiting_calls
from persist.cli.runs import answer_gate, approvals
from persist.errors import Conflict
from persist.ui.views import Action, Change, Section, View, Visit
from persist.workflows.storage.queue import MOST
from persist.workflows.storage.standings import oldest_gates, pending_gates, run_heads

_CALLS = 50


def _list(visit: Visit) -> dict[str, Any]:
    page = visit.page()
    gates = visit.ask(oldest_gates, page["limit"], page["after"])
    calls = [] if page["after"] else visit.ask(waiting_calls, _CALLS + 1)
    return {
        "title": "Waits for a person",
        "gates": gates,
        "heads": visit.ask(run_heads, [gate.workflow_run_id for gate in gates]),
        "calls": shown_calls(calls[:_CALLS]),
        "most": MOST,
        "more_calls": len(calls) > _CALLS,
        "cursor": gates.cursor,
        "total": visit.ask(pending_gates) if gates.cursor else 0,
        "refresh": True,
    }


def shown_calls(calls: Iterable[WaitingCall]) -> list[dict[str, Any]]:
    """What a page shows of tool calls; another program may have stored parts of any kind."""
    return [_shown(call) for call in calls]


def _shown(call: WaitingCall) -> dict[str, Any]:
    part = call.data if is_part(call.data) else {}
    approval = approval_id(part) if call.state == ToolState.APPROVAL_REQUESTED else None
    return {
        "call": call,
        "tool": tool_name(part) if part else "a tool",
        "input": part.get("input"),
        "approval": approval,
        "may_give": call.state == ToolState.INPUT_AVAILABLE and bool(part),
    }


# -- answers


def _approve(change: Change) -> str:
    return _gate(change, approved=True, reason=change.form.get("reason") or None)


def _reject(change: Change) -> str:
    reason = change.form.get("reason") or change.form.get("reply") or None
    return _gate(change, approved=False, reason=reason)


def _reply(change: Change) -> str:
    return _gate(change, approved=True, reply=change.field("reply"))


def _gate(change: Change, **answer: Any) -> str:
    told = answer_gate(change.tx, change.values["id"], by=change.actor, **answer)
    return " ".join(told.lines)


def _approve_call(change: Change) -> str:
    return _call(change, approved=True)


def _deny_call(change: Change) -> str:
    return _call(change, approved=False)


def _call(change: Change, *, approved: bool) -> str:
    session, approval = change.values["session"], change.values["approval"]
    reason = change.form.get("reason") or None
    if not change.tx.chat.messages.answer_approval(session, approval, approved=approved, reason=reason):
        raise Conflict(f"The approval {approval!r} is not open: somebody has answered it, or its message is hidden.")
    return f"{'Approved' if approved else 'Denied'} the call; the session {session} goes on with its next turn."


def _give(change: Change) -> str:
    """Take a person's result in as `sync` takes it from a browser."""
    session, message, call = (change.values[name] for name in ("session", "message", "call"))
    posted = change.tx.chat.messages.list(session)
    places = [place for place, one in enumerate(posted) if one["id"] == message]
    for one in posted[places[0]]["parts"] if places else ():
        if is_part(one) and one.get("toolCallId") == call and one.get("state") == ToolState.INPUT_AVAILABLE:
            one.update(state=str(ToolState.OUTPUT_AVAILABLE), output=_value(change.field("result")))
            taken = change.tx.chat.messages.sync(session, posted[places[0] :], client_tools=[tool_name(one)])
            if call in taken.tool_outputs:
                return f"Gave the result to {tool_name(one)}; the session {session} goes on with its next turn."
    raise Conflict(f"The tool call {call!r} does not wait for a result any more.")


def _value(text: str) -> Any:
    """What is JSON as that, and anything else as text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


SECTION = Section(
    "Waiting",
    "/approvals",
    views=(View("/approvals", "approvals.html", _list, lambda visit: approvals.answer("ls", visit.tx)),),
    actions=(
        Action("/approvals/{id}/approve", _approve),
        Action("/approvals/{id}/reject", _reject),
        Action("/approvals/{id}/reply", _reply),
        Action("/approvals/calls/{session}/{approval}/approve", _approve_call),
        Action("/approvals/calls/{session}/{approval}/deny", _deny_call),
        Action("/approvals/results/{session}/{message}/{call}", _give),
    ),
)
